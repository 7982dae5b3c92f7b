// The verdict on a run, with its evidence, as text, JSON and CSV.
#ifndef LEEWAY_RECORDS_VERDICT_TEXT_H_
#define LEEWAY_RECORDS_VERDICT_TEXT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "records/verdict.h"

namespace leeway {

// The sentence, a table by H, warnings.
std::string VerdictText(const Verdict& verdict);
// The JSON of `leeway drift --json`.
std::string VerdictJson(const Verdict& verdict);
// The same before it is text.
nlohmann::ordered_json VerdictObject(const Verdict& verdict);
// The evidence as a table: one row per H and step size.
std::string EvidenceCsv(const Verdict& verdict);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_VERDICT_TEXT_H_
