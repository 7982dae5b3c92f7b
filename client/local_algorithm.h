// LocalAlgorithm: how a client's local steps differ from (stochastic) gradient descent.
// One object lives for one client's work on one task. A kind of algorithm is a class in a
// file of its own, a message in run.proto and a line in MakeLocalAlgorithm.
#ifndef LEEWAY_CLIENT_LOCAL_ALGORITHM_H_
#define LEEWAY_CLIENT_LOCAL_ALGORITHM_H_

#include <memory>

#include "common/vectors.h"
#include "proto/run.pb.h"

namespace leeway {

template <typename T>
class LocalAlgorithm {
 public:
  virtual ~LocalAlgorithm() = default;
  // Turns the gradient of F_c at w - u into the direction that the next local step goes
  // against. u is the displacement from the global model w so far.
  virtual void Correct(const Vector<T>& u, Vector<T>& gradient) const = 0;
};

// Null for plain gradient descent.
template <typename T>
std::unique_ptr<LocalAlgorithm<T>> MakeLocalAlgorithm(const v1::LocalRule& rule);

// One maker for each kind, in a file of its own.
template <typename T>
std::unique_ptr<LocalAlgorithm<T>> MakeFedProx(const v1::FedProx& config);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_LOCAL_ALGORITHM_H_
