#include "server/yardstick.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "common/status.h"
#include "common/sums.h"
#include "server/measures.h"
#include "server/release_measures.h"
#include "server/scale.h"

namespace leeway {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Below this part of the largest eigenvalue a direction is flat: the model does not depend on it,
// and no client's gradient has a part in it.
constexpr double kFlat = 1e-12;
// With so few clients their spread says little of the error of what they have in common.
constexpr double kFewClients = 4;
constexpr size_t kSamples = 3;         // of random signs
constexpr uint32_t kSolveRounds = 50;  // at most, for each
constexpr double kSolved = 1e-3;       // of the first gradient
constexpr double kPart = 1e-2;         // t: how far to go, for the curvature at w* to hold

// The inverse of a symmetric matrix without its flat directions. Rows and columns are brought to
// one scale before, so that a column in other units is not taken for flat.
Eigen::MatrixXd InverseOf(const Eigen::MatrixXd& matrix) {
  const Eigen::VectorXd scale = matrix.diagonal().unaryExpr(
      [](double entry) { return entry > 0 ? 1 / std::sqrt(entry) : 0.0; });
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(scale.asDiagonal() * matrix *
                                                              scale.asDiagonal());
  const double flat = kFlat * solver.eigenvalues().maxCoeff();
  const Eigen::VectorXd inverse =
      solver.eigenvalues().unaryExpr([&](double value) { return value > flat ? 1 / value : 0.0; });
  return scale.asDiagonal() *
         (solver.eigenvectors() * inverse.asDiagonal() * solver.eigenvectors().transpose()) *
         scale.asDiagonal();
}

// The square of the error of a mean over so many clients, from the sum of their own squares.
double OfMean(double clients) { return clients / (clients - 1); }

std::string Bytes(const Eigen::MatrixXd& matrix) {
  return std::string(reinterpret_cast<const char*>(matrix.data()),
                     static_cast<size_t>(matrix.size()) * sizeof(double));
}

Eigen::MatrixXd HessianOf(const v1::Task& task, const Tally& tally, Eigen::Index dimension) {
  const TaskSums sums(task, tally.shape().dimension);
  const auto first = static_cast<size_t>(sums.vector(kHessian));
  Eigen::MatrixXd hessian(dimension, dimension);
  for (Eigen::Index j = 0; j < dimension; ++j) {
    hessian.col(j) =
        tally.vector(first + static_cast<size_t>(j)) / static_cast<double>(tally.weight());
  }
  return 0.5 * (hessian + Eigen::MatrixXd(hessian.transpose()));
}

}  // namespace

YardstickSearch::YardstickSearch(const RunContext& run)
    : dimension_(static_cast<Eigen::Index>(run.layout.size())),
      exact_(run.layout.size() <= kExactDimension),
      search_(Vector<double>::Zero(static_cast<Eigen::Index>(run.layout.size()))) {
  result_.set_constant_loss(kNaN);
  result_.set_sampling_error(kNaN);
  result_.set_sampling_error_high(kNaN);
  result_.set_exact(exact_);
}

void YardstickSearch::WantSamplingError() {
  if (!exact_ && samples_.empty()) stage_ = Stage::kSigns;
}

RoundPlan YardstickSearch::Next(const RunContext& run) const {
  RoundPlan plan;
  plan.record.set_kind(v1::FIXED_POINT_ROUND);
  plan.record.set_point(v1::Probe::OPTIMUM);
  plan.base = run.optimum;
  const double gradient =
      LargestGradient(run, kUsualGradient * MaxUpdate(run.config), kLbfgsFirstStep);
  if (stage_ == Stage::kTargets) {
    AskForTargets(run.config.model(), plan.task);
    plan.base = run.initial;
    plan.record.set_point(v1::Probe::INITIAL);
  } else if (stage_ == Stage::kCurvature) {
    Ask(kHessian, plan.task).set_largest(LargestHessian(run));
  } else if (stage_ == Stage::kDecrement) {
    Ask(kNewtonDecrement, plan.task);
    Ask(kNewtonDecrementSquared, plan.task);
    plan.task.set_inverse_hessian(Bytes(inverse_));
  } else if (stage_ == Stage::kSigns) {
    Ask(kSignedGradient, plan.task).set_largest(gradient);
  } else {
    Ask(kGradient, plan.task).set_largest(gradient);
    plan.base = MakeModel(run.layout, search_.point());
  }
  return plan;
}

void YardstickSearch::Absorb(RoundPlan& plan, const Tally& tally, const RunContext& run) {
  switch (stage_) {
    case Stage::kTargets:
      result_.set_constant_loss(ConstantOrInitialLoss(run.config.model(), plan, tally));
      stage_ = exact_ ? Stage::kCurvature : Stage::kDone;
      break;
    case Stage::kCurvature:
      inverse_ = InverseOf(HessianOf(plan.task, tally, dimension_));
      stage_ = Stage::kDecrement;
      break;
    case Stage::kDecrement:
      AbsorbDecrement(plan.task, tally);
      break;
    case Stage::kSigns:
      signed_ = MeanOf(plan.task, tally, kSignedGradient);
      residual_.resize(0);
      search_ = Lbfgs(ValuesOf(run.layout, *run.optimum));
      rounds_ = 0;
      stage_ = Stage::kSolve;
      break;
    default:
      AbsorbSolve(plan.task, tally, run);
  }
  if (done()) *plan.record.mutable_yardstick() = result_;
}

// 1/2 sum p_c^2 g_c A^-1 g_c, times M/(M-1); its error from how much the clients' shares of it
// differ.
void YardstickSearch::AbsorbDecrement(const v1::Task& task, const Tally& tally) {
  const TaskSums sums(task, tally.shape().dimension);
  const auto weight = static_cast<double>(tally.weight());
  const auto clients = static_cast<double>(tally.clients());
  stage_ = Stage::kDone;
  inverse_.resize(0, 0);
  if (clients < 2) return;
  const auto at = [&](const char* name) {
    return tally.number(static_cast<size_t>(sums.number(name)));
  };
  const double sum = at(kNewtonDecrement) / (weight * weight);
  const double squares = at(kNewtonDecrementSquared) / std::pow(weight, 4);
  const double spread = std::max(0.0, squares - sum * sum / clients) / (clients - 1);
  const double error =
      clients < kFewClients ? sum * std::sqrt(2 / (clients - 1)) : std::sqrt(clients * spread);
  const double factor = OfMean(clients) / 2;
  result_.set_sampling_error(factor * sum);
  result_.set_sampling_error_high(factor * (sum + StudentQuantile(tally.clients() - 1) * error));
}

// With random signs the mean gradient z has the covariance V, so that the mean of 1/2 z A^-1 z is
// what is wanted. A x = -t z is solved by the search for w*, on F with a linear term.
void YardstickSearch::AbsorbSolve(const v1::Task& task, const Tally& tally, const RunContext& run) {
  const Vector<double> gradient = MeanOf(task, tally, kGradient);
  if (residual_.size() == 0) residual_ = gradient;  // at w*
  search_.Observe(gradient - residual_ + kPart * signed_);
  const bool solved = search_.best_norm() <= kSolved * kPart * signed_.norm();
  if (!solved && ++rounds_ < kSolveRounds) return;
  const Vector<double> way = search_.best() - ValuesOf(run.layout, *run.optimum);
  samples_.push_back(std::max(0.0, -signed_.dot(way) / (2 * kPart)));
  stage_ = Stage::kSigns;
  if (samples_.size() < kSamples) return;
  stage_ = Stage::kDone;
  const auto clients = static_cast<double>(tally.clients());
  if (clients < 2) return;
  double mean = 0;
  for (const double sample : samples_) mean += sample / static_cast<double>(kSamples);
  const double error = ErrorOfMean(samples_, mean);
  result_.set_sampling_error(OfMean(clients) * mean);
  result_.set_sampling_error_high(OfMean(clients) * (mean + StudentQuantile(kSamples - 1) * error));
}

std::vector<double> YardstickSearch::Save() const {
  std::vector<double> out = {static_cast<double>(stage_),
                             result_.constant_loss(),
                             result_.sampling_error(),
                             result_.sampling_error_high(),
                             static_cast<double>(rounds_),
                             static_cast<double>(samples_.size()),
                             static_cast<double>(residual_.size())};
  out.insert(out.end(), samples_.begin(), samples_.end());
  if (stage_ == Stage::kDecrement) {
    out.insert(out.end(), inverse_.data(), inverse_.data() + inverse_.size());
  }
  if (stage_ == Stage::kSolve) {
    out.insert(out.end(), signed_.data(), signed_.data() + signed_.size());
    out.insert(out.end(), residual_.data(), residual_.data() + residual_.size());
    const std::vector<double> search = search_.Save();
    out.insert(out.end(), search.begin(), search.end());
  }
  return out;
}

absl::Status YardstickSearch::Restore(const std::vector<double>& state) {
  constexpr size_t kFixed = 7;
  const absl::Status cut = absl::DataLossError("saved yardstick is cut short");
  if (state.size() < kFixed) return cut;
  stage_ = static_cast<Stage>(static_cast<int>(state[0]));
  result_.set_constant_loss(state[1]);
  result_.set_sampling_error(state[2]);
  result_.set_sampling_error_high(state[3]);
  rounds_ = static_cast<uint32_t>(state[4]);
  const auto samples = static_cast<size_t>(state[5]);
  const auto residual = static_cast<Eigen::Index>(state[6]);
  if (samples > kSamples || state.size() < kFixed + samples) return cut;
  const double* next = state.data() + kFixed;
  samples_.assign(next, next + samples);
  next += samples;
  const auto left = static_cast<Eigen::Index>(state.data() + state.size() - next);
  if (stage_ == Stage::kDecrement) {
    if (left != dimension_ * dimension_) return cut;
    inverse_ = Eigen::Map<const Eigen::MatrixXd>(next, dimension_, dimension_);
  } else if (stage_ == Stage::kSolve) {
    if (left < dimension_ + residual) return cut;
    signed_ = Eigen::Map<const Vector<double>>(next, dimension_);
    residual_ = Eigen::Map<const Vector<double>>(next + dimension_, residual);
    return search_.Restore({next + dimension_ + residual, state.data() + state.size()});
  }
  return absl::OkStatus();
}

}  // namespace leeway
