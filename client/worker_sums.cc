#include "client/worker_sums.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr char kAbove[] = "_above";

// What counts are made from: the quantity of "smoothness_above" is "smoothness".
bool IsCount(absl::string_view name) {
  return absl::EndsWith(name, kAbove) && MetricName(name).empty();
}

// What the targets are is not asked of a worker, nor single scores: the server does without.
bool IsOfTargets(absl::string_view name) {
  return name == kLabelAbove || name == kTarget || name == kSquaredTarget ||
         name == kTestLabelAbove || name == kPositiveScoreAbove || name == kNegativeScoreAbove;
}

bool IsTest(absl::string_view name) {
  return name == kTestExamples || name == kTestLoss || name == kTestCorrect ||
         name == kAccuracyAbove || name == kTestLossAbove || name == kTestLabelAbove ||
         name == kPositiveScoreAbove || name == kNegativeScoreAbove;
}

absl::StatusOr<double> NumberOf(const std::map<std::string, double>& numbers,
                                const std::string& key) {
  const auto found = numbers.find(key);
  if (found == numbers.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the worker's answer has no number '", key, "'"));
  }
  if (!std::isfinite(found->second)) {
    return absl::InvalidArgumentError(absl::StrCat("the worker's '", key, "' is not finite"));
  }
  return found->second;
}

}  // namespace

WorkerSums::WorkerSums(const v1::Task& task, size_t dimension)
    : task_(task), dimension_(dimension), sums_(task, dimension) {
  size_t place = 0;  // among the numbers
  for (const v1::Sum& sum : task.sums()) {
    only_tests_ = only_tests_ && IsTest(sum.name());
    if (sum.shape() == v1::NUMBER) {
      AskForNumber(sum, place++);
    } else {
      AskFor(sum.name(), sum.steps(), sum.shape());
    }
  }
  // After the report's own vectors, so that those come first in the file.
  if (sums_.number(kHessianDistanceAbove) != TaskSums::kNone) AskFor(kHessian, 0, v1::MATRIX);
  for (const AskedSum& sum : asked_) {
    if (sum.shape == v1::VECTOR) tensors_.push_back({sum.key(), {dimension}});
    if (sum.shape == v1::MATRIX) tensors_.push_back({sum.key(), {dimension, dimension}});
  }
}

void WorkerSums::AskFor(absl::string_view name, uint32_t steps, v1::SumShape shape) {
  for (const AskedSum& sum : asked_) {
    if (sum.name == name && sum.steps == steps) return;
  }
  asked_.push_back({std::string(name), steps, shape});
}

void WorkerSums::AskForNumber(const v1::Sum& sum, size_t place) {
  const absl::string_view name = sum.name();
  // Filled in by the step that encodes, or below.
  if (name == kEncodingError || name == kEncodingVariance || sums_.Follows(place)) return;
  if (IsOfTargets(name)) return;
  if (name == kLossDifference || name == kLossDifferenceAbove) {
    AskFor(kLoss, 0, v1::NUMBER);
  } else if (name == kAccuracyAbove || name == kTestLossAbove) {
    for (const char* test : {kTestExamples, kTestLoss, kTestCorrect}) AskFor(test, 0, v1::NUMBER);
  } else if (name != kHessianDistanceAbove) {
    AskFor(IsCount(name) ? absl::StripSuffix(name, kAbove) : name, sum.steps(), v1::NUMBER);
  }
}

template <typename T>
absl::StatusOr<double> WorkerSums::HessianDistance(absl::Span<const T> values) const {
  if (sums_.number(kHessianDistanceAbove) == TaskSums::kNone) return 0;
  const auto n = static_cast<Eigen::Index>(dimension_);
  if (task_.reference_hessian().size() != dimension_ * dimension_ * sizeof(double)) {
    return absl::InvalidArgumentError("task.reference_hessian has another size than the model");
  }
  Eigen::MatrixXd reference(n, n);
  std::memcpy(reference.data(), task_.reference_hessian().data(), task_.reference_hessian().size());
  size_t before = 0;
  for (const TensorSpec& tensor : tensors_) {
    if (tensor.name == kHessian) break;
    before += tensor.size();
  }
  const Eigen::MatrixXd own = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>>(
                                  values.data() + before, n, n)
                                  .template cast<double>();
  const Eigen::MatrixXd difference = 0.5 * (own + own.transpose()) - reference;
  return Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(difference, Eigen::EigenvaluesOnly)
      .eigenvalues()
      .cwiseAbs()
      .maxCoeff();
}

absl::StatusOr<double> WorkerSums::ValueOf(const v1::Sum& sum, size_t place,
                                           const std::map<std::string, double>& numbers,
                                           uint64_t weight, double hessian_distance) const {
  const absl::string_view name = sum.name();
  if (name == kEncodingError || name == kEncodingVariance || sums_.Follows(place)) return 0;
  if (IsOfTargets(name)) return 0;
  if (name == kLossDifference || name == kLossDifferenceAbove) {
    LEEWAY_ASSIGN_OR_RETURN(const double loss, NumberOf(numbers, kLoss));
    LEEWAY_ASSIGN_OR_RETURN(const double other, NumberOf(numbers, kOtherLoss));
    if (name == kLossDifference) return other - loss;
    return other - loss > sum.threshold() ? 1 / static_cast<double>(weight) : 0;
  }
  if (!IsCount(name)) {
    LEEWAY_ASSIGN_OR_RETURN(const double value,
                            NumberOf(numbers, AskedSum{sum.name(), sum.steps()}.key()));
    return name == kPseudoGradientVariance ? static_cast<double>(weight) * value : value;
  }
  double quantity = hessian_distance;
  if (name == kAccuracyAbove || name == kTestLossAbove) {
    LEEWAY_ASSIGN_OR_RETURN(const double examples, NumberOf(numbers, kTestExamples));
    LEEWAY_ASSIGN_OR_RETURN(const double total,
                            NumberOf(numbers, name == kAccuracyAbove ? kTestCorrect : kTestLoss));
    if (examples == 0) return 0;  // no test part: above no threshold
    quantity = total / examples;
  } else if (name != kHessianDistanceAbove) {
    LEEWAY_ASSIGN_OR_RETURN(quantity,
                            NumberOf(numbers, std::string(absl::StripSuffix(name, kAbove))));
  }
  return quantity > sum.threshold() ? 1 : 0;
}

template <typename T>
absl::Status WorkerSums::Complete(const std::map<std::string, double>& numbers, uint64_t weight,
                                  ClientReport<T>& report) const {
  size_t begin = 0;
  for (const TensorSpec& tensor : tensors_) {
    const auto first = report.vectors.begin() + static_cast<std::ptrdiff_t>(begin);
    const Eigen::Map<const Vector<T>> values(&*first, static_cast<Eigen::Index>(tensor.size()));
    if ((values - values).sum() != 0) {  // a value less itself is 0 if it is finite
      return absl::InvalidArgumentError(absl::StrCat("the worker's '", tensor.name,
                                                     "' has a value that is not finite; lower "
                                                     "step_size, or scale the data"));
    }
    begin += tensor.size();
  }
  LEEWAY_ASSIGN_OR_RETURN(const double distance, HessianDistance<T>(report.vectors));
  report.vectors.resize(sums_.vectors() * dimension_);
  report.weight = weight;
  report.numbers.assign(sums_.numbers(), 0);
  size_t place = 0;
  for (const v1::Sum& sum : task_.sums()) {
    if (sum.shape() != v1::NUMBER) continue;
    LEEWAY_ASSIGN_OR_RETURN(report.numbers[place], ValueOf(sum, place, numbers, weight, distance));
    ++place;
  }
  sums_.Derive<T>(weight, report.vectors, absl::MakeSpan(report.numbers));
  return absl::OkStatus();
}
template absl::Status WorkerSums::Complete<float>(const std::map<std::string, double>&, uint64_t,
                                                  ClientReport<float>&) const;
template absl::Status WorkerSums::Complete<double>(const std::map<std::string, double>&, uint64_t,
                                                   ClientReport<double>&) const;

}  // namespace leeway
