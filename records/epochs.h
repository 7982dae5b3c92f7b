// Who was present in a run, epoch by epoch. A run is a function of its configuration, its
// clients' data and its epochs. Values only; no files.
#ifndef LEEWAY_RECORDS_EPOCHS_H_
#define LEEWAY_RECORDS_EPOCHS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/record.pb.h"
#include "records/store.h"

namespace leeway {

// Follows a run's epochs, one after the other.
class Attendance {
 public:
  // The roster outlives it; nobody is present before the first epoch.
  explicit Attendance(const std::vector<StoredClient>& roster) : roster_(roster) {}

  // DataLoss, with what does not fit, if this is not an epoch that can follow.
  absl::Status Begin(const v1::Epoch& epoch);
  const v1::Epoch& epoch() const { return epoch_; }
  bool present(uint32_t index) const { return index < present_.size() && present_[index]; }
  // Clients present, without evaluators, in order.
  std::vector<uint32_t> Clients() const;
  // All that are on the roster of this epoch and not present.
  std::vector<uint32_t> Away() const;

 private:
  const std::vector<StoredClient>& roster_;
  v1::Epoch epoch_;
  std::vector<bool> present_;
};

// An epoch with the names of those who came and went.
struct EpochNames {
  uint32_t number = 0;
  uint64_t first_round = 0;
  uint32_t population = 0;
  std::vector<std::string> entered;
  std::vector<std::string> returned;
  std::vector<std::string> left;
};
std::vector<EpochNames> NamesOf(const std::vector<v1::Epoch>& epochs,
                                const std::vector<StoredClient>& roster);

// "epoch 2 from round 51 on, 11 clients: 'a' enters, 'b' leaves"; of many names the first few.
std::string EpochText(const EpochNames& epoch);

// If the parts of a run's answer (w*, constants, drift, fixed points, release tests, training)
// are not all about the same clients: a sentence that says which is about whom. Else empty.
std::string MixedEpochs(const std::vector<v1::RoundRecord>& records);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_EPOCHS_H_
