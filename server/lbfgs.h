// L-BFGS by reverse communication: it says where it wants loss and gradient, and
// is told. So the round loop stays in one place, and the whole state can be saved
// between two rounds. For smooth convex functions. A value; not thread-safe.
#ifndef LEEWAY_SERVER_LBFGS_H_
#define LEEWAY_SERVER_LBFGS_H_

#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "common/vectors.h"

namespace leeway {

// The longest step that is tried before any curvature is known.
inline constexpr double kLbfgsFirstStep = 1;

class Lbfgs {
 public:
  explicit Lbfgs(Vector<double> start, size_t memory = 20);

  // Where to evaluate next.
  const Vector<double>& point() const { return trial_; }
  // Gradient there. The line search looks for a zero of the slope along the
  // direction by secants (exact for quadratics), never at loss values: near the
  // minimum those differ by less than they can be computed.
  void Observe(const Vector<double>& gradient);
  // The point with the smallest gradient norm so far, and that norm.
  const Vector<double>& best() const { return best_; }
  double best_norm() const { return best_norm_; }

  // Everything above as numbers, and back. Restore refuses a wrong length.
  std::vector<double> Save() const;
  absl::Status Restore(const std::vector<double>& state);

 private:
  struct Pair {
    Vector<double> step;    // s
    Vector<double> change;  // y
  };
  Vector<double> Direction(const Vector<double>& gradient) const;
  void Accept(const Vector<double>& gradient);
  void NextTrial();

  size_t memory_;
  Vector<double> x_;          // last accepted point
  Vector<double> gradient_;   // its gradient; empty before the first Observe
  Vector<double> direction_;  // of the current line search
  Vector<double> trial_;      // x_ + length_ * direction_
  double slope_ = 0;          // direction . gradient at x_, negative
  double length_ = 1;
  double low_ = 0, low_slope_ = 0;    // bracket: slope < 0 at low_
  double high_ = 0, high_slope_ = 0;  // slope > 0 at high_; 0 if none yet
  int trials_ = 0;
  Vector<double> best_;
  double best_norm_;
  std::deque<Pair> pairs_;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_LBFGS_H_
