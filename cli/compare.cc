#include "cli/compare.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/estimate.h"
#include "cli/page_parts.h"
#include "cli/run.h"
#include "common/model_file.h"
#include "common/model_layout.h"
#include "common/plural.h"
#include "common/status.h"
#include "records/final_loss.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct CompareOptions {
  std::vector<std::string> runs;
  std::string out;
  bool json = false;
};

// Adds every set field of a message below `prefix`, by the names of the config.
void Flatten(const Message& message, const std::string& prefix,
             std::map<std::string, std::string>& out) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string name = prefix + field->name();
    if (field->is_repeated()) {
      std::vector<std::string> values;
      for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
        std::string value;
        google::protobuf::TextFormat::PrintFieldValueToString(message, field, i, &value);
        values.push_back(value);
      }
      out[name] = absl::StrJoin(values, ", ");
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const Message& part = message.GetReflection()->GetMessage(message, field);
      const size_t before = out.size();
      Flatten(part, name + ".", out);
      if (out.size() == before) out[name] = "{}";  // scaffold {}: to be there says it all
    } else {
      google::protobuf::TextFormat::PrintFieldValueToString(message, field, -1, &out[name]);
    }
  }
}

// The config but for its name, with the last training phase as "train" and no other phase.
std::map<std::string, std::string> SettingsOf(v1::RunConfig config) {
  std::map<std::string, std::string> settings;
  for (const v1::Phase& phase : config.phases()) {
    if (!phase.has_train()) continue;
    settings.clear();
    Flatten(phase.train(), "train.", settings);
  }
  config.clear_phases();
  config.clear_name();
  Flatten(config, "", settings);
  return settings;
}

// Numbers of parameters and their kind, from the file of any model of the run.
void ReadLayout(ComparedRun& one) {
  for (const char* name : {"final", "initial"}) {
    const std::string path = one.run.ModelPath(name);
    std::ifstream in(path, std::ios::binary);
    std::ostringstream bytes;
    if (path.empty() || !(bytes << in.rdbuf())) continue;
    const absl::StatusOr<ModelFileContents> found = ListTensors(bytes.str(), path);
    if (!found.ok()) continue;
    one.parameters = 0;
    for (const TensorSpec& tensor : found->tensors) one.parameters += tensor.size();
    one.float64 = found->float64;
    return;
  }
}

std::string StepsText(const std::vector<v1::RoundRecord>& rounds, const v1::LocalRule& rule) {
  const uint32_t first = rounds.front().local_steps();
  const uint32_t last = rounds.back().local_steps();
  if (first == 0) return Counted(rule.epochs(), "epoch");
  if (rule.has_auto_steps()) return absl::StrCat(first, " to ", last);
  return absl::StrCat(last);
}

void ReadTraining(ComparedRun& one) {
  for (const TrainingCurve& curve : one.training) {
    one.rounds += curve.rounds.size();
    for (const v1::RoundRecord& round : curve.rounds) {
      one.bytes += one.BytesOf(round);
      if (std::isfinite(round.loss())) {
        one.loss = round.loss();
        one.loss_standard_error = round.loss_standard_error();
      }
      if (round.drift_size() == 0) continue;
      one.drift_squared = round.drift(0).unbiased_drift_squared();
      one.drift_bound = round.drift(0).drift_bound();
    }
  }
  if (one.training.empty()) return;
  const std::vector<v1::RoundRecord>& last = one.training.back().rounds;
  one.step_size = last.back().step_size();
  const auto phase = static_cast<int>(last.back().phase());
  if (phase < one.run.config.phases_size()) {
    one.steps = StepsText(last, one.run.config.phases(phase).train().local());
  }
}

ComparedRun Read(RunSummary run) {
  ComparedRun one;
  one.run = std::move(run);
  one.verdict = Judge(one.run);
  one.training = TrainingCurves(one.run);
  one.settings = SettingsOf(one.run.config);
  ReadLayout(one);
  ReadTraining(one);
  if (const v1::RoundRecord* round = FinalLoss(one.run)) {
    one.loss = round->loss();
    one.loss_standard_error = round->loss_standard_error();
  }
  for (const v1::RoundRecord& round : EvaluationsOf(one.run)) {
    const bool central = round.test_examples() == 0 && round.central_examples() > 0;
    one.test_loss = central ? round.central_loss() : round.test_loss();
    one.accuracy = central ? round.central_accuracy() : round.accuracy();
  }
  for (const NamedModel& model : one.run.names) {
    if (model.name == "final") one.final_sha256 = model.sha256;
  }
  return one;
}

// Who took part with which data, as far as the records know.
bool SameData(const RunSummary& a, const RunSummary& b) {
  if (a.roster.size() != b.roster.size()) return false;
  std::map<std::string, const StoredClient*> there;
  for (const StoredClient& client : b.roster) there[client.id] = &client;
  return std::all_of(a.roster.begin(), a.roster.end(), [&](const StoredClient& client) {
    const auto found = there.find(client.id);
    if (found == there.end() || found->second->examples != client.examples) return false;
    const uint64_t digest = found->second->digest;
    return digest == client.digest || digest == 0 || client.digest == 0;
  });
}

std::vector<std::string> WarningsOf(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> warnings;
  const RunSummary& first = runs.front().run;
  for (const ComparedRun& one : runs) {
    const std::string both = absl::StrCat(runs.front().name, " and ", one.name);
    if (one.run.config.model().SerializeAsString() != first.config.model().SerializeAsString()) {
      warnings.push_back(absl::StrCat(both, " train different models (",
                                      ModelKind(first.config.model()), ", ",
                                      ModelKind(one.run.config.model()),
                                      "): compare their accuracy, not their training losses"));
    }
    if (!SameData(first, one.run)) {
      warnings.push_back(
          absl::StrCat(both, " have different clients or data: no figure of theirs compares"));
    }
    if (one.run.config.weighting() != first.config.weighting()) {
      warnings.push_back(
          absl::StrCat(both, " weigh clients differently: their losses are of different averages"));
    }
    if (one.run.state != v1::DONE) {
      warnings.push_back(absl::StrCat(
          one.name, " is not finished (", StateName(one.run),
          "): its figures are of the last model measured; `leeway run` with the same config, data "
          "and --out goes on with it"));
    } else if (one.rounds == 0) {
      warnings.push_back(
          absl::StrCat(one.name, " has no training phase: only its verdict compares"));
    }
  }
  return warnings;
}

std::vector<std::string> DifferingOf(const std::vector<ComparedRun>& runs) {
  std::set<std::string> names;
  for (const ComparedRun& one : runs) {
    for (const auto& [name, value] : one.settings) names.insert(name);
  }
  std::vector<std::string> differing;
  for (const std::string& name : names) {
    const auto value = [&](const ComparedRun& one) {
      const auto found = one.settings.find(name);
      return found == one.settings.end() ? std::string() : found->second;
    };
    const bool same = std::all_of(runs.begin(), runs.end(), [&](const ComparedRun& one) {
      return value(one) == value(runs.front());
    });
    if (!same) differing.push_back(name);
  }
  return differing;
}

int CompareCommand(const CompareOptions& options) {
  const auto fail = [](const absl::Status& status) {
    absl::FPrintF(stderr, "leeway: %s\n", status.message());
    const bool usage = absl::IsNotFound(status) || absl::IsInvalidArgument(status);
    return usage ? kExitUsage : kExitFailed;
  };
  absl::StatusOr<page::Places> places = page::Places();
  if (!options.out.empty()) places = page::PlacesOf(options.out);
  if (!places.ok()) return fail(places.status());
  const absl::StatusOr<Comparing> comparing = LoadComparing(options.runs);
  if (!comparing.ok()) return fail(comparing.status());
  absl::PrintF("%s", options.json ? CompareJson(*comparing) : CompareText(*comparing));
  if (!options.out.empty()) {
    const std::vector<Chart> charts = CompareCharts(*comparing);
    const absl::Status written = page::WritePage(*places, page::ChartFiles(charts),
                                                 ComparePage(*comparing, charts, places->prefix));
    if (!written.ok()) return fail(written);
    if (!options.json) absl::PrintF("\nPage: %s\n", options.out);
  }
  return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
}

}  // namespace

uint64_t ComparedRun::BytesOf(const v1::RoundRecord& round) const {
  const auto phase = static_cast<int>(round.phase());
  if (parameters == 0 || phase >= run.config.phases_size()) return 0;
  ModelLayout layout;
  layout.tensors = {{"all", {parameters}}};
  layout.float64 = float64;
  const RoundBytes one = TrainingBytes(run.config, run.config.phases(phase).train(), layout);
  return round.reports() * (one.down + one.up);
}

std::vector<std::string> ShortNames(const std::vector<std::string>& directories) {
  std::vector<std::vector<std::string>> parts;
  size_t longest = 1;
  for (const std::string& directory : directories) {
    parts.push_back(absl::StrSplit(directory, '/', absl::SkipEmpty()));
    longest = std::max(longest, parts.back().size());
  }
  for (size_t count = 1;; ++count) {
    std::vector<std::string> names;
    for (const std::vector<std::string>& all : parts) {
      const size_t skip = all.size() - std::min(all.size(), count);
      names.push_back(
          absl::StrJoin(all.begin() + static_cast<std::ptrdiff_t>(skip), all.end(), "/"));
    }
    const std::set<std::string> distinct(names.begin(), names.end());
    if (distinct.size() == names.size() || count >= longest) return names;
  }
}

Comparing Compare(std::vector<RunSummary> runs) {
  std::vector<std::string> directories;
  for (const RunSummary& run : runs) directories.push_back(run.directory);
  const std::vector<std::string> names = ShortNames(directories);
  Comparing comparing;
  for (size_t i = 0; i < runs.size(); ++i) {
    comparing.runs.push_back(Read(std::move(runs[i])));
    comparing.runs.back().name = names[i];
  }
  comparing.warnings = WarningsOf(comparing.runs);
  comparing.differing = DifferingOf(comparing.runs);
  return comparing;
}

absl::StatusOr<Comparing> LoadComparing(const std::vector<std::string>& directories) {
  if (directories.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("compare takes two runs or more; `leeway show ",
                                                   directories.front(), "` and `leeway report ",
                                                   directories.front(), "` show one"));
  }
  std::vector<RunSummary> runs;
  std::map<std::string, std::string> seen;
  for (const std::string& directory : directories) {
    std::error_code error;
    const std::string place = fs::weakly_canonical(directory, error).string();
    const auto [before, added] = seen.emplace(error ? directory : place, directory);
    if (!added) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory, " is the same run as ", before->second, "; give each run once"));
    }
    LEEWAY_ASSIGN_OR_RETURN(RunSummary run, LoadRun(directory));
    if (!run.begun) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory,
                       " still waits for its clients to join: nothing is measured yet; "
                       "compare it once it has begun"));
    }
    runs.push_back(std::move(run));
  }
  return Compare(std::move(runs));
}

CLI::App* AddCompareCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command =
      app.add_subcommand("compare", "Several runs in one table and on one page of charts");
  command->add_option("RUN", options->runs, "The --out directories of two runs or more")
      ->required();
  command->add_option("--out", options->out,
                      "Also write this page (NAME.html) with charts of loss, accuracy, drift and "
                      "local steps; their SVG and CSV files go to NAME_files");
  command->add_flag("--json", options->json, "For programs: the same, numbers in full");
  command->footer(
      "One row for each run: training loss of the final model, accuracy on test data, ρ² in the\n"
      "last round that measured it, local steps H, step size, rounds, what was sent (as between\n"
      "server and one client each) and the verdict; below, the settings that differ, the final\n"
      "models' sha256 (equal: the same bits) and the verdicts' sentences. Runs of different\n"
      "models or data are compared with a warning. Works while a run is under way, too.\n"
      "Examples:\n"
      "  leeway compare runs/h1 runs/h10 runs/h50\n"
      "  leeway compare runs/mine/remedies/* --out remedies.html\n"
      "  leeway compare runs/a runs/b --json | python3 -m json.tool\n"
      "Exit codes: 0 done, 1 something could not be read or written, 2 wrong usage or no run.");
  command->callback([options, exit_code] { *exit_code = CompareCommand(*options); });
  return command;
}

}  // namespace leeway
