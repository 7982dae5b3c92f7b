#include "server/anderson.h"

#include <Eigen/Dense>

namespace leeway {

Anderson::Anderson(Vector<double> start, size_t memory)
    : memory_(memory), point_(std::move(start)) {}

void Anderson::Observe(const Vector<double>& residual) {
  history_.push_back({point_, residual});
  if (history_.size() > memory_ + 1) history_.pop_front();
  point_ += residual;
  if (history_.size() < 2) return;
  // Type II: the combination of past steps that best explains the residual away.
  const auto columns = static_cast<Eigen::Index>(history_.size() - 1);
  Eigen::MatrixXd steps(point_.size(), columns);
  Eigen::MatrixXd changes(point_.size(), columns);
  for (Eigen::Index j = 0; j < columns; ++j) {
    const Entry& a = history_[static_cast<size_t>(j)];
    const Entry& b = history_[static_cast<size_t>(j) + 1];
    steps.col(j) = b.point - a.point;
    changes.col(j) = b.residual - a.residual;
  }
  // Columns shrink by orders of magnitude on the way; equal lengths keep the
  // least-squares problem well scaled.
  for (Eigen::Index j = 0; j < columns; ++j) {
    const double length = changes.col(j).norm();
    if (length == 0) continue;
    steps.col(j) /= length;
    changes.col(j) /= length;
  }
  const Eigen::VectorXd weights =
      Eigen::CompleteOrthogonalDecomposition<Eigen::MatrixXd>(changes).solve(residual);
  if (weights.allFinite()) point_ -= (steps + changes) * weights;
}

std::vector<double> Anderson::Save() const {
  std::vector<double> out = {static_cast<double>(history_.size())};
  const auto append = [&out](const Vector<double>& v) {
    out.insert(out.end(), v.data(), v.data() + v.size());
  };
  append(point_);
  for (const Entry& entry : history_) {
    append(entry.point);
    append(entry.residual);
  }
  return out;
}

absl::Status Anderson::Restore(const std::vector<double>& state) {
  const auto d = static_cast<size_t>(point_.size());
  if (state.empty() || state.size() != 1 + d + 2 * d * static_cast<size_t>(state[0])) {
    return absl::DataLossError("saved Anderson state has a wrong length");
  }
  const double* next = state.data() + 1;
  const auto take = [&next, d] {
    Vector<double> v = Eigen::Map<const Vector<double>>(next, static_cast<Eigen::Index>(d));
    next += d;
    return v;
  };
  point_ = take();
  history_.clear();
  for (int i = 0; i < static_cast<int>(state[0]); ++i) {
    Vector<double> point = take();
    history_.push_back({std::move(point), take()});
  }
  return absl::OkStatus();
}

}  // namespace leeway
