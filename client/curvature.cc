#include "client/curvature.h"

#include <Eigen/Eigenvalues>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/lanczos.h"
#include "common/status.h"

namespace leeway {
namespace {

Eigen::VectorXd Eigenvalues(const Eigen::MatrixXd& matrix) {
  return Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(matrix, Eigen::EigenvaluesOnly)
      .eigenvalues();
}

absl::StatusOr<double> DistanceToReference(Objective<double>& objective, const v1::Task& task,
                                           const Vector<double>& w) {
  const auto n = static_cast<size_t>(w.size());
  if (task.reference_hessian().size() != n * n * sizeof(double)) {
    return absl::InvalidArgumentError(absl::StrCat("task.reference_hessian has ",
                                                   task.reference_hessian().size(),
                                                   " bytes, expected ", n, " x ", n, " numbers"));
  }
  Eigen::MatrixXd reference(w.size(), w.size());
  std::memcpy(reference.data(), task.reference_hessian().data(), n * n * sizeof(double));
  const Eigen::VectorXd values = Eigenvalues(Hessian(objective, w) - reference);
  return values.cwiseAbs().maxCoeff();
}

absl::StatusOr<double> QuantityOf(Objective<double>& objective, const v1::Task& task,
                                  const Vector<double>& w) {
  switch (task.count()) {
    case v1::CLIENT_SMOOTHNESS:
      if (const std::optional<double> bound = objective.SmoothnessEverywhere()) return *bound;
      return SpectrumOf(objective, w).largest;
    case v1::CLIENT_CONVEXITY:
      return SpectrumOf(objective, w).smallest;
    case v1::HESSIAN_DISTANCE:
      return DistanceToReference(objective, task, w);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("task.count ", static_cast<int>(task.count()), " is unknown"));
  }
}

}  // namespace

Vector<double> HessianVector(Objective<double>& objective, const Vector<double>& w,
                             const Vector<double>& v) {
  const double step = objective.DifferenceStep() / std::max(v.norm(), 1e-300);
  Vector<double> plus(w.size());
  Vector<double> minus(w.size());
  objective.FullGradient(w + step * v, plus);
  objective.FullGradient(w - step * v, minus);
  return (plus - minus) / (2 * step);
}

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
                             const ReportLayout& layout, const Vector<double>& w,
                             absl::Span<double> vectors, absl::Span<double> scalars) {
  if (task.hessian()) {
    const Eigen::MatrixXd scaled = task.rule().step_size() * Hessian(objective, w);
    const auto n = static_cast<size_t>(w.size());
    std::memcpy(vectors.data() + layout.vectors * n, scaled.data(), n * n * sizeof(double));
  }
  if (task.count() != v1::QUANTITY_UNSPECIFIED) {
    LEEWAY_ASSIGN_OR_RETURN(const double quantity, QuantityOf(objective, task, w));
    for (int j = 0; j < task.thresholds_size(); ++j) {
      scalars[static_cast<size_t>(layout.first_count + j)] = quantity > task.thresholds(j) ? 1 : 0;
    }
  }
  return absl::OkStatus();
}

}  // namespace leeway
