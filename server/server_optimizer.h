// ServerOptimizer: what the server does with the average displacement of a round. One
// object lives for one train phase. A kind of optimizer is a class in a file of its own,
// a message in run.proto and a line in MakeServerOptimizer.
#ifndef LEEWAY_SERVER_SERVER_OPTIMIZER_H_
#define LEEWAY_SERVER_SERVER_OPTIMIZER_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/vectors.h"
#include "proto/run.pb.h"

namespace leeway {

class ServerOptimizer {
 public:
  virtual ~ServerOptimizer() = default;

  // Makes room for a model of so many parameters, before the first Step.
  void Begin(size_t dimension);
  // Moves `w`, the model's values from `begin` on. `displacement` holds the same coordinates
  // of the average displacement, and may be overwritten. Called by several threads at a
  // time, each with coordinates of its own.
  virtual void Step(size_t begin, VectorRef<double> displacement, VectorRef<double> w) = 0;

  // State between two rounds: vectors in the shape of the model, one after the other. None
  // before the first Begin.
  std::vector<double> Save() const { return state_; }
  absl::Status Restore(std::vector<double> state, size_t dimension);

 protected:
  // A kind that keeps as many vectors, which start with these values everywhere.
  explicit ServerOptimizer(std::vector<double> initial) : initial_(std::move(initial)) {}
  // `size` coordinates of the k-th of them, from `begin` on.
  Eigen::Map<Vector<double>> Kept(size_t k, size_t begin, Eigen::Index size) {
    return {state_.data() + k * dimension_ + begin, size};
  }

 private:
  const std::vector<double> initial_;
  size_t dimension_ = 0;
  std::vector<double> state_;  // one vector after the other, once begun
};

std::unique_ptr<ServerOptimizer> MakeServerOptimizer(const v1::ServerOptimizer& config);

// One maker for each kind, in a file of its own.
std::unique_ptr<ServerOptimizer> MakeMomentumOptimizer(const v1::ServerOptimizer& config);
std::unique_ptr<ServerOptimizer> MakeAdagradOptimizer(const v1::ServerOptimizer& config);
std::unique_ptr<ServerOptimizer> MakeAdamOptimizer(const v1::ServerOptimizer& config);
std::unique_ptr<ServerOptimizer> MakeYogiOptimizer(const v1::ServerOptimizer& config);

// The configured number, or the default where it was left out.
inline double ValueOr(double configured, double otherwise) {
  return configured > 0 ? configured : otherwise;
}

}  // namespace leeway

#endif  // LEEWAY_SERVER_SERVER_OPTIMIZER_H_
