// Fields of CSV files.
#ifndef LEEWAY_RECORDS_CSV_H_
#define LEEWAY_RECORDS_CSV_H_

#include <string>

namespace leeway {

// A field of a CSV file, quoted if it must be.
std::string CsvField(const std::string& text);
// A number with 17 digits; empty if it is not finite.
std::string CsvNumber(double value);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_CSV_H_
