// Every sum that a task can ask for: its name, what each client's value is, and between which
// bounds it lies. A new one is a name and a row here, each client's formula in
// client/local_update, the server's in server/measures, and a line in docs/wire-format.md.
#ifndef LEEWAY_COMMON_KNOWN_SUMS_H_
#define LEEWAY_COMMON_KNOWN_SUMS_H_

#include <cstddef>

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
// (H - R)^2 with the Hessian H of F_c at w and the task's reference Hessian R: a matrix.
inline constexpr char kSquaredHessianDistance[] = "squared_hessian_distance";
// H v with the vector v of the order's others.
inline constexpr char kHessianProduct[] = "hessian_product";
inline constexpr char kDirection[] = "direction";  // v
// H (H v - u), where u is the mean of H v over clients: the mean of it is that of
// (H - mean of H)^2 v.
inline constexpr char kHessianSpread[] = "hessian_spread";
inline constexpr char kMeanProduct[] = "mean_product";  // u
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

inline constexpr double kAnyNumber = NumberSum::kMostNumber;

// What the protocol knows of a sum by its name.
struct KnownSum {
  const char* name;
  v1::SumShape shape;
  double smallest;  // of numbers
  double largest;
  // Of numbers that follow from the rest of a report:
  const char* source = nullptr;  // "": the weight alone
  bool squared = false;
  bool weighted = false;
};

// Numbers that are measured along with a vector of the same steps, and which.
inline constexpr const char* kBesideVectors[][2] = {{kIterateBiasSquared, kDrift},
                                                    {kPseudoGradientVariance, kDrift},
                                                    {kEncodingVariance, kDrift},
                                                    {kEncodingError, kDisplacement}};

inline constexpr KnownSum kKnown[] = {
    {kDisplacement, v1::VECTOR, 0, 0},
    {kGradient, v1::VECTOR, 0, 0},
    {kDrift, v1::VECTOR, 0, 0},
    {kControlChange, v1::VECTOR, 0, 0},
    {kSignedGradient, v1::VECTOR, 0, 0},
    {kHessian, v1::MATRIX, 0, 0},
    {kSquaredHessianDistance, v1::MATRIX, 0, 0},
    {kHessianProduct, v1::VECTOR, 0, 0},
    {kHessianSpread, v1::VECTOR, 0, 0},
    {kLoss, v1::NUMBER, -kAnyNumber, kAnyNumber},
    {kIterateBiasSquared, v1::NUMBER, -kAnyNumber,
     kAnyNumber},  // an unbiased estimate may be negative
    {kPseudoGradientVariance, v1::NUMBER, 0, kAnyNumber},
    {kTestExamples, v1::NUMBER, 0, 0x1p53},
    {kTestLoss, v1::NUMBER, -kAnyNumber, kAnyNumber},
    {kTestCorrect, v1::NUMBER, 0, 0x1p53},
    {kTestLabelAbove, v1::NUMBER, 0, 0x1p53},
    {kPositiveScoreAbove, v1::NUMBER, 0, 0x1p53},
    {kNegativeScoreAbove, v1::NUMBER, 0, 0x1p53},
    {kEncodingError, v1::NUMBER, 0, kAnyNumber},
    {kEncodingVariance, v1::NUMBER, 0, kAnyNumber},
    {kSmoothnessAbove, v1::NUMBER, 0, 1},
    {kConvexityAbove, v1::NUMBER, 0, 1},
    {kHessianDistanceAbove, v1::NUMBER, 0, 1},
    {kAccuracyAbove, v1::NUMBER, 0, 1},
    {kTestLossAbove, v1::NUMBER, 0, 1},
    {kTestDifference, v1::NUMBER, -kAnyNumber, kAnyNumber},
    {kTestDifferenceAbove, v1::NUMBER, 0, 1},
    {kLocalSteps, v1::NUMBER, 0, 0x1p53},
    {kLossDifference, v1::NUMBER, -kAnyNumber, kAnyNumber},
    {kLossDifferenceAbove, v1::NUMBER, 0, 1},
    {kAccuracyDifferenceAbove, v1::NUMBER, 0, 1},
    {kNewtonDecrement, v1::NUMBER, 0, kAnyNumber},
    {kLargestGradient, v1::NUMBER, 0, kAnyNumber},
    {kLargestHessian, v1::NUMBER, 0, kAnyNumber},
    {kTarget, v1::NUMBER, -kAnyNumber, kAnyNumber},
    {kSquaredTarget, v1::NUMBER, 0, kAnyNumber},
    {kLabelAbove, v1::NUMBER, 0, 1},
    {kLossSquared, v1::NUMBER, 0, kAnyNumber, kLoss, true},
    {kWeight, v1::NUMBER, 0, kAnyNumber, "", false, true},
    {kWeightedLoss, v1::NUMBER, -kAnyNumber, kAnyNumber, kLoss, false, true},
    {kWeightedLossSquared, v1::NUMBER, 0, kAnyNumber, kLoss, true, true},
    {kLossDifferenceSquared, v1::NUMBER, 0, kAnyNumber, kLossDifference, true},
    {kTestDifferenceSquared, v1::NUMBER, 0, kAnyNumber, kTestDifference, true},
    {kWeightedLossDifference, v1::NUMBER, -kAnyNumber, kAnyNumber, kLossDifference, false, true},
    {kWeightedLossDifferenceSquared, v1::NUMBER, 0, kAnyNumber, kLossDifference, true, true},
    {kNewtonDecrementSquared, v1::NUMBER, 0, kAnyNumber, kNewtonDecrement, true, true},
    {kGradientSquared, v1::NUMBER, 0, kAnyNumber, kGradient, true},
    {kDriftSquared, v1::NUMBER, 0, kAnyNumber, kDrift, true},
    {kWeightedDriftSquared, v1::NUMBER, 0, kAnyNumber, kDrift, true, true},
    {kDisplacementSquared, v1::NUMBER, 0, kAnyNumber, kDisplacement, true},
    {kDisplacementAbove, v1::NUMBER, 0, 1, kDisplacement},
};

inline constexpr KnownSum kKnownMetric = {kMetric, v1::NUMBER, -kAnyNumber, kAnyNumber};
inline constexpr int kMostMetrics = 64;
inline constexpr size_t kLongestMetric = 64;

}  // namespace leeway

#endif  // LEEWAY_COMMON_KNOWN_SUMS_H_
