// The step that keeps a client's displacement within the norm that the run accepts.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/report_step.h"

namespace leeway {
namespace {

class NormLimit : public ReportStep {
 public:
  absl::Status Apply(const ReportContext& context, ClientReport<float>& report) const override {
    return Limit(context, report);
  }
  absl::Status Apply(const ReportContext& context, ClientReport<double>& report) const override {
    return Limit(context, report);
  }

 private:
  template <typename T>
  absl::Status Limit(const ReportContext& context, ClientReport<T>& report) const {
    const v1::Task& task = context.task;
    const int place = context.sums.vector(kDisplacement);
    if (place == TaskSums::kNone || task.max_norm() <= 0) return absl::OkStatus();
    const size_t dimension = context.sums.shape().dimension;
    const absl::Span<T> displacement =
        absl::MakeSpan(report.vectors).subspan(static_cast<size_t>(place) * dimension, dimension);
    double squared = 0;
    for (const T x : displacement) squared += static_cast<double>(x) * static_cast<double>(x);
    const double norm = std::sqrt(squared);
    if (!(norm > task.max_norm())) return absl::OkStatus();
    if (!task.clip()) {
      return absl::OutOfRangeError(absl::StrCat(
          "the norm of the displacement is ", norm, ", beyond the limit ", task.max_norm(),
          "; lower the step size, raise limits.max_norm, or set limits.norm_policy to CLIP"));
    }
    const double scale = task.max_norm() / norm;
    for (T& x : displacement) x = static_cast<T>(static_cast<double>(x) * scale);
    // What follows from the displacement is that of the one that is sent.
    context.sums.Derive<T>(report.weight, report.vectors, absl::MakeSpan(report.numbers));
    return absl::OkStatus();
  }
};

}  // namespace

template <typename T>
bool IsShort(const ClientReport<T>& report, const v1::Task& task, const TaskSums& sums) {
  const int place = sums.vector(kDisplacement);
  if (place == TaskSums::kNone) return true;
  const size_t dimension = sums.shape().dimension;
  const auto displacement = absl::MakeConstSpan(report.vectors)
                                .subspan(static_cast<size_t>(place) * dimension, dimension);
  return SquaredNorm<T>(displacement) < 0.99 * task.max_norm() * task.max_norm();
}
template bool IsShort<float>(const ClientReport<float>&, const v1::Task&, const TaskSums&);
template bool IsShort<double>(const ClientReport<double>&, const v1::Task&, const TaskSums&);

std::unique_ptr<ReportStep> MakeNormLimit() { return std::make_unique<NormLimit>(); }

std::vector<std::unique_ptr<ReportStep>> StepsFor(const v1::Task& task) {
  std::vector<std::unique_ptr<ReportStep>> steps;
  if (task.max_norm() > 0) steps.push_back(MakeNormLimit());
  if (task.encoding() != v1::EXACT) steps.push_back(MakeShortEncoding());
  return steps;
}

}  // namespace leeway
