#include "server/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace leeway {

Lbfgs::Lbfgs(Vector<double> start, size_t memory)
    : memory_(memory),
      x_(std::move(start)),
      trial_(x_),
      best_(x_),
      best_norm_(std::numeric_limits<double>::infinity()) {}

// Two-loop recursion.
Vector<double> Lbfgs::Direction(const Vector<double>& gradient) const {
  Vector<double> q = gradient;
  std::vector<double> a(pairs_.size());
  for (size_t i = pairs_.size(); i-- > 0;) {
    const Pair& p = pairs_[i];
    a[i] = p.step.dot(q) / p.step.dot(p.change);
    q -= a[i] * p.change;
  }
  if (!pairs_.empty()) {
    const Pair& p = pairs_.back();
    q *= p.step.dot(p.change) / p.change.squaredNorm();
  }
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& p = pairs_[i];
    q += (a[i] - p.change.dot(q) / p.step.dot(p.change)) * p.step;
  }
  return -q;
}

void Lbfgs::Accept(const Vector<double>& gradient) {
  if (gradient_.size() != 0) {
    Pair pair{trial_ - x_, gradient - gradient_};
    if (pair.step.dot(pair.change) > 0) {
      pairs_.push_back(std::move(pair));
      if (pairs_.size() > memory_) pairs_.pop_front();
    }
  }
  x_ = trial_;
  gradient_ = gradient;
  direction_ = Direction(gradient_);
  slope_ = direction_.dot(gradient_);
  if (!(slope_ < 0)) {  // lost to rounding: start the memory anew
    pairs_.clear();
    direction_ = -gradient_;
    slope_ = -gradient_.squaredNorm();
  }
  // Without curvature a unit-length step is a guess that the secants mend.
  length_ = pairs_.empty() ? kLbfgsFirstStep / std::max(1.0, gradient_.norm()) : 1.0;
  low_ = 0;
  low_slope_ = slope_;
  high_ = 0;
  trials_ = 0;
}

void Lbfgs::NextTrial() { trial_ = x_ + length_ * direction_; }

void Lbfgs::Observe(const Vector<double>& gradient) {
  const double norm = gradient.norm();
  if (norm < best_norm_) {
    best_norm_ = norm;
    best_ = trial_;
  }
  constexpr int kMaxTrials = 30;
  const double slope = direction_.size() == 0 ? 0 : direction_.dot(gradient);
  if (gradient_.size() == 0 || std::abs(slope) <= 0.5 * std::abs(slope_) || trials_ >= kMaxTrials) {
    Accept(gradient);
    NextTrial();
    return;
  }
  ++trials_;
  if (!(slope < 0)) {
    high_ = length_;
    high_slope_ = std::isfinite(slope) ? slope : std::numeric_limits<double>::max();
  } else {
    const double previous = low_;
    const double previous_slope = low_slope_;
    low_ = length_;
    low_slope_ = slope;
    if (high_ == 0) {
      // Extrapolate by the secant through the last two points, within reason.
      const double curvature = (low_slope_ - previous_slope) / (low_ - previous);
      const double secant = curvature > 0 ? low_ - low_slope_ / curvature : 10 * low_;
      length_ = std::clamp(secant, 1.5 * low_, 10 * low_);
      NextTrial();
      return;
    }
  }
  const double width = high_ - low_;
  const double secant = low_ - low_slope_ * width / (high_slope_ - low_slope_);
  length_ = std::clamp(secant, low_ + 0.05 * width, high_ - 0.05 * width);
  NextTrial();
}

std::vector<double> Lbfgs::Save() const {
  std::vector<double> out = {slope_,
                             length_,
                             low_,
                             low_slope_,
                             high_,
                             high_slope_,
                             best_norm_,
                             static_cast<double>(trials_),
                             static_cast<double>(gradient_.size() != 0),
                             static_cast<double>(pairs_.size())};
  const auto append = [&out](const Vector<double>& v) {
    out.insert(out.end(), v.data(), v.data() + v.size());
  };
  append(x_);
  append(trial_);
  append(best_);
  if (gradient_.size() != 0) {
    append(gradient_);
    append(direction_);
  }
  for (const Pair& p : pairs_) {
    append(p.step);
    append(p.change);
  }
  return out;
}

absl::Status Lbfgs::Restore(const std::vector<double>& state) {
  constexpr size_t kFixed = 10;
  const auto d = static_cast<size_t>(x_.size());
  const auto wrong = [&state] {
    return absl::DataLossError(
        absl::StrCat("saved optimizer state has ", state.size(), " numbers: not what was saved"));
  };
  if (state.size() < kFixed) return wrong();
  const bool begun = state[8] != 0;
  const auto pairs = static_cast<size_t>(state[9]);
  if (pairs > memory_ || state.size() != kFixed + d * (3 + (begun ? 2 : 0) + 2 * pairs)) {
    return wrong();
  }
  slope_ = state[0];
  length_ = state[1];
  low_ = state[2];
  low_slope_ = state[3];
  high_ = state[4];
  high_slope_ = state[5];
  best_norm_ = state[6];
  trials_ = static_cast<int>(state[7]);
  const double* next = state.data() + kFixed;
  const auto take = [&next, d] {
    Vector<double> v = Eigen::Map<const Vector<double>>(next, static_cast<Eigen::Index>(d));
    next += d;
    return v;
  };
  x_ = take();
  trial_ = take();
  best_ = take();
  gradient_.resize(0);
  direction_.resize(0);
  if (begun) {
    gradient_ = take();
    direction_ = take();
  }
  pairs_.clear();
  for (size_t i = 0; i < pairs; ++i) {
    Vector<double> step = take();
    pairs_.push_back({std::move(step), take()});
  }
  return absl::OkStatus();
}

}  // namespace leeway
