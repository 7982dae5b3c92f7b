// Lanczos iteration by reverse communication: it says which vector it wants the
// matrix times, and is told. With full reorthogonalisation, or, for large
// dimensions, with the last two vectors alone: then the extreme Ritz values are
// as good, but others may appear twice. Both sides use it: the server on federated
// gradients, a client on its own. A value; not thread-safe.
#ifndef LEEWAY_COMMON_LANCZOS_H_
#define LEEWAY_COMMON_LANCZOS_H_

#include <vector>

#include "absl/status/status.h"
#include "common/vectors.h"

namespace leeway {

class Lanczos {
 public:
  enum class Keep { kAll, kLastTwo };

  // At most `iterations` products with a symmetric matrix of this dimension.
  Lanczos(Eigen::Index dimension, uint32_t iterations, Keep keep = Keep::kAll);

  bool done() const { return done_; }
  // The unit vector that the matrix is wanted times.
  const Vector<double>& direction() const { return basis_.back(); }
  void Observe(const Vector<double>& product);
  // Extreme Ritz values so far: within the spectrum, approaching its ends.
  double smallest() const;
  double largest() const;

  std::vector<double> Save() const;
  absl::Status Restore(const std::vector<double>& state);

 private:
  uint32_t iterations_;
  Keep keep_;
  bool done_ = false;
  std::vector<Vector<double>> basis_;
  std::vector<double> diagonal_;
  std::vector<double> off_diagonal_;
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_LANCZOS_H_
