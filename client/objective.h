// Objective: the loss of one client on its own data, as a function of the model.
// The only code that sees data. Immutable data, but Evaluate may use scratch
// space of the object: one thread at a time per objective.
#ifndef LEEWAY_CLIENT_OBJECTIVE_H_
#define LEEWAY_CLIENT_OBJECTIVE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/dataset.h"
#include "common/vectors.h"
#include "proto/run.pb.h"

namespace leeway {

struct TestResult {
  uint64_t examples = 0;
  double loss_sum = 0;
  uint64_t correct = 0;
  std::vector<uint64_t> labels = {};  // examples of each class; empty for regression
  // With two classes, of the examples of each: the logit of class 1 less that of class 0.
  std::vector<double> scores[2] = {};
};

// What the training targets are, for the loss of the best constant answer.
struct TargetSummary {
  double mean = 0;
  double mean_square = 0;
  std::vector<double> shares;  // of each class; empty for regression
};

template <typename T>
class Objective {
 public:
  virtual ~Objective() = default;
  virtual uint64_t examples() const = 0;
  // Mean loss over `rows` (all training rows if empty) at w, and its gradient.
  virtual double Evaluate(ConstVectorRef<T> w, absl::Span<const uint32_t> rows,
                          VectorRef<T> gradient) = 0;
  // Mean loss over all training rows at w alone, where that is cheaper than
  // Evaluate; `scratch` has the size of w.
  virtual double Loss(ConstVectorRef<T> w, VectorRef<T> scratch) {
    return Evaluate(w, {}, scratch);
  }
  // The full-batch gradient alone, where that is cheaper than Evaluate.
  virtual void FullGradient(ConstVectorRef<T> w, VectorRef<T> gradient) {
    Evaluate(w, {}, gradient);
  }
  // The same in double precision, for differences of gradients.
  virtual void FullGradientInDouble(const Vector<double>& w, Vector<double>& gradient) {
    Vector<T> own(w.size());
    FullGradient(w.template cast<T>(), own);
    gradient = own.template cast<double>();
  }
  // Step of the central differences that Hessians are taken by; an affine gradient
  // allows 1, which leaves nothing but rounding.
  virtual double DifferenceStep() const { return 1e-4; }
  // Where the Hessian depends on the model: an upper bound of its eigenvalues at every
  // model. Nothing where it does not.
  virtual std::optional<double> SmoothnessEverywhere() { return std::nullopt; }
  // The smallest eigenvalue of the Hessian, where it is known to be the same at every model.
  virtual std::optional<double> ConvexityEverywhere() const { return std::nullopt; }
  // Loss (summed) and correct answers on the test part; for regression, correct
  // is 0. Without a test part, examples is 0.
  virtual TestResult Test(ConstVectorRef<T> w) = 0;
  virtual TargetSummary Targets() { return {}; }
  // Bytes that it holds for its next call, as far as they grow with the data or the model.
  virtual size_t held_bytes() const { return 0; }
  // Lets go of what can be made again.
  virtual void Release() {}
};

using AnyObjective =
    std::variant<std::unique_ptr<Objective<float>>, std::unique_ptr<Objective<double>>>;

// Builds the objective of a model on a client's data. Errors name the client and
// what does not fit (labels out of range, wrong feature shape, ...).
absl::StatusOr<AnyObjective> MakeObjective(const v1::Model& model, const Dataset& data);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_OBJECTIVE_H_
