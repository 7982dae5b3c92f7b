#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/import/byte_stream.h"
#include "client/import/importers.h"
#include "client/import/progress.h"
#include "common/status.h"

namespace leeway {
namespace {

struct Sentence {
  std::string date;
  std::vector<uint32_t> tokens;
};

// Where the three columns that matter are; the rest is ignored.
struct Columns {
  size_t user = 0;
  size_t date = 1;
  size_t tokens = 4;
  size_t count = 5;
};

// The columns by the names of a header; false when the line is not one.
bool ParseHeader(const std::vector<absl::string_view>& cells, Columns* columns) {
  const auto find = [&cells](absl::string_view name) {
    return static_cast<size_t>(std::find(cells.begin(), cells.end(), name) - cells.begin());
  };
  const Columns found{find("user_id"), find("creation_date"), find("tokens"), cells.size()};
  if (std::max({found.user, found.date, found.tokens}) >= cells.size()) return false;
  *columns = found;
  return true;
}

using Users = std::map<std::string, std::vector<Sentence>>;

absl::StatusOr<Users> ReadUsers(const std::string& path, SequenceBuilder* builder) {
  LEEWAY_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path));
  Users users;
  Columns columns;
  Progress progress("reading", "sentences", 0);
  std::string line;
  for (bool first = true;; first = false) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) break;
    const std::vector<absl::string_view> cells = absl::StrSplit(line, '\t');
    if (first && ParseHeader(cells, &columns)) continue;
    if (cells.size() != columns.count) {
      return absl::InvalidArgumentError(
          absl::StrCat(reader.Where(), ": has ", cells.size(), " tab-separated columns, expected ",
                       columns.count, " (user_id, creation_date, type, source_id, tokens)"));
    }
    if (cells[columns.user].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(reader.Where(), ": has no user_id"));
    }
    users[std::string(cells[columns.user])].push_back(
        {std::string(cells[columns.date]), builder->Tokenize(cells[columns.tokens])});
    progress.Step();
  }
  return users;
}

// The last sentences by date are the test part; at least one is left to train on.
void AddUser(const std::string& user, std::vector<Sentence> sentences, double test_fraction,
             SequenceBuilder* builder) {
  std::stable_sort(sentences.begin(), sentences.end(),
                   [](const Sentence& a, const Sentence& b) { return a.date < b.date; });
  const auto asked =
      static_cast<size_t>(std::ceil(test_fraction * static_cast<double>(sentences.size())));
  const size_t train = sentences.size() - std::min(asked, sentences.size() - 1);
  for (size_t i = 0; i < sentences.size(); ++i) {
    builder->Add(user, i < train ? Part::kTrain : Part::kTest, sentences[i].tokens);
  }
}

}  // namespace

absl::StatusOr<Json> ImportText(const TextOptions& options) {
  if (!(options.test_fraction >= 0 && options.test_fraction < 1)) {
    return absl::InvalidArgumentError("--test-fraction must be in [0, 1)");
  }
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<FederationWriter> writer,
                          FederationWriter::Create(options.writer));
  SequenceBuilder builder(options.sequences);
  LEEWAY_ASSIGN_OR_RETURN(Users users, ReadUsers(options.source, &builder));
  uint64_t few = 0;
  uint64_t sentences = 0;
  uint64_t kept = 0;
  for (auto& [user, list] : users) {
    sentences += list.size();
    if (list.size() < options.min_sentences) {
      ++few;
      continue;
    }
    kept += list.size();
    AddUser(user, std::move(list), options.test_fraction, &builder);
  }
  if (kept == 0) {
    return absl::InvalidArgumentError(absl::StrCat(options.source, ": none of its ", users.size(),
                                                   " users has ", options.min_sentences,
                                                   " sentences; lower --min-sentences"));
  }
  Json description = {{"kind", "text"}, {"source", options.source}};
  description["options"] = options.sequences.ToJson();
  description["options"].update(Json{{"min_sentences", options.min_sentences},
                                     {"test_fraction", options.test_fraction},
                                     {"split", "the last sentences of each user by date"}});
  description["texts"] = {{"users", users.size()}, {"all", sentences}, {"kept", kept}};
  description["skipped"]["users_below_min_sentences"] = few;
  LEEWAY_RETURN_IF_ERROR(builder.Write(writer.get(), &description));
  return writer->Finish(std::move(description));
}

}  // namespace leeway
