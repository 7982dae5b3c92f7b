#include "cli/study.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/check.h"
#include "cli/drift.h"
#include "cli/report.h"
#include "cli/run.h"
#include "cli/starter.h"
#include "common/status.h"
#include "records/config.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

struct StudyOptions {
  std::string data;
  std::string out;
  std::string model;
  uint32_t processes = 0;
};

void PrintDescription(const DataFacts& facts) {
  absl::PrintF("%s: %d clients, %d training examples", facts.directory, facts.clients,
               facts.examples);
  if (facts.classes > 0) absl::PrintF(" of %d classes", facts.classes);
  absl::PrintF("; %d clients have a test part%s\n", facts.clients_with_test,
               facts.evaluator ? ", and there is a central test set" : "");
  for (const std::string& note : facts.notes) absl::PrintF("Note: %s\n", note);
}

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The config of an earlier try is the same one, or the directory is another study's.
absl::Status WriteConfig(const std::string& path, const std::string& text) {
  std::error_code error;
  if (fs::exists(path, error)) {
    if (ReadText(path) == text) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat(
        path, " is another study's config; choose another --out, or run that one: ", "leeway run ",
        path, " --data DATA --out NEW"));
  }
  fs::create_directories(fs::path(path).parent_path(), error);
  std::ofstream out(path);
  out << text;
  out.close();
  return out ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

// Says what it will do. Returns the config's path.
absl::StatusOr<std::string> Plan(const StudyOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(const DataFacts facts, ReadFacts(options.data));
  PrintDescription(facts);
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, StarterConfig(facts, options.model));
  const std::string path = options.out + "/config.textproto";
  LEEWAY_RETURN_IF_ERROR(WriteConfig(path, text));
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, ParseConfig(text, path));
  LEEWAY_ASSIGN_OR_RETURN(const ModelLayout layout, CheckAgainst(config, facts));
  absl::PrintF("\n%s:\n\n%s\n%s\n", path, text, EstimateText(config, layout, facts));
  std::fflush(stdout);
  return path;
}

int StudyCommand(StudyOptions options) {
  while (options.out.size() > 1 && options.out.back() == '/') options.out.pop_back();
  const absl::StatusOr<std::string> config = Plan(options);
  if (!config.ok()) {
    absl::FPrintF(stderr, "leeway: %s\n", config.status().message());
    return kExitUsage;
  }
  RunOptions run;
  run.config = *config;
  run.data = options.data;
  run.out = options.out;
  run.processes = options.processes;
  run.brief = true;
  if (const int code = RunCommand(run); code != kExitOk) return code;
  if (const int code = DriftCommand({options.out, options.data}); code != kExitOk) return code;
  const absl::StatusOr<std::string> page = WriteReport({options.out, ""});
  if (!page.ok()) {
    absl::FPrintF(stderr, "leeway: %s\n", page.status().message());
    return kExitFailed;
  }
  absl::PrintF("\nReport:   %s\nRepeat:   leeway run %s --data %s --out NEW\n", *page, *config,
               options.data);
  return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
}

}  // namespace

CLI::App* AddStudyCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<StudyOptions>();
  CLI::App* command = app.add_subcommand(
      "study", "From data to the answer: check, choose a config, run it, judge, report");
  command->add_option("DATA", options->data, "Directory with one directory per client")->required();
  command->add_option("--out", options->out, "Directory for config, records, models and report")
      ->required();
  command
      ->add_option("--model", options->model,
                   "linear, softmax, or a network: mlp, cnn (images), lstm (sequences of tokens) "
                   "(default: by the targets, as leeway init)")
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(kStarterModels), std::end(kStarterModels))));
  command->add_option("--processes", options->processes, "Client processes, as for leeway run")
      ->check(CLI::Range(1, 1'000'000));
  command->footer(
      "It does what these do one after the other, and prints every choice as the config that\n"
      "repeats it:\n"
      "  leeway init --data DATA --out OUT/config.textproto\n"
      "  leeway run OUT/config.textproto --data DATA --out OUT\n"
      "  leeway drift OUT\n"
      "  leeway report OUT\n"
      "A study that was stopped goes on with the same command.\n"
      "Examples:\n"
      "  leeway study data/mine --out runs/mine\n"
      "  leeway study data/images --out runs/cnn --model cnn");
  command->callback([options, exit_code] { *exit_code = StudyCommand(*options); });
  return command;
}

}  // namespace leeway
