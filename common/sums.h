// The sums that a task asks for, by name: what each is made of, where it stands in
// reports and tallies, and which numbers follow from the rest of a report. Client and
// server read a task through TaskSums; docs/wire-format.md is the same in words.
#ifndef LEEWAY_COMMON_SUMS_H_
#define LEEWAY_COMMON_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tally.h"
#include "proto/federation.pb.h"

namespace leeway {

// Vectors in the shape of the model, of a client whose local loss is F_c.
inline constexpr char kDisplacement[] = "displacement";  // w - w^(h)
inline constexpr char kGradient[] = "gradient";          // grad F_c(w)
inline constexpr char kDrift[] = "drift";  // B_c^h = grad F_c(w) - (w - w^(h))/(eta h)
// SCAFFOLD: by how much the client's control variate changes.
inline constexpr char kControlChange[] = "control_change";
inline constexpr char kHessian[] = "hessian";  // of F_c at w: a matrix
// The gradient times +1 or -1, drawn by the client: the sum's mean square is the variance of a
// sum over clients.
inline constexpr char kSignedGradient[] = "signed_gradient";

// Numbers.
inline constexpr char kLoss[] = "loss";  // F_c(w)
inline constexpr char kIterateBiasSquared[] = "iterate_bias_squared";
// Times the client's weight, so that it is summed with the weight squared.
inline constexpr char kPseudoGradientVariance[] = "pseudo_gradient_variance";
inline constexpr char kTestExamples[] = "test_examples";
inline constexpr char kTestLoss[] = "test_loss";  // summed over test examples
inline constexpr char kTestCorrect[] = "test_correct";
// The number of test examples whose label is above the sum's threshold.
inline constexpr char kTestLabelAbove[] = "test_label_above";
// With two classes: the number of test examples of class 1 (class 0) whose score, the logit of
// class 1 less that of class 0, is above the threshold.
inline constexpr char kPositiveScoreAbove[] = "positive_score_above";
inline constexpr char kNegativeScoreAbove[] = "negative_score_above";
inline constexpr char kEncodingError[] = "encoding_error";  // |decoded - exact displacement|^2
inline constexpr char kEncodingVariance[] =
    "encoding_variance";  // weight * |decoded - exact drift|^2
// F_c(w') - F_c(w), where w' is the model of this name in the order's others.
inline constexpr char kLossDifference[] = "loss_difference";
inline constexpr char kOtherModel[] = "other";
// Not a model, but in its shape: 1 where fine-tuning moves a parameter, 0 where it does not.
inline constexpr char kMovedParameters[] = "moved";
// Mean loss on the test part (on the training part without one) at the model, after the task's
// local steps if it has any, less that at the other model.
inline constexpr char kTestDifference[] = "test_difference";
// Local steps that the client has taken.
inline constexpr char kLocalSteps[] = "local_steps";
// Times the client's weight: g.(P g) with the gradient g and the task's inverse Hessian P.
inline constexpr char kNewtonDecrement[] = "newton_decrement";
// The square of the largest |coordinate| of the gradient, and |entry| of the Hessian.
inline constexpr char kLargestGradient[] = "largest_gradient_squared";
inline constexpr char kLargestHessian[] = "largest_hessian_squared";
// Of the training targets: the mean, and the mean of their squares.
inline constexpr char kTarget[] = "target";
inline constexpr char kSquaredTarget[] = "squared_target";
// The share of the client's training labels above the sum's threshold.
inline constexpr char kLabelAbove[] = "label_above";
// 1 if the client's quantity is above the sum's threshold, else 0: by such counts the
// server finds extremes and percentiles over clients.
inline constexpr char kSmoothnessAbove[] = "smoothness_above";
inline constexpr char kConvexityAbove[] = "convexity_above";
inline constexpr char kHessianDistanceAbove[] = "hessian_distance_above";
inline constexpr char kAccuracyAbove[] = "accuracy_above";
inline constexpr char kTestLossAbove[] = "test_loss_above";
inline constexpr char kTestDifferenceAbove[] = "test_difference_above";
// Over the client's weight, so that clients are counted.
inline constexpr char kLossDifferenceAbove[] = "loss_difference_above";
// The same of the accuracy on the test part: at the other model, less that at the model.
inline constexpr char kAccuracyDifferenceAbove[] = "accuracy_difference_above";

// "metric/NAME": a number that only the client's own model knows how to compute.
inline constexpr char kMetric[] = "metric/";

// Numbers that follow from the weight, a number or a vector of the same report.
inline constexpr char kLossSquared[] = "loss_squared";
inline constexpr char kWeight[] = "weight";
inline constexpr char kWeightedLoss[] = "weighted_loss";
inline constexpr char kWeightedLossSquared[] = "weighted_loss_squared";
inline constexpr char kLossDifferenceSquared[] = "loss_difference_squared";
inline constexpr char kTestDifferenceSquared[] = "test_difference_squared";
inline constexpr char kWeightedLossDifference[] = "weighted_loss_difference";
inline constexpr char kWeightedLossDifferenceSquared[] = "weighted_loss_difference_squared";
inline constexpr char kNewtonDecrementSquared[] = "newton_decrement_squared";
inline constexpr char kGradientSquared[] = "gradient_squared";
inline constexpr char kDriftSquared[] = "drift_squared";
inline constexpr char kWeightedDriftSquared[] = "weighted_drift_squared";
inline constexpr char kDisplacementSquared[] = "displacement_squared";
// A count, over the client's weight: 1/v if |displacement| is above the threshold.
inline constexpr char kDisplacementAbove[] = "displacement_above";

// Adds a sum to a task, unless the task asks for it already, and returns it.
v1::Sum& Ask(absl::string_view name, v1::Task& task, uint32_t steps = 0);
// Adds a count of clients above `threshold`.
void AskAbove(absl::string_view name, double threshold, v1::Task& task);
// Does the task ask for it, after whatever number of steps?
bool Asks(const v1::Task& task, absl::string_view name);
// NAME of "metric/NAME"; empty if the sum is another.
absl::string_view MetricName(absl::string_view sum);
// Can these be the metrics of a task? The message completes "the list of metrics ...".
absl::Status CheckMetricNames(absl::Span<const std::string* const> names);
// Sets the unit of every vector to the finest with which the sum of clients of this
// weight cannot overflow.
void SetUnits(uint64_t total_weight, v1::Task& task);
// Every name is known, has its shape and comes with the sums that it needs; every unit is a
// power of two. A client that answers such a task leaves no sum out.
absl::Status CheckSums(const v1::Task& task);

// |x|^2 in float64. The same bits on every machine: the order of the additions is fixed.
template <typename T>
double SquaredNorm(absl::Span<const T> x);

// A task's sums. Constant after construction.
class TaskSums {
 public:
  static constexpr int kNone = -1;

  TaskSums() = default;
  // `dimension` is the number of the model's parameters.
  TaskSums(const v1::Task& task, size_t dimension);

  // Place of a sum among the numbers or the vectors of a report and of a tally; kNone
  // where the task does not ask for it. Of a matrix, and of counts, the first place.
  int number(absl::string_view name, uint32_t steps = 0) const;
  int vector(absl::string_view name, uint32_t steps = 0) const;
  // The steps at which the task asks for this vector, in its order.
  std::vector<uint32_t> StepsOf(absl::string_view name) const;

  const TallyShape& shape() const { return shape_; }
  size_t numbers() const { return shape_.numbers.size(); }
  size_t vectors() const { return shape_.vectors.size(); }

  // Fills in those of all numbers that follow from the rest of the report. With
  // `decoded`, the vectors have been through a short encoding: what follows from
  // vectors was sent and stays.
  template <typename T>
  void Derive(uint64_t weight, absl::Span<const T> vectors, absl::Span<double> numbers,
              bool decoded = false) const;
  // Is this number one of those that Derive fills in?
  bool Follows(size_t number) const;
  // Does its sum count clients, whatever they weigh? Then it is at most 1/v of one of them.
  bool CountsClients(size_t number) const;
  // The numbers of a report that are sent: all but those that Derive fills in.
  size_t sent_numbers() const;
  std::vector<double> Sent(absl::Span<const double> numbers) const;
  // All numbers, from those that were sent; the others are 0 until Derive.
  std::vector<double> Spread(absl::Span<const double> sent) const;

 private:
  struct Place {
    std::string name;
    uint32_t steps = 0;
    int at = 0;
  };
  // number = (source or 1), squared if so, times the weight if so. Of a count: 1 over the weight
  // if the norm of its source is above the threshold, else 0.
  struct Derived {
    size_t at = 0;
    bool from_vector = false;
    int source = kNone;
    bool squared = false;
    bool weighted = false;
    bool count = false;
    double threshold = 0;
  };

  static int Find(const std::vector<Place>& places, absl::string_view name, uint32_t steps);
  bool IsSent(size_t number) const { return sent_[number]; }

  TallyShape shape_;
  std::vector<Place> numbers_;
  std::vector<Place> vectors_;
  std::vector<Derived> derived_;
  std::vector<bool> sent_;  // of each number
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_SUMS_H_
