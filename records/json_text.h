// JSON as text. Numbers have as many digits as it takes to come back as the same
// double; NaN and infinities, which JSON does not have, become null; bytes that are
// not UTF-8 become U+FFFD, so that no name can make it fail.
#ifndef LEEWAY_RECORDS_JSON_TEXT_H_
#define LEEWAY_RECORDS_JSON_TEXT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace leeway {

// For people: indented.
std::string JsonText(const nlohmann::ordered_json& json);
// For programs: on one line.
std::string JsonLine(const nlohmann::ordered_json& json);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_JSON_TEXT_H_
