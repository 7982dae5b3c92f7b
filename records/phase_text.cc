// What a run is asked to do, and where it stands, in words.
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/plural.h"
#include "records/show.h"

namespace leeway {
namespace {

std::string LocalWork(const v1::LocalRule& rule) {
  std::string text = rule.has_auto_steps() ? absl::StrCat("1 to ", rule.auto_steps().largest(),
                                                          " local steps, chosen")
                     : rule.steps() > 0    ? Counted(rule.steps(), "local step")
                                           : Counted(rule.epochs(), "local epoch");
  if (rule.step_size() > 0) {
    absl::StrAppend(&text, ", step size ", rule.step_size());
  } else {
    text += ", automatic step size";
  }
  if (rule.batch_size() > 0) absl::StrAppend(&text, ", batches of ", rule.batch_size());
  return text;
}

std::string MeasuresText(const v1::Train& train) {
  std::string text;
  if (train.has_probe()) {
    absl::StrAppend(&text, ", probing after ", absl::StrJoin(train.probe_at(), ", "),
                    " rounds for H = ", absl::StrJoin(train.probe().steps(), ", "));
  }
  if (train.has_release()) {
    absl::StrAppend(&text, ", testing release after ", absl::StrJoin(train.release_at(), ", "),
                    " rounds for H = ", absl::StrJoin(train.release().steps(), ", "));
  }
  if (train.evaluate_every() > 0) {
    absl::StrAppend(&text, ", evaluating every ", Counted(train.evaluate_every(), "round"));
  }
  return text;
}

std::string FineTuneText(const v1::Evaluate& evaluate) {
  if (!evaluate.has_fine_tune()) return "";
  const auto& tensors = evaluate.fine_tune_tensors();
  return absl::StrCat(
      ", fine-tuned by each client",
      tensors.empty() ? "" : absl::StrCat(" (", absl::StrJoin(tensors, ", "), ")"),
      evaluate.fine_tune().has_fedprox() ? ", pulled to the common model (Ditto)" : "");
}

}  // namespace

std::string ModelKind(const v1::Model& model) {
  const auto* field = model.GetReflection()->GetOneofFieldDescriptor(
      model, v1::Model::descriptor()->FindOneofByName("kind"));
  return field == nullptr ? "no model" : absl::StrReplaceAll(field->name(), {{"_", " "}});
}

std::string PhaseText(const v1::Phase& phase) {
  switch (phase.kind_case()) {
    case v1::Phase::kOptimum:
      return "find the optimum w*";
    case v1::Phase::kProbe:
      return absl::StrCat("probe the drift at ", PointName(phase.probe().point()),
                          phase.probe().clients() > 0
                              ? absl::StrCat(" with ", Counted(phase.probe().clients(), "client"))
                              : "",
                          phase.probe().batch_size() > 0
                              ? absl::StrCat(" in batches of ", phase.probe().batch_size())
                              : "",
                          " for H = ", absl::StrJoin(phase.probe().steps(), ", "));
    case v1::Phase::kTrain:
      return absl::StrCat("train ", Counted(phase.train().rounds(), "round"), " of FedAvg (",
                          LocalWork(phase.train().local()), ")", MeasuresText(phase.train()));
    case v1::Phase::kEvaluate:
      return absl::StrCat("evaluate ", PointName(phase.evaluate().point()),
                          FineTuneText(phase.evaluate()));
    case v1::Phase::kConstants:
      return "measure L, μ and the Hessian dissimilarity";
    case v1::Phase::kFixedPoint:
      return absl::StrCat(
          "find where FedAvg settles for H = ", absl::StrJoin(phase.fixed_point().steps(), ", "),
          phase.fixed_point().after_rounds() > 0
              ? absl::StrCat(", and its loss after ",
                             Counted(phase.fixed_point().after_rounds(), "round"))
              : "");
    case v1::Phase::kRelease:
      return absl::StrCat("test release at ", PointName(phase.release().point()), ": ",
                          Counted(phase.release().rounds(), "round"),
                          " of H local steps against synchronised "
                          "ones, for H = ",
                          absl::StrJoin(phase.release().steps(), ", "));
    default:
      return "unknown phase";
  }
}

std::string StateName(v1::RunState state) {
  return absl::AsciiStrToLower(v1::RunState_Name(state));
}

std::string StateName(const RunSummary& run) {
  const bool over = run.state == v1::DONE || run.state == v1::FAILED;
  return run.served || over ? StateName(run.state) : "stopped";
}

std::string PointName(v1::Probe::Point point) {
  switch (point) {
    case v1::Probe::INITIAL:
      return "the initial model";
    case v1::Probe::OPTIMUM:
      return "w*";
    default:
      return "the current model";
  }
}

}  // namespace leeway
