// The convex objectives, in float64: the models of the paper's theory. Their
// data is copied to double once; afterwards a call allocates nothing.
#ifndef LEEWAY_CLIENT_CONVEX_MODELS_H_
#define LEEWAY_CLIENT_CONVEX_MODELS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/dataset.h"
#include "client/objective.h"
#include "proto/run.pb.h"

namespace leeway {

// Mean of 1/2 (y - w.x - b)^2, plus l2/2 (|w|^2 + b^2); b = 0 without an intercept.
// Parameters: w, then b if there is one. Full-batch gradients come from the Gram matrix
// where that takes less work than two passes over the data.
absl::StatusOr<std::unique_ptr<Objective<double>>> MakeLinearRegression(
    const v1::LinearRegression& model, const Dataset& data);

// Mean cross-entropy of softmax(W x + b), plus l2/2 of all parameters squared.
// Parameters: W row by row [classes, features], then b. Fails with
// InvalidArgument, naming the row, if a label is not one of 0 .. classes-1.
absl::StatusOr<std::unique_ptr<Objective<double>>> MakeSoftmaxRegression(
    const v1::SoftmaxRegression& model, const Dataset& data);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_CONVEX_MODELS_H_
