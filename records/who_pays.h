// Rounds that are put in between others to count who pays for local steps, and to see what each
// number of them reaches after so many rounds. Cohorts and batches are drawn by a round's number;
// those of all later rounds are drawn as if these had not been, so that asking for them changes
// nothing else. Pure functions.
#ifndef LEEWAY_RECORDS_WHO_PAYS_H_
#define LEEWAY_RECORDS_WHO_PAYS_H_

#include <cstdint>
#include <string>

#include "proto/record.pb.h"
#include "proto/run.pb.h"

namespace leeway {

// Rounds of counting for one number of local steps.
inline constexpr uint64_t kWhoPaysRounds = 3;

// How many such rounds a phase takes in all.
uint64_t RoundsAside(const v1::FixedPoint& config);
uint64_t RoundsAside(const v1::ReleaseTest& config);
uint64_t RoundsAside(const v1::Phase& phase);
// Is the round of this record one of them?
bool IsAside(const v1::RoundRecord& record);

// "Who pays at H = 10: half of the clients lose less than 0.01, the worst tenth more than 0.2; 30
// of 100 gain. 12 of 100 lose accuracy, the worst tenth more than 3.1 points."
std::string WhoPaysText(const v1::WhoPays& who);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_WHO_PAYS_H_
