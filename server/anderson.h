// Anderson acceleration of a fixed-point iteration w <- w + r(w), by reverse
// communication. For an affine map it ends in as many steps as the map has
// distinct eigenvalues. A value; not thread-safe.
#ifndef LEEWAY_SERVER_ANDERSON_H_
#define LEEWAY_SERVER_ANDERSON_H_

#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "common/vectors.h"

namespace leeway {

class Anderson {
 public:
  explicit Anderson(Vector<double> start, size_t memory = 30);

  // Where the residual is wanted.
  const Vector<double>& point() const { return point_; }
  // The residual r = T(w) - w there.
  void Observe(const Vector<double>& residual);

  std::vector<double> Save() const;
  absl::Status Restore(const std::vector<double>& state);

 private:
  struct Entry {
    Vector<double> point;
    Vector<double> residual;
  };
  size_t memory_;
  Vector<double> point_;
  std::deque<Entry> history_;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_ANDERSON_H_
