#include "records/evaluate_config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace leeway {
namespace {

absl::Status Bad(const std::string& field, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, " ", problem));
}

}  // namespace

absl::Status CheckEvaluate(const std::string& field, const v1::Evaluate& evaluate, bool optimum) {
  if (evaluate.point() == v1::Probe::OPTIMUM && !optimum) {
    return Bad(field + ".point", "is OPTIMUM, but no optimum phase comes before it");
  }
  for (const double percent : evaluate.percentiles()) {
    if (percent >= 0 && percent <= 100) continue;
    return Bad(field + ".percentiles",
               absl::StrCat("has ", percent, "; give numbers from 0 to 100"));
  }
  if (!evaluate.has_fine_tune()) {
    if (evaluate.fine_tune_tensors().empty()) return absl::OkStatus();
    return Bad(field + ".fine_tune_tensors",
               "is given without fine_tune; say how to move them, for instance "
               "`fine_tune { step_size: 0.1 steps: 10 }`");
  }
  const v1::LocalRule& rule = evaluate.fine_tune();
  if (!(rule.step_size() > 0) || !std::isfinite(rule.step_size())) {
    return Bad(field + ".fine_tune.step_size",
               absl::StrCat("is ", rule.step_size(), "; give a positive number"));
  }
  if ((rule.steps() > 0) + (rule.epochs() > 0) != 1 || rule.has_auto_steps()) {
    return Bad(field + ".fine_tune", "needs exactly one of steps and epochs");
  }
  if (rule.has_fedprox() && !(rule.fedprox().mu() > 0 && std::isfinite(rule.fedprox().mu()))) {
    return Bad(field + ".fine_tune.fedprox.mu",
               absl::StrCat("is ", rule.fedprox().mu(), "; give a positive number, such as 0.1"));
  }
  if (rule.has_fedprox() || rule.algorithm_case() == v1::LocalRule::ALGORITHM_NOT_SET) {
    return absl::OkStatus();
  }
  return Bad(field + ".fine_tune",
             "is plain (stochastic) gradient descent, or Ditto with fedprox { mu: ... }; leave "
             "other algorithms out");
}

absl::Status CheckFineTune(const std::string& field, const v1::Evaluate& evaluate,
                           const v1::Model& model) {
  if (!model.has_file()) return absl::OkStatus();
  if (evaluate.fine_tune().has_fedprox()) {
    return Bad(field + ".fine_tune.fedprox",
               "is for the models that Leeway contains; leave it out");
  }
  if (evaluate.fine_tune_tensors().empty()) return absl::OkStatus();
  return Bad(field + ".fine_tune_tensors", "is for the models that Leeway contains; leave it out");
}

absl::Status CheckFineTuneTensors(const v1::RunConfig& config, const ModelLayout& layout) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : layout.tensors) names.push_back(tensor.name);
  for (int i = 0; i < config.phases_size(); ++i) {
    for (const std::string& name : config.phases(i).evaluate().fine_tune_tensors()) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      return Bad(absl::StrCat("phases[", i, "].evaluate.fine_tune_tensors"),
                 absl::StrCat("has '", name, "', which is no tensor of the model; it has ",
                              absl::StrJoin(names, ", ")));
    }
  }
  return absl::OkStatus();
}

}  // namespace leeway
