#include "client/worker_sums.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/local_update.h"
#include "common/known_sums.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr char kAbove[] = "_above";
constexpr char kSmoothness[] = "smoothness";

// What counts are made from: the quantity of "smoothness_above" is "smoothness".
bool IsCount(absl::string_view name) {
  return absl::EndsWith(name, kAbove) && MetricName(name).empty();
}

// What the targets are is not asked of a worker, nor single scores, nor the accuracy at another
// model: the server does without.
bool IsOfTargets(absl::string_view name) {
  return name == kLabelAbove || name == kTarget || name == kSquaredTarget ||
         name == kTestLabelAbove || name == kPositiveScoreAbove || name == kNegativeScoreAbove ||
         name == kAccuracyDifferenceAbove;
}

// Made here, of the worker's gradient or Hessian.
bool IsOfTensors(absl::string_view name) {
  return name == kHessianDistanceAbove || name == kNewtonDecrement || name == kLargestGradient;
}

// Made here, of the worker's gradients at other models.
bool IsProduct(absl::string_view name) { return name == kHessianProduct || name == kHessianSpread; }

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
    } else if (IsProduct(sum.name())) {
      products_ = true;
    } else if (sum.name() == kSquaredHessianDistance) {
      AskFor(kHessian, 0, v1::MATRIX);
    } else {
      // A worker's gradient gets its sign here.
      AskFor(sum.name() == kSignedGradient ? kGradient : sum.name(), sum.steps(), sum.shape());
    }
  }
  // After the report's own vectors, so that those come first in the file.
  const auto asks = [this](const char* name) { return sums_.number(name) != TaskSums::kNone; };
  if (asks(kNewtonDecrement) || asks(kLargestGradient)) AskFor(kGradient, 0, v1::VECTOR);
  if (asks(kHessianDistanceAbove)) AskFor(kHessian, 0, v1::MATRIX);
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
  } else if (name == kLargestHessian) {
    AskFor(kSmoothness, 0, v1::NUMBER);  // no entry exceeds the largest eigenvalue
  } else if (!IsOfTensors(name)) {
    AskFor(IsCount(name) ? absl::StripSuffix(name, kAbove) : name, sum.steps(), v1::NUMBER);
  }
}

template <typename T>
const T* WorkerSums::Find(absl::string_view name, absl::Span<const T> values) const {
  size_t before = 0;
  for (const TensorSpec& tensor : tensors_) {
    if (tensor.name == name) return values.data() + before;
    before += tensor.size();
  }
  return nullptr;
}

template <typename T>
absl::StatusOr<WorkerSums::OfTensors> WorkerSums::Measure(absl::Span<const T> values) const {
  const auto n = static_cast<Eigen::Index>(dimension_);
  OfTensors out;
  if (const T* found = Find(kGradient, values)) {
    const Vector<double> gradient = Eigen::Map<const Vector<T>>(found, n).template cast<double>();
    out.largest_gradient_squared = std::pow(gradient.cwiseAbs().maxCoeff(), 2);
    if (sums_.number(kNewtonDecrement) != TaskSums::kNone) {
      LEEWAY_ASSIGN_OR_RETURN(out.newton_decrement, NewtonDecrement(task_, gradient));
    }
  }
  if (const T* found = Find(kHessian, values)) {
    const Eigen::MatrixXd own =
        Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>>(found, n, n)
            .template cast<double>();
    if (sums_.number(kHessianDistanceAbove) == TaskSums::kNone &&
        sums_.vector(kSquaredHessianDistance) == TaskSums::kNone) {
      return out;
    }
    if (task_.reference_hessian().size() != dimension_ * dimension_ * sizeof(double)) {
      return absl::InvalidArgumentError("task.reference_hessian has another size than the model");
    }
    Eigen::MatrixXd reference(n, n);
    std::memcpy(reference.data(), task_.reference_hessian().data(),
                task_.reference_hessian().size());
    out.difference = 0.5 * (own + own.transpose()) - reference;
    out.hessian_distance =
        Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(out.difference, Eigen::EigenvaluesOnly)
            .eigenvalues()
            .cwiseAbs()
            .maxCoeff();
  }
  return out;
}

absl::StatusOr<double> WorkerSums::ValueOf(const v1::Sum& sum, size_t place,
                                           const std::map<std::string, double>& numbers,
                                           uint64_t weight, const OfTensors& of_tensors) const {
  const absl::string_view name = sum.name();
  if (name == kEncodingError || name == kEncodingVariance || sums_.Follows(place)) return 0;
  if (IsOfTargets(name)) return 0;
  if (name == kLossDifference || name == kLossDifferenceAbove) {
    LEEWAY_ASSIGN_OR_RETURN(const double loss, NumberOf(numbers, kLoss));
    LEEWAY_ASSIGN_OR_RETURN(const double other, NumberOf(numbers, kOtherLoss));
    if (name == kLossDifference) return other - loss;
    return other - loss > sum.threshold() ? 1 / static_cast<double>(weight) : 0;
  }
  if (name == kNewtonDecrement) return static_cast<double>(weight) * of_tensors.newton_decrement;
  if (name == kLargestGradient) return of_tensors.largest_gradient_squared;
  if (name == kLargestHessian) {
    LEEWAY_ASSIGN_OR_RETURN(const double smoothness, NumberOf(numbers, kSmoothness));
    return smoothness * smoothness;
  }
  if (!IsCount(name)) {
    LEEWAY_ASSIGN_OR_RETURN(const double value,
                            NumberOf(numbers, AskedSum{sum.name(), sum.steps()}.key()));
    return name == kPseudoGradientVariance ? static_cast<double>(weight) * value : value;
  }
  double quantity = of_tensors.hessian_distance;
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
                                  double sign, ClientReport<T>& report) const {
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
  LEEWAY_ASSIGN_OR_RETURN(const OfTensors of_tensors, Measure<T>(report.vectors));
  report.vectors.resize(sums_.vectors() * dimension_);
  if (const int place = sums_.vector(kSignedGradient); place != TaskSums::kNone) {
    Eigen::Map<Vector<T>>(report.vectors.data() + static_cast<size_t>(place) * dimension_,
                          static_cast<Eigen::Index>(dimension_)) *= static_cast<T>(sign);
  }
  if (const int place = sums_.vector(kSquaredHessianDistance); place != TaskSums::kNone) {
    const auto n = static_cast<Eigen::Index>(dimension_);
    Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>>(
        report.vectors.data() + static_cast<size_t>(place) * dimension_, n, n) =
        (of_tensors.difference * of_tensors.difference).template cast<T>();
  }
  report.weight = weight;
  report.numbers.assign(sums_.numbers(), 0);
  size_t place = 0;
  for (const v1::Sum& sum : task_.sums()) {
    if (sum.shape() != v1::NUMBER) continue;
    LEEWAY_ASSIGN_OR_RETURN(report.numbers[place],
                            ValueOf(sum, place, numbers, weight, of_tensors));
    ++place;
  }
  sums_.Derive<T>(weight, report.vectors, absl::MakeSpan(report.numbers));
  return absl::OkStatus();
}
template absl::Status WorkerSums::Complete<float>(const std::map<std::string, double>&, uint64_t,
                                                  double, ClientReport<float>&) const;
template absl::Status WorkerSums::Complete<double>(const std::map<std::string, double>&, uint64_t,
                                                   double, ClientReport<double>&) const;

}  // namespace leeway
