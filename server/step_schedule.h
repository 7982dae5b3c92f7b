// StepSchedule: chooses the number of local steps by what they achieve (auto_steps). Many
// while every round lowers the loss by at least what one plain gradient step guarantees,
// eta/2 |grad F|^2; half as many whenever a round does not, because then the drift has
// eaten up what local steps gain. FedAvg with a fixed number settles where drift and
// gradient balance; this one ends with H = 1, which settles at w* (docs/measures.md).
// Pure. One object lives for one train phase. Not thread-safe.
#ifndef LEEWAY_SERVER_STEP_SCHEDULE_H_
#define LEEWAY_SERVER_STEP_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace leeway {

class StepSchedule {
 public:
  // `exact`: losses and steps have no noise, because all clients report and take full-batch
  // steps. Else losses are compared in blocks of rounds, which grow until the comparison is
  // clear.
  StepSchedule(uint32_t largest, bool exact);

  // Local steps of the next round.
  uint32_t steps() const { return steps_; }
  // What a round has told of the model that it started from: the loss, and the decrease
  // that one gradient step guarantees.
  void Absorb(double loss, double guaranteed);

  // State between two rounds.
  std::vector<double> Save() const;
  absl::Status Restore(absl::Span<const double> state);
  static constexpr size_t kStateSize = 11;

 private:
  // Sums over rounds that follow one another.
  struct Block {
    double rounds = 0;
    double loss = 0;
    double variance = 0;  // of each round's loss, from the change since the one before
    double guaranteed = 0;
  };

  void Restart();

  const double shortest_;  // rounds of a block at first
  uint32_t steps_ = 1;
  double length_ = 1;       // rounds of a block now
  double last_loss_ = 0;    // NaN before the first round with these steps
  Block before_, current_;  // before_.rounds is 0 until the first block is full
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_STEP_SCHEDULE_H_
