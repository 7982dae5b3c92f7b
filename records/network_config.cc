#include "records/network_config.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace leeway {
namespace {

// The fields that a network cannot have, by what to do about them.
struct Problems {
  std::string first;  // in the order of the config
  std::vector<std::string> leave_out;
  std::vector<std::string> at_optimum;
  std::vector<std::string> without_step_size;

  void Add(std::vector<std::string>& list, const std::string& field) {
    if (first.empty()) first = field;
    list.push_back(field);
  }
};

// Of a probe or a release test.
template <typename Measurement>
void AddProbe(const std::string& field, const Measurement& probe, Problems& problems) {
  if (probe.point() == v1::Probe::OPTIMUM) problems.Add(problems.at_optimum, field + ".point");
  if (probe.step_size() == 0) problems.Add(problems.without_step_size, field + ".step_size");
}

void AddTrain(const std::string& field, const v1::Train& train, Problems& problems) {
  if (train.start() == v1::Probe::OPTIMUM) problems.Add(problems.at_optimum, field + ".start");
  if (train.local().step_size() == 0) {
    problems.Add(problems.without_step_size, field + ".local.step_size");
  }
  if (train.has_probe()) AddProbe(field + ".probe", train.probe(), problems);
  if (train.has_release()) AddProbe(field + ".release", train.release(), problems);
}

void AddPhase(const std::string& field, const v1::Phase& phase, Problems& problems) {
  switch (phase.kind_case()) {
    case v1::Phase::kOptimum:
      return problems.Add(problems.leave_out, field + ".optimum");
    case v1::Phase::kConstants:
      if (phase.constants().point() == v1::Probe::OPTIMUM) {
        problems.Add(problems.at_optimum, field + ".constants.point");
      }
      return;
    case v1::Phase::kFixedPoint:
      return problems.Add(problems.leave_out, field + ".fixed_point");
    case v1::Phase::kProbe:
      return AddProbe(field + ".probe", phase.probe(), problems);
    case v1::Phase::kRelease:
      return AddProbe(field + ".release", phase.release(), problems);
    case v1::Phase::kTrain:
      return AddTrain(field + ".train", phase.train(), problems);
    case v1::Phase::kEvaluate:
      if (phase.evaluate().point() == v1::Probe::OPTIMUM) {
        problems.Add(problems.at_optimum, field + ".evaluate.point");
      }
      return;
    default:
      return;
  }
}

}  // namespace

bool IsNetwork(const v1::Model& model) {
  return model.has_mlp() || model.has_cnn() || model.has_lstm();
}

std::string ModelName(const v1::Model& model) {
  const auto* field = v1::Model::descriptor()->FindFieldByNumber(model.kind_case());
  return field == nullptr ? "" : field->name();
}

absl::Status CheckNetworkPhases(const v1::RunConfig& config) {
  if (!IsNetwork(config.model())) return absl::OkStatus();
  Problems problems;
  for (int i = 0; i < config.phases_size(); ++i) {
    AddPhase(absl::StrCat("phases[", i, "]"), config.phases(i), problems);
  }
  if (problems.first.empty()) return absl::OkStatus();
  std::vector<std::string> remedies;
  if (!problems.leave_out.empty()) {
    remedies.push_back(absl::StrCat("leave out ", absl::StrJoin(problems.leave_out, ", ")));
  }
  if (!problems.at_optimum.empty()) {
    remedies.push_back(
        absl::StrCat("use CURRENT or INITIAL for ", absl::StrJoin(problems.at_optimum, ", ")));
  }
  if (!problems.without_step_size.empty()) {
    remedies.push_back(absl::StrCat("give a number, such as 0.1, for ",
                                    absl::StrJoin(problems.without_step_size, ", ")));
  }
  const std::string name = ModelName(config.model());
  return absl::InvalidArgumentError(absl::StrCat(problems.first, " does not go with model.", name,
                                                 ", a network, whose loss is not convex: it has no "
                                                 "w* to search for, and no L and mu of clients "
                                                 "that `auto` step sizes come from; ",
                                                 absl::StrJoin(remedies, "; "),
                                                 " (`leeway init --model ", name,
                                                 "` writes a config that fits)"));
}

}  // namespace leeway
