#include "records/config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/digest.h"
#include "common/model_file.h"
#include "common/model_layout.h"
#include "common/status.h"
#include "common/sums.h"
#include "records/config_words.h"
#include "records/evaluate_config.h"
#include "records/network_config.h"
#include "records/release_config.h"

namespace leeway {
namespace {

// Keeps the first error: later ones are usually its echo.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text.empty()) return;
    text =
        absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", ExplainParseError(message));
  }
  std::string text;
};

absl::Status Bad(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, " ", problem));
}

// "line 3, column 5: " of the field that a complaint begins with, such as
// phases[0].train.rounds, or of the innermost message around it that was written.
std::string PlaceOf(const google::protobuf::TextFormat::ParseInfoTree* tree,
                    absl::string_view complaint) {
  std::string place;
  const google::protobuf::Descriptor* message = v1::RunConfig::descriptor();
  const absl::string_view path = complaint.substr(0, complaint.find(' '));
  for (const absl::string_view step : absl::StrSplit(path, '.')) {
    const size_t bracket = step.find('[');
    int index = -1;  // of a field that is not repeated
    if (bracket != absl::string_view::npos &&
        !absl::SimpleAtoi(step.substr(bracket + 1, step.size() - bracket - 2), &index)) {
      break;
    }
    const auto* field = message == nullptr
                            ? nullptr
                            : message->FindFieldByName(std::string(step.substr(0, bracket)));
    if (field == nullptr || tree == nullptr || field->is_repeated() != (index >= 0)) break;
    const auto location = tree->GetLocation(field, index);
    if (location.line < 0) break;
    place = absl::StrCat("line ", location.line + 1, ", column ", location.column + 1, ": ");
    tree = tree->GetTreeForNested(field, index);
    message = field->message_type();
  }
  return place;
}

// What the phases before this one have left.
struct Seen {
  bool optimum = false;
  bool constants = false;
};

// Of a LocalRule, a Probe or a FixedPoint.
template <typename Rule>
absl::Status CheckStepSize(absl::string_view field, const Rule& rule, const Seen& seen) {
  const std::string number = absl::StrCat(field, ".step_size");
  const std::string automatic = absl::StrCat(field, ".auto_step_size");
  if (rule.has_step_size()) {
    if (std::isfinite(rule.step_size()) && rule.step_size() > 0) return absl::OkStatus();
    return Bad(number, absl::StrCat("is ", rule.step_size(),
                                    "; give a positive number, for instance 0.01 (theory asks for "
                                    "at most 1/L), or instead auto_step_size: true"));
  }
  if (rule.has_auto_step_size() && !rule.auto_step_size()) {
    return Bad(automatic, "is false; give step_size instead, a positive number");
  }
  if (seen.constants) return absl::OkStatus();
  return Bad(rule.has_auto_step_size() ? automatic : number,
             absl::StrCat(rule.has_auto_step_size() ? "is true" : "is left out (automatic)",
                          ", but no constants phase comes before it; add "
                          "`phases { constants {} }` or give step_size, a positive number"));
}

absl::Status CheckSteps(absl::string_view field,
                        const google::protobuf::RepeatedField<uint32_t>& steps) {
  if (steps.empty()) {
    return Bad(absl::StrCat(field, ".steps"), "is empty; list numbers of local steps: [1, 2, 5]");
  }
  uint32_t last = 0;
  for (const uint32_t h : steps) {
    if (h <= last) {
      return Bad(absl::StrCat(field, ".steps"),
                 absl::StrCat("has ", h, " after ", last, "; list numbers from 1 up, increasing"));
    }
    last = h;
  }
  return absl::OkStatus();
}

absl::Status CheckProbe(absl::string_view field, const v1::Probe& probe, const Seen& seen) {
  if (probe.point() == v1::Probe::POINT_UNSPECIFIED) {
    return Bad(absl::StrCat(field, ".point"), "is missing; use INITIAL, OPTIMUM or CURRENT");
  }
  if (probe.point() == v1::Probe::OPTIMUM && !seen.optimum) {
    return Bad(absl::StrCat(field, ".point"),
               "is OPTIMUM, but no optimum phase comes before it; add `phases { optimum {} }`");
  }
  LEEWAY_RETURN_IF_ERROR(CheckStepSize(field, probe, seen));
  if (probe.repeats() > 0 && probe.batch_size() == 0) {
    return Bad(absl::StrCat(field, ".repeats"), "needs batch_size: full-batch paths do not vary");
  }
  return CheckSteps(field, probe.steps());
}

absl::Status CheckFixedPoint(absl::string_view field, const v1::FixedPoint& fixed,
                             const Seen& seen) {
  if (!seen.optimum) {
    return Bad(field,
               "needs w*, but no optimum phase comes before it; add `phases { optimum {} }`");
  }
  if (!(fixed.tolerance() >= 0)) {
    return Bad(absl::StrCat(field, ".tolerance"), "must be positive, or left out");
  }
  LEEWAY_RETURN_IF_ERROR(CheckStepSize(field, fixed, seen));
  return CheckSteps(field, fixed.steps());
}

absl::Status CheckReleaseTest(const std::string& field, const v1::ReleaseTest& release,
                              const Seen& seen) {
  LEEWAY_RETURN_IF_ERROR(CheckStepSize(field, release, seen));
  LEEWAY_RETURN_IF_ERROR(CheckSteps(field, release.steps()));
  return CheckRelease(field, release, seen.optimum);
}

// Probes while training.
absl::Status CheckProbesAt(absl::string_view field, const v1::Train& train, const Seen& seen) {
  if (train.has_probe() != !train.probe_at().empty()) {
    return Bad(absl::StrCat(field, train.has_probe() ? ".probe" : ".probe_at"),
               train.has_probe()
                   ? "is given without probe_at; say after how many rounds: probe_at: [0, 50, 100]"
                   : "is given without probe; say what to measure, for instance "
                     "`probe { step_size: 0.1 steps: [1, 10] }`");
  }
  if (!train.has_probe()) return absl::OkStatus();
  for (int i = 0; i < train.probe_at_size(); ++i) {
    const uint32_t at = train.probe_at(i);
    if (i > 0 && at <= train.probe_at(i - 1)) {
      return Bad(absl::StrCat(field, ".probe_at"),
                 absl::StrCat("has ", at, " after ", train.probe_at(i - 1),
                              "; list numbers of rounds, increasing"));
    }
    if (at > train.rounds()) {
      return Bad(absl::StrCat(field, ".probe_at"),
                 absl::StrCat("has ", at, ", but the phase ends after ", train.rounds(),
                              " rounds; give at most that, or raise rounds"));
    }
  }
  const std::string probe = absl::StrCat(field, ".probe");
  if (train.probe().point() != v1::Probe::CURRENT) {
    return Bad(absl::StrCat(probe, ".point"),
               absl::StrCat("is ", v1::Probe::Point_Name(train.probe().point()),
                            "; a probe while training measures at CURRENT: leave point out, or "
                            "use a probe phase of its own"));
  }
  return CheckProbe(probe, train.probe(), seen);
}

// The numbers of an optimizer's message and of those in it: not negative, and those that
// are decays, named beta, below 1.
absl::Status CheckNumbers(const std::string& field, const google::protobuf::Message& message) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* one = type.field(i);
    const google::protobuf::Reflection& values = *message.GetReflection();
    if (one->message_type() != nullptr && values.HasField(message, one)) {
      LEEWAY_RETURN_IF_ERROR(
          CheckNumbers(absl::StrCat(field, ".", one->name()), values.GetMessage(message, one)));
    }
    if (one->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) continue;
    const double value = values.GetDouble(message, one);
    const bool decay = absl::StartsWith(one->name(), "beta");
    if (value >= 0 && std::isfinite(value) && (!decay || value < 1)) continue;
    return Bad(absl::StrCat(field, ".", one->name()),
               absl::StrCat("is ", value, "; give a ",
                            decay ? "number in [0, 1)" : "positive number, or leave it out"));
  }
  return absl::OkStatus();
}

absl::Status CheckServer(const std::string& field, const v1::ServerOptimizer& server) {
  if (!(server.rate() > 0) || !std::isfinite(server.rate())) {
    return Bad(absl::StrCat(field, ".rate"),
               absl::StrCat("is ", server.rate(), "; give a positive number, usually 1"));
  }
  if (!(server.momentum() >= 0 && server.momentum() < 1)) {
    return Bad(absl::StrCat(field, ".momentum"),
               absl::StrCat("is ", server.momentum(), "; give a number in [0, 1)"));
  }
  LEEWAY_RETURN_IF_ERROR(CheckNumbers(field, server));
  if (server.adaptive_case() != v1::ServerOptimizer::ADAPTIVE_NOT_SET && server.momentum() > 0) {
    return Bad(absl::StrCat(field, ".momentum"),
               "goes with plain averaging; leave it out beside an adaptive optimizer");
  }
  return absl::OkStatus();
}

absl::Status CheckTrain(absl::string_view field, const v1::Train& train, const Seen& seen) {
  if (train.rounds() == 0) return Bad(absl::StrCat(field, ".rounds"), "is 0; give at least 1");
  const v1::LocalRule& rule = train.local();
  LEEWAY_RETURN_IF_ERROR(CheckStepSize(absl::StrCat(field, ".local"), rule, seen));
  if ((rule.steps() > 0) + (rule.epochs() > 0) + rule.has_auto_steps() != 1) {
    return Bad(absl::StrCat(field, ".local"),
               "needs exactly one of steps (H, at least 1), epochs and auto_steps {}");
  }
  if (rule.has_auto_steps() &&
      (train.server().rate() != 1 || train.server().momentum() > 0 ||
       train.server().adaptive_case() != v1::ServerOptimizer::ADAPTIVE_NOT_SET)) {
    return Bad(absl::StrCat(field, ".local.auto_steps"),
               "compares with a plain gradient step, so it needs plain averaging at the server; "
               "leave out server { ... }, or give steps");
  }
  if (rule.has_auto_steps() && (train.loss_off() || train.loss_every() > 1)) {
    return Bad(absl::StrCat(field, train.loss_off() ? ".loss_off" : ".loss_every"),
               "leaves out losses by which auto_steps chooses; leave the field out, or give steps");
  }
  if (!rule.has_step_size() && rule.epochs() > 0) {
    return Bad(absl::StrCat(field, ".local.auto_step_size"),
               "chooses at most 1/(mu H), but with epochs H differs by client; give steps instead "
               "of epochs, or step_size, a positive number");
  }
  LEEWAY_RETURN_IF_ERROR(CheckServer(absl::StrCat(field, ".server"), train.server()));
  const double alpha = rule.feddyn().alpha();
  if (rule.has_feddyn() && !(alpha > 0 && std::isfinite(alpha))) {
    return Bad(absl::StrCat(field, ".local.feddyn.alpha"),
               absl::StrCat("is ", alpha, "; give a positive number, such as 0.1"));
  }
  if (rule.has_fedprox() && !(rule.fedprox().mu() > 0 && std::isfinite(rule.fedprox().mu()))) {
    return Bad(absl::StrCat(field, ".local.fedprox.mu"),
               absl::StrCat("is ", rule.fedprox().mu(), "; give a positive number, such as 0.01"));
  }
  if (train.start() == v1::Probe::OPTIMUM && !seen.optimum) {
    return Bad(absl::StrCat(field, ".start"),
               "is OPTIMUM, but no optimum phase comes before it; add `phases { optimum {} }`");
  }
  if (train.evaluate_every() > train.rounds()) {
    return Bad(absl::StrCat(field, ".evaluate_every"),
               absl::StrCat("is ", train.evaluate_every(), ", but the phase ends after ",
                            train.rounds(), " rounds; give at most that"));
  }
  const std::vector<const std::string*> metrics(train.metrics().pointer_begin(),
                                                train.metrics().pointer_end());
  if (const absl::Status names = CheckMetricNames(metrics); !names.ok()) {
    return Bad(absl::StrCat(field, ".metrics"), names.message());
  }
  LEEWAY_RETURN_IF_ERROR(CheckReleaseAt(std::string(field), train));
  if (train.has_release()) {
    LEEWAY_RETURN_IF_ERROR(
        CheckReleaseTest(absl::StrCat(field, ".release"), train.release(), seen));
  }
  return CheckProbesAt(field, train, seen);
}

// An algorithm whose clients keep a state between rounds.
absl::Status CheckStateful(absl::string_view field, const v1::RunConfig& config) {
  if (config.model().has_file()) {
    return Bad(field, "is for the models that Leeway contains; leave it out");
  }
  // A killed server may go back further than to the last state that clients keep.
  if (config.durability() == v1::RELAXED) return Bad(field, "needs durability: FULL");
  if (config.encoding() == v1::EXACT) return absl::OkStatus();
  return Bad(field, "needs encoding: EXACT, for rounding errors add up in what its clients keep");
}

absl::Status CheckLimits(const v1::Limits& limits, v1::WireEncoding encoding) {
  if (!(limits.max_norm() >= 0) || !std::isfinite(limits.max_norm())) {
    return Bad("limits.max_norm", "must be a positive number, or 0: no limit");
  }
  if (limits.norm_policy() == v1::CLIP && limits.max_norm() == 0) {
    return Bad("limits.norm_policy", "is CLIP, but limits.max_norm is not given");
  }
  if (limits.median_multiple() != 0 &&
      !(limits.median_multiple() >= 1 && std::isfinite(limits.median_multiple()))) {
    return Bad("limits.median_multiple",
               absl::StrCat("is ", limits.median_multiple(),
                            "; give a number from 1 up, such as 6, or 0: no such limit"));
  }
  if (encoding != v1::EXACT && limits.max_norm() > 0) {
    return Bad("limits.max_norm", "needs encoding: EXACT, for rounding changes the norm");
  }
  if (!(limits.upload_seconds() > 0) || !std::isfinite(limits.upload_seconds())) {
    return Bad("limits.upload_seconds", "must be a positive number of seconds");
  }
  return absl::OkStatus();
}

absl::Status CheckPhase(absl::string_view field, const v1::Phase& phase, Seen& seen) {
  switch (phase.kind_case()) {
    case v1::Phase::kOptimum:
      seen.optimum = true;
      return phase.optimum().tolerance() >= 0
                 ? absl::OkStatus()
                 : Bad(absl::StrCat(field, ".optimum.tolerance"), "must be positive, or left out");
    case v1::Phase::kProbe:
      return CheckProbe(absl::StrCat(field, ".probe"), phase.probe(), seen);
    case v1::Phase::kTrain:
      return CheckTrain(absl::StrCat(field, ".train"), phase.train(), seen);
    case v1::Phase::kEvaluate:
      return CheckEvaluate(absl::StrCat(field, ".evaluate"), phase.evaluate(), seen.optimum);
    case v1::Phase::kConstants:
      seen.constants = true;
      return absl::OkStatus();
    case v1::Phase::kFixedPoint:
      return CheckFixedPoint(absl::StrCat(field, ".fixed_point"), phase.fixed_point(), seen);
    case v1::Phase::kRelease:
      return CheckReleaseTest(absl::StrCat(field, ".release"), phase.release(), seen);
    case v1::Phase::KIND_NOT_SET:
      break;
  }
  return Bad(field,
             "is empty; use optimum, probe, train, evaluate, constants, fixed_point or release");
}

}  // namespace

absl::StatusOr<v1::RunConfig> ParseConfig(absl::string_view text, absl::string_view name) {
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  google::protobuf::TextFormat::ParseInfoTree places;
  parser.WriteLocationsTo(&places);
  v1::RunConfig config;
  if (!parser.ParseFromString(std::string(text), &config)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", error.text, " (fields are described in docs/configuration.md)"));
  }
  CompleteConfig(config);
  if (absl::Status status = CheckConfig(config); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(name, ": ", PlaceOf(&places, status.message()),
                                                    status.message()));
  }
  return config;
}

namespace {

// A file that a field of the config in `path` names.
absl::StatusOr<std::string> ReadNamedFile(const std::string& path, const std::string& name,
                                          absl::string_view field, absl::string_view remedy) {
  const std::filesystem::path file = std::filesystem::path(path).parent_path() / name;
  std::ifstream in(file, std::ios::binary);
  std::ostringstream bytes;
  if (!in || !(bytes << in.rdbuf())) {
    return absl::NotFoundError(absl::StrCat(field, ": cannot read ", file.string(), "; ", remedy));
  }
  return std::move(bytes).str();
}

// The file that the config names in model.file or else in initial.file.
absl::StatusOr<std::string> ReadModelFile(const std::string& path, const v1::RunConfig& config) {
  if (config.model().has_file()) {
    return ReadNamedFile(path, config.model().file(), "model.file",
                         "write it with leeway.save() or leeway.torch.save() (docs/models.md)");
  }
  return ReadNamedFile(path, config.initial().file(), "initial.file",
                       "give a model file, such as models/final.safetensors of a run's directory");
}

absl::Status CheckFinite(const Parameters& values, absl::string_view field,
                         absl::string_view file) {
  const bool finite = std::visit([](const auto& v) { return (v - v).sum() == 0; }, values);
  if (finite) return absl::OkStatus();
  return Bad(absl::StrCat(field, ":"), absl::StrCat(file, " holds a value that is not finite"));
}

bool LeavesStepSizeOpen(const v1::Phase& phase) {
  if (phase.has_probe()) return phase.probe().step_size() == 0;
  if (phase.has_train()) return phase.train().local().step_size() == 0;
  if (phase.has_fixed_point()) return phase.fixed_point().step_size() == 0;
  return phase.has_release() && phase.release().step_size() == 0;
}

// What the rest of the run must know of the file.
absl::Status FillContents(const std::string& path, v1::RunConfig& config) {
  if (!config.model().has_file() && !config.has_initial()) return absl::OkStatus();
  LEEWAY_ASSIGN_OR_RETURN(const std::string bytes, ReadModelFile(path, config));
  if (config.has_initial()) {
    config.mutable_initial()->set_sha256(Sha256Hex(bytes));
    return absl::OkStatus();
  }
  LEEWAY_ASSIGN_OR_RETURN(const ModelFileContents found, ListTensors(bytes, config.model().file()));
  v1::ModelContents& contents = *config.mutable_model()->mutable_contents();
  contents.Clear();
  for (const TensorSpec& spec : found.tensors) {
    v1::ModelTensor& tensor = *contents.add_tensors();
    tensor.set_name(spec.name);
    tensor.mutable_shape()->Add(spec.shape.begin(), spec.shape.end());
  }
  contents.set_float64(found.float64);
  contents.set_sha256(Sha256Hex(bytes));
  for (int i = 0; i < config.phases_size() && !found.float64; ++i) {
    if (!LeavesStepSizeOpen(config.phases(i))) continue;
    return Bad(
        absl::StrCat("phases[", i, "]"),
        absl::StrCat("leaves the step size open (automatic), which needs a model in float64, "
                     "and ",
                     config.model().file(),
                     " holds float32; convert it, or give step_size, a positive number"));
  }
  return LayoutOf(config.model(), v1::DataSchema()).status();
}

}  // namespace

absl::StatusOr<ModelPtr> LoadInitialModel(const std::string& path, const v1::RunConfig& config) {
  if (!config.model().has_file() && !config.has_initial()) return ModelPtr();
  LEEWAY_ASSIGN_OR_RETURN(const std::string bytes, ReadModelFile(path, config));
  if (config.has_initial()) {
    const std::string& name = config.initial().file();
    LEEWAY_ASSIGN_OR_RETURN(const ModelFileContents found, ListTensors(bytes, name));
    LEEWAY_ASSIGN_OR_RETURN(const Parameters values, DecodeModel(bytes, found.tensors, name));
    LEEWAY_RETURN_IF_ERROR(CheckFinite(values, "initial.file", name));
    return std::make_shared<Model>(Model{Sha256Hex(bytes), Buffer(bytes, &ModelsHeld())});
  }
  LEEWAY_ASSIGN_OR_RETURN(const ModelLayout layout, LayoutOf(config.model(), v1::DataSchema()));
  LEEWAY_ASSIGN_OR_RETURN(const Parameters values,
                          DecodeModel(bytes, layout.tensors, config.model().file()));
  LEEWAY_RETURN_IF_ERROR(CheckFinite(values, "model.file", config.model().file()));
  return MakeModel(layout, values);
}

absl::StatusOr<ModelPtr> LoadBaseline(const std::string& path, const v1::RunConfig& config) {
  if (config.baseline().empty()) return ModelPtr();
  LEEWAY_ASSIGN_OR_RETURN(const std::string bytes,
                          ReadNamedFile(path, config.baseline(), "baseline",
                                        "give a model file of a run, such as final.safetensors"));
  LEEWAY_ASSIGN_OR_RETURN(const ModelFileContents found, ListTensors(bytes, config.baseline()));
  return ParseModel(ModelLayout{found.tensors, found.float64}, bytes);
}

absl::StatusOr<v1::RunConfig> LoadConfig(const std::string& path) {
  std::ifstream in(path);
  if (!in) {
    return absl::NotFoundError(absl::StrCat("cannot read config ", path, ": ", std::strerror(errno),
                                            "; see experiments/ for examples"));
  }
  std::ostringstream text;
  text << in.rdbuf();
  LEEWAY_ASSIGN_OR_RETURN(v1::RunConfig config, ParseConfig(text.str(), path));
  LEEWAY_RETURN_IF_ERROR(Annotate(FillContents(path, config), path));
  return config;
}

void CompleteConfig(v1::RunConfig& config) {
  if (config.model().has_linear_regression() &&
      !config.model().linear_regression().has_intercept()) {
    config.mutable_model()->mutable_linear_regression()->set_intercept(true);
  }
  CompleteRelease(config);
  v1::Cohort& cohort = *config.mutable_cohort();
  if (cohort.deadline_seconds() == 0) cohort.set_deadline_seconds(600);
  if (cohort.attempts() == 0) cohort.set_attempts(5);
  if (cohort.return_seconds() == 0) cohort.set_return_seconds(20);
  v1::Limits& limits = *config.mutable_limits();
  if (limits.quarantine_after() == 0) limits.set_quarantine_after(3);
  if (limits.upload_seconds() == 0) limits.set_upload_seconds(120);
  for (v1::Phase& phase : *config.mutable_phases()) {
    if (phase.has_optimum()) {
      v1::Optimum& optimum = *phase.mutable_optimum();
      if (optimum.max_rounds() == 0) optimum.set_max_rounds(500);
      if (optimum.gradient_scale() == 0) optimum.set_gradient_scale(1.0 / 64);
    } else if (phase.has_train()) {
      v1::Train& train = *phase.mutable_train();
      if (train.server().rate() == 0) train.mutable_server()->set_rate(1);
      if (train.start() == v1::Probe::POINT_UNSPECIFIED) train.set_start(v1::Probe::INITIAL);
      if (train.drift_every() == 0) train.set_drift_every(1);
      if (train.loss_every() == 0) train.set_loss_every(1);
      if (train.local().has_auto_steps() && train.local().auto_steps().largest() == 0) {
        train.mutable_local()->mutable_auto_steps()->set_largest(64);
      }
      if (train.has_probe() && train.probe().point() == v1::Probe::POINT_UNSPECIFIED) {
        train.mutable_probe()->set_point(v1::Probe::CURRENT);
      }
    } else if (phase.has_constants()) {
      v1::Constants& constants = *phase.mutable_constants();
      if (constants.point() == v1::Probe::POINT_UNSPECIFIED) {
        constants.set_point(v1::Probe::CURRENT);
      }
      if (constants.iterations() == 0) constants.set_iterations(30);
    } else if (phase.has_fixed_point()) {
      v1::FixedPoint& fixed = *phase.mutable_fixed_point();
      if (fixed.max_rounds() == 0) fixed.set_max_rounds(200);
    } else if (phase.has_evaluate() && phase.evaluate().point() == v1::Probe::POINT_UNSPECIFIED) {
      phase.mutable_evaluate()->set_point(v1::Probe::CURRENT);
    }
  }
}

namespace {

// What a phase asks for goes with the model.
absl::Status CheckWithModel(const std::string& field, const v1::Phase& phase,
                            const v1::RunConfig& config) {
  const v1::LocalRule& rule = phase.train().local();
  if (rule.has_scaffold()) {
    LEEWAY_RETURN_IF_ERROR(CheckStateful(field + ".train.local.scaffold", config));
  }
  if (rule.has_feddyn()) {
    LEEWAY_RETURN_IF_ERROR(CheckStateful(field + ".train.local.feddyn", config));
  }
  if (rule.has_fednova() && config.model().has_file()) {
    return Bad(field + ".train.local.fednova",
               "is for the models that Leeway contains; leave it out");
  }
  return CheckFineTune(field + ".evaluate", phase.evaluate(), config.model());
}

}  // namespace

absl::Status CheckConfig(const v1::RunConfig& config) {
  if (config.model().kind_case() == v1::Model::KIND_NOT_SET) {
    return Bad("model", "is missing; for instance `model { linear_regression {} }`");
  }
  if (config.has_initial() && config.initial().file().empty()) {
    return Bad("initial.file", "is empty; give a safetensors file, or leave initial out");
  }
  if (config.has_initial() && config.model().has_file()) {
    return Bad("initial",
               "is for the models that Leeway contains; model.file holds the values "
               "that the run starts from");
  }
  if (!(config.max_update() >= 0) || !(config.max_update() < 0x1p60)) {
    return Bad("max_update", "must be a positive number, for instance 256, or left out");
  }
  if (config.harmless_below() != 0 || config.conflict_above() != 0) {
    return Bad(config.harmless_below() != 0 ? "harmless_below" : "conflict_above",
               "is not used any more: the verdict goes by the share that is lost of what the model "
               "explains; give harmless_lost and conflict_lost instead");
  }
  const v1::Cohort& cohort = config.cohort();
  if (!(cohort.deadline_seconds() > 0) || !std::isfinite(cohort.deadline_seconds())) {
    return Bad("cohort.deadline_seconds", "must be positive");
  }
  if (!(cohort.replace_after_seconds() >= 0) || !std::isfinite(cohort.replace_after_seconds())) {
    return Bad("cohort.replace_after_seconds", "must be a positive number of seconds, or 0: never");
  }
  if (!(cohort.absent_after_seconds() >= 0) || !std::isfinite(cohort.absent_after_seconds())) {
    return Bad("cohort.absent_after_seconds", "must be a positive number of seconds, or 0: never");
  }
  if (!(cohort.return_seconds() > 0) || !std::isfinite(cohort.return_seconds())) {
    return Bad("cohort.return_seconds", "must be a positive number of seconds");
  }
  if (!(cohort.gather_seconds() >= 0) || !std::isfinite(cohort.gather_seconds())) {
    return Bad("cohort.gather_seconds", "must be a positive number of seconds, or 0: for ever");
  }
  if (cohort.spare() > 0 && cohort.size() == 0) {
    return Bad("cohort.spare", "needs cohort.size: without it all clients are asked anyway");
  }
  LEEWAY_RETURN_IF_ERROR(CheckLimits(config.limits(), config.encoding()));
  LEEWAY_RETURN_IF_ERROR(CheckLost(config));
  if (config.phases().empty()) {
    return Bad("phases", "is empty; add at least one of optimum, probe, train, evaluate");
  }
  LEEWAY_RETURN_IF_ERROR(CheckNetworkPhases(config));
  Seen seen;
  for (int i = 0; i < config.phases_size(); ++i) {
    LEEWAY_RETURN_IF_ERROR(CheckPhase(absl::StrCat("phases[", i, "]"), config.phases(i), seen));
    LEEWAY_RETURN_IF_ERROR(
        CheckWithModel(absl::StrCat("phases[", i, "]"), config.phases(i), config));
  }
  return cohort.clients() > 0 ? CheckClients(config, cohort.clients()) : absl::OkStatus();
}

absl::Status CheckClients(const v1::RunConfig& config, uint64_t clients) {
  const v1::Cohort& cohort = config.cohort();
  if (clients == 0) return Bad("cohort.clients", "is 0; say how many clients take part");
  if (cohort.size() > clients) {
    return Bad("cohort.size", absl::StrCat("is ", cohort.size(), ", but only ", clients,
                                           " clients take part; lower it or add clients"));
  }
  if (cohort.size() + uint64_t{cohort.spare()} > clients) {
    return Bad("cohort.spare",
               absl::StrCat("is ", cohort.spare(), " beyond a size of ", cohort.size(),
                            ", but only ", clients, " clients take part; lower it"));
  }
  const uint64_t sampled = cohort.size() == 0 ? clients : cohort.size();
  if (cohort.minimum_reports() > sampled) {
    return Bad("cohort.minimum_reports",
               absl::StrCat("is ", cohort.minimum_reports(), ", but only ", sampled,
                            " clients are sampled in a round"));
  }
  for (int i = 0; i < config.phases_size(); ++i) {
    const v1::Phase& phase = config.phases(i);
    LEEWAY_RETURN_IF_ERROR(CheckReleaseClients(i, phase, clients));
    const v1::Probe& probe = phase.has_train() ? phase.train().probe() : phase.probe();
    if (probe.clients() > clients) {
      return Bad(
          absl::StrCat("phases[", i, phase.has_train() ? "].train" : "]", ".probe.clients"),
          absl::StrCat("is ", probe.clients(), ", but only ", clients, " clients take part"));
    }
  }
  return absl::OkStatus();
}

}  // namespace leeway
