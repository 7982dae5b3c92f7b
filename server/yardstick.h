// What the verdict compares a loss gap with: the loss of the best constant answer, and what w* owes
// to the sample of clients, 1/2 tr(A^-1 V) (docs/measures.md, 7). Up to 256 parameters exactly, in
// three rounds; of larger models the second is an estimate by random signs, which takes some dozens
// of rounds and is made on demand. A value, by reverse communication like a phase.
#ifndef LEEWAY_SERVER_YARDSTICK_H_
#define LEEWAY_SERVER_YARDSTICK_H_

#include <Eigen/Core>
#include <vector>

#include "absl/status/status.h"
#include "server/lbfgs.h"
#include "server/phase.h"

namespace leeway {

class YardstickSearch {
 public:
  explicit YardstickSearch(const RunContext& run);

  // Nothing is under way.
  bool done() const { return stage_ == Stage::kDone; }
  const v1::Yardstick& result() const { return result_; }
  // Goes on with the sampling error, if that was not measured yet.
  void WantSamplingError();

  // The next round; not when done().
  RoundPlan Next(const RunContext& run) const;
  // When it has all that it was asked for, the record has it, too.
  void Absorb(RoundPlan& plan, const Tally& tally, const RunContext& run);

  std::vector<double> Save() const;
  absl::Status Restore(const std::vector<double>& state);

 private:
  // kTargets -> kCurvature -> kDecrement -> kDone with the exact Hessian; else kTargets -> kDone,
  // and on demand (kSigns -> kSolve) for every sample -> kDone.
  enum class Stage { kTargets, kCurvature, kDecrement, kSigns, kSolve, kDone };

  void AbsorbDecrement(const v1::Task& task, const Tally& tally);
  void AbsorbSolve(const v1::Task& task, const Tally& tally, const RunContext& run);

  Eigen::Index dimension_;
  bool exact_;
  Stage stage_ = Stage::kTargets;
  v1::Yardstick result_;
  Eigen::MatrixXd inverse_;      // of the Hessian; else empty
  std::vector<double> samples_;  // of the sampling error
  uint32_t rounds_ = 0;          // of the search under way
  Vector<double> signed_;        // z: the sum of gradients with random signs
  Vector<double> residual_;      // grad F(w*), as it was found
  Lbfgs search_;                 // for a zero of grad F - residual + t z
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_YARDSTICK_H_
