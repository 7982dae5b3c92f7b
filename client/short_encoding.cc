// The step that writes a report's vectors in fewer bits.
#include <type_traits>

#include "client/report_step.h"
#include "common/encoding.h"
#include "common/rng.h"

namespace leeway {
namespace {

class ShortEncoding : public ReportStep {
 public:
  absl::Status Apply(const ReportContext& context, ClientReport<float>& report) const override {
    return Encode(context, report);
  }
  absl::Status Apply(const ReportContext& context, ClientReport<double>& report) const override {
    return Encode(context, report);
  }

 private:
  template <typename T>
  absl::Status Encode(const ReportContext& context, ClientReport<T>& report) const {
    const TaskSums& sums = context.sums;
    const size_t dimension = sums.shape().dimension;
    const v1::Encoding encoding = EncodingFor(context.task.encoding(), std::is_same_v<T, double>);
    const uint64_t drawn = context.task.batch_round();
    Rng rng(context.seed, drawn > 0 ? drawn : context.round, context.client, Purpose::kRounding);
    const std::vector<T> exact = report.vectors;
    report.encoded.clear();
    for (size_t k = 0; k < sums.vectors(); ++k) {
      report.encoded += EncodeShort(
          encoding, absl::MakeSpan(report.vectors).subspan(k * dimension, dimension), rng);
    }
    const auto squared_error = [&](int vector) {
      double squared = 0;
      for (size_t i = static_cast<size_t>(vector) * dimension, n = i + dimension; i < n; ++i) {
        const double error = static_cast<double>(report.vectors[i]) - static_cast<double>(exact[i]);
        squared += error * error;
      }
      return squared;
    };
    if (const int place = sums.number(kEncodingError); place != TaskSums::kNone) {
      report.numbers[static_cast<size_t>(place)] = squared_error(sums.vector(kDisplacement));
    }
    for (const uint32_t steps : sums.StepsOf(kDrift)) {
      const int place = sums.number(kEncodingVariance, steps);
      if (place == TaskSums::kNone) continue;
      report.numbers[static_cast<size_t>(place)] =
          static_cast<double>(report.weight) * squared_error(sums.vector(kDrift, steps));
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<ReportStep> MakeShortEncoding() { return std::make_unique<ShortEncoding>(); }

}  // namespace leeway
