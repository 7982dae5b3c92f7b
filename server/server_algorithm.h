// ServerAlgorithm: what a local algorithm needs of the server beside the average displacement
// of a round, which a ServerOptimizer moves the model by. One object lives for one train
// phase. A kind is a class in a file of its own and a line in MakeServerAlgorithm. Not
// thread-safe.
#ifndef LEEWAY_SERVER_SERVER_ALGORITHM_H_
#define LEEWAY_SERVER_SERVER_ALGORITHM_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/tally.h"
#include "common/vectors.h"
#include "proto/run.pb.h"
#include "server/phase.h"

namespace leeway {

class ServerAlgorithm {
 public:
  virtual ~ServerAlgorithm() = default;
  // Do clients keep a state between rounds?
  virtual bool keeps_state() const = 0;
  // Completes the plan of a training round: sums to ask for, models that go with the order.
  virtual void Complete(const RunContext& run, RoundPlan& plan) const = 0;
  // Turns the mean displacement, from coordinate `begin` on, into what the model moves by.
  using Correction = std::function<void(size_t begin, Eigen::Map<Vector<double>>& mean)>;
  // That of a round with these sums; null: the model moves by the mean displacement itself.
  virtual Correction MakeCorrection(const RoundPlan& /*plan*/, const Tally& /*tally*/,
                                    const RunContext& /*run*/) const {
    return nullptr;
  }
  // The sums of that round, which counts.
  virtual void Absorb(const RoundPlan& /*plan*/, const Tally& /*tally*/,
                      const RunContext& /*run*/) {}

  // State between two rounds, as many numbers as the model has; none before the first round, or
  // at all.
  virtual std::vector<double> Save() const { return {}; }
  virtual void Restore(const std::vector<double>& /*state*/, const RunContext& /*run*/) {}
};

// Null where the average displacement is all there is.
std::unique_ptr<ServerAlgorithm> MakeServerAlgorithm(const v1::LocalRule& rule,
                                                     const RunContext& run);

}  // namespace leeway

#endif  // LEEWAY_SERVER_SERVER_ALGORITHM_H_
