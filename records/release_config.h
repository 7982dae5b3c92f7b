// Defaults and checks of what a config says of release tests; a part of records/config.h.
#ifndef LEEWAY_RECORDS_RELEASE_CONFIG_H_
#define LEEWAY_RECORDS_RELEASE_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/run.pb.h"

namespace leeway {

// Fills in what release tests, and the thresholds of their verdict, leave out.
void CompleteRelease(v1::RunConfig& config);

// The thresholds of the verdict.
absl::Status CheckLost(const v1::RunConfig& config);
// A test without its steps and its step size. `optimum`: w* is found before it.
absl::Status CheckRelease(const std::string& field, const v1::ReleaseTest& release, bool optimum);
// When a training takes it.
absl::Status CheckReleaseAt(const std::string& field, const v1::Train& train);
// Phase number `phase` does not sample more clients than there are.
absl::Status CheckReleaseClients(int number, const v1::Phase& phase, uint64_t clients);

// Rounds that the test takes.
uint64_t RoundsOf(const v1::ReleaseTest& config);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_RELEASE_CONFIG_H_
