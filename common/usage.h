// What our programs say to a wrong command line: what is wrong, what may have been
// meant, and where the help is. For their main files only.
#ifndef LEEWAY_COMMON_USAGE_H_
#define LEEWAY_COMMON_USAGE_H_

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/log.h"
#include "common/nearest_word.h"

namespace leeway {

// The command that the error is about, and what to say to it.
inline std::string UsageText(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands()[0];
    absl::StrAppend(&name, " ", command->get_name());
  }
  std::string text(absl::StripTrailingAsciiWhitespace(error.what()));
  for (const std::string& extra : app.remaining(true)) {
    if (extra.rfind("--", 0) != 0) continue;
    std::vector<std::string> known;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& one : option->get_lnames()) known.push_back("--" + one);
    }
    const std::string nearest = NearestWord(extra.substr(0, extra.find('=')), known);
    if (nearest.empty()) break;
    return absl::StrCat("there is no option ", extra, "; did you mean `", nearest, "`? See `", name,
                        " --help`");
  }
  return absl::StrCat(text, "; see `", name, " --help`");
}

// How a program logs.
struct LogFlags {
  std::string format = "text";
  std::string level = "info";

  LogFormat Format() const { return format == "json" ? LogFormat::kJson : LogFormat::kText; }
  LogLine::Level Level() const { return ParseLevel(level); }
};

inline void DeclareLogFlags(CLI::App& app, LogFlags& flags) {
  app.add_option("--log-format", flags.format, "One line for each thing that happens: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--log-level", flags.level,
                 "Least level of what is logged: debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

// Reads the command line. The exit code to end with, if there is nothing more to do:
// 0 after --help or --version, 2 after having said what is wrong.
inline std::optional<int> ParseOrExit(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    absl::FPrintF(stderr, "%s: %s\n", app.get_name(), UsageText(app, error));
    return 2;
  }
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_USAGE_H_
