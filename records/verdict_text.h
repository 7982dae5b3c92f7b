// The verdict on a run, with its evidence, as text, JSON and CSV.
#ifndef LEEWAY_RECORDS_VERDICT_TEXT_H_
#define LEEWAY_RECORDS_VERDICT_TEXT_H_

#include <string>

#include "records/json.h"
#include "records/verdict.h"

namespace leeway {

// The sentence, a table by H, warnings.
std::string VerdictText(const Verdict& verdict);
// The JSON of `leeway drift --json`.
std::string VerdictJson(const Verdict& verdict);
// The same object as the writer's next value.
void WriteVerdict(const Verdict& verdict, JsonWriter& json);
// The evidence as a table: one row per H and step size.
std::string EvidenceCsv(const Verdict& verdict);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_VERDICT_TEXT_H_
