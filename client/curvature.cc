#include "client/curvature.h"

#include <Eigen/Eigenvalues>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/known_sums.h"
#include "common/lanczos.h"
#include "common/status.h"

namespace leeway {
namespace {

Eigen::VectorXd Eigenvalues(const Eigen::MatrixXd& matrix) {
  return Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(matrix, Eigen::EigenvaluesOnly)
      .eigenvalues();
}

// The client's Hessian less the reference.
absl::StatusOr<Eigen::MatrixXd> LessReference(Objective<double>& objective, const v1::Task& task,
                                              const Vector<double>& w) {
  const auto n = static_cast<size_t>(w.size());
  if (task.reference_hessian().size() != n * n * sizeof(double)) {
    return absl::InvalidArgumentError(absl::StrCat("task.reference_hessian has ",
                                                   task.reference_hessian().size(),
                                                   " bytes, expected ", n, " x ", n, " numbers"));
  }
  Eigen::MatrixXd reference(w.size(), w.size());
  std::memcpy(reference.data(), task.reference_hessian().data(), n * n * sizeof(double));
  return Eigen::MatrixXd(Hessian(objective, w) - reference);
}

absl::StatusOr<double> QuantityOf(absl::string_view name, Objective<double>& objective,
                                  const v1::Task& task, const Vector<double>& w) {
  if (name == kHessianDistanceAbove) {
    LEEWAY_ASSIGN_OR_RETURN(const Eigen::MatrixXd distance, LessReference(objective, task, w));
    return Eigenvalues(distance).cwiseAbs().maxCoeff();
  }
  if (name == kConvexityAbove) {
    const std::optional<double> known = objective.ConvexityEverywhere();
    return known ? *known : SpectrumOf(objective, w).smallest;
  }
  if (const std::optional<double> bound = objective.SmoothnessEverywhere()) return *bound;
  return SpectrumOf(objective, w).largest;
}

}  // namespace

template <typename T>
Vector<double> HessianVector(Objective<T>& objective, const Vector<double>& w,
                             const Vector<double>& v) {
  const double step = objective.DifferenceStep() / std::max(v.norm(), 1e-300);
  Vector<double> plus(w.size());
  Vector<double> minus(w.size());
  objective.FullGradientInDouble(w + step * v, plus);
  objective.FullGradientInDouble(w - step * v, minus);
  return (plus - minus) / (2 * step);
}
template Vector<double> HessianVector<float>(Objective<float>&, const Vector<double>&,
                                             const Vector<double>&);
template Vector<double> HessianVector<double>(Objective<double>&, const Vector<double>&,
                                              const Vector<double>&);

Eigen::MatrixXd Hessian(Objective<double>& objective, const Vector<double>& w) {
  Eigen::MatrixXd hessian(w.size(), w.size());
  for (Eigen::Index j = 0; j < w.size(); ++j) {
    hessian.col(j) = HessianVector(objective, w, Vector<double>::Unit(w.size(), j));
  }
  return 0.5 * (hessian + hessian.transpose());
}

Spectrum SpectrumOf(Objective<double>& objective, const Vector<double>& w) {
  if (w.size() <= kExactDimension) {
    const Eigen::VectorXd values = Eigenvalues(Hessian(objective, w));
    return {values.minCoeff(), values.maxCoeff()};
  }
  Lanczos lanczos(w.size(), 40);
  while (!lanczos.done()) lanczos.Observe(HessianVector(objective, w, lanczos.direction()));
  return {lanczos.smallest(), lanczos.largest()};
}

absl::Status ReportCurvature(Objective<double>& objective, const v1::Task& task,
                             const TaskSums& sums, const Vector<double>& w,
                             absl::Span<double> vectors, absl::Span<double> numbers) {
  const int matrix = sums.vector(kHessian);
  const int largest = sums.number(kLargestHessian);
  if (largest != TaskSums::kNone && w.size() > kExactDimension) {
    // The largest eigenvalue, which no entry exceeds.
    LEEWAY_ASSIGN_OR_RETURN(const double bound, QuantityOf(kSmoothnessAbove, objective, task, w));
    numbers[static_cast<size_t>(largest)] = bound * bound;
  } else if (matrix != TaskSums::kNone || largest != TaskSums::kNone) {
    const Eigen::MatrixXd hessian = Hessian(objective, w);
    const auto n = static_cast<size_t>(w.size());
    if (matrix != TaskSums::kNone) {
      std::memcpy(vectors.data() + static_cast<size_t>(matrix) * n, hessian.data(),
                  n * n * sizeof(double));
    }
    if (largest != TaskSums::kNone) {
      numbers[static_cast<size_t>(largest)] = std::pow(hessian.cwiseAbs().maxCoeff(), 2);
    }
  }
  if (const int squared = sums.vector(kSquaredHessianDistance); squared != TaskSums::kNone) {
    LEEWAY_ASSIGN_OR_RETURN(const Eigen::MatrixXd distance, LessReference(objective, task, w));
    const Eigen::MatrixXd square = distance * distance;
    std::memcpy(vectors.data() + static_cast<size_t>(squared) * static_cast<size_t>(w.size()),
                square.data(), static_cast<size_t>(square.size()) * sizeof(double));
  }
  for (const char* name : {kSmoothnessAbove, kConvexityAbove, kHessianDistanceAbove}) {
    if (sums.number(name) == TaskSums::kNone) continue;
    LEEWAY_ASSIGN_OR_RETURN(const double quantity, QuantityOf(name, objective, task, w));
    CountAbove(task, name, quantity, sums, numbers);
  }
  return absl::OkStatus();
}

void CountAbove(const v1::Task& task, absl::string_view name, double quantity, const TaskSums& sums,
                absl::Span<double> numbers) {
  if (sums.number(name) == TaskSums::kNone) return;
  size_t place = 0;  // among the numbers
  for (const v1::Sum& sum : task.sums()) {
    if (sum.name() == name) numbers[place] = quantity > sum.threshold() ? 1 : 0;
    if (sum.shape() == v1::NUMBER) ++place;
  }
}

}  // namespace leeway
