// LocalAlgorithm: how a client's local steps differ from (stochastic) gradient descent, and
// what it keeps between rounds. One object lives for one client's work on one task. A kind
// of algorithm is a class in a file of its own, a message in run.proto and a line in
// MakeLocalAlgorithm.
#ifndef LEEWAY_CLIENT_LOCAL_ALGORITHM_H_
#define LEEWAY_CLIENT_LOCAL_ALGORITHM_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/local_update.h"
#include "common/vectors.h"
#include "proto/run.pb.h"

namespace leeway {

template <typename T>
class LocalAlgorithm {
 public:
  // Receives the client's value of a sum that is the algorithm's own.
  using Report = absl::FunctionRef<void(absl::string_view sum, const Vector<T>& value)>;

  virtual ~LocalAlgorithm() = default;
  // Turns the gradient of F_c at w - u into the direction that the next local step goes
  // against. u is the displacement from the global model w so far.
  virtual void Correct(const Vector<T>& u, Vector<T>& gradient) const = 0;
  // After the last of so many steps, at w - u: reports its sums and moves its state on.
  virtual void Finish(const Vector<T>& /*u*/, uint64_t /*steps*/, Report /*report*/) {}
};

// Null for plain gradient descent. `state` outlives the algorithm: what the client keeps
// between rounds, empty before the first.
template <typename T>
absl::StatusOr<std::unique_ptr<LocalAlgorithm<T>>> MakeLocalAlgorithm(const LocalTask& task,
                                                                      Vector<T>& state);

// Do clients keep something between rounds?
bool KeepsState(const v1::LocalRule& rule);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_LOCAL_ALGORITHM_H_
