#include "client/import/federation_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/import/client_name.h"
#include "common/failpoint.h"
#include "common/status.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

// Room for the .npy header, which is written last, when the number of rows is
// known. A multiple of 64, as the format asks.
constexpr size_t kHeader = 256;

absl::Status Failed(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(error)));
}

// Where the data came from, for messages: a path or several.
std::string SourceOf(const Json& description) {
  const Json source = description.value("source", Json());
  const Json& first = source.is_array() && !source.empty() ? source.front() : source;
  return first.is_string() ? first.get<std::string>() : "the data";
}

// The header of a .npy file of format 1.0, kHeader bytes long.
std::string NpyHeader(const RowType& row, uint64_t count) {
  std::string descr;
  switch (row.type) {
    case NpyType::kFloat32:
      descr = "<f4";
      break;
    case NpyType::kFloat64:
      descr = "<f8";
      break;
    case NpyType::kUint8:
      descr = "|u1";
      break;
    case NpyType::kInt32:
      descr = "<i4";
      break;
    case NpyType::kInt64:
      descr = "<i8";
      break;
  }
  std::string shape = absl::StrCat(count, ",");
  for (uint64_t dimension : row.shape) absl::StrAppend(&shape, " ", dimension, ",");
  std::string header("\x93NUMPY\x01\x00", 8);
  constexpr size_t kLength = kHeader - 10;
  header.push_back(static_cast<char>(kLength & 0xff));
  header.push_back(static_cast<char>(kLength >> 8));
  absl::StrAppend(&header, "{'descr': '", descr, "', 'fortran_order': False, 'shape': (", shape,
                  "), }");
  header.resize(kHeader - 1, ' ');
  header.push_back('\n');
  return header;
}

absl::Status WriteBytes(const std::string& path, int flags, const void* bytes, size_t size) {
  const int file = open(path.c_str(), flags | O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return Failed(path, errno);
  const auto* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t count = write(file, from, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      close(file);
      return Failed(path, error);
    }
    from += count;
    size -= static_cast<size_t>(count);
  }
  return close(file) == 0 ? absl::OkStatus() : Failed(path, errno);
}

absl::Status AppendRows(const std::string& path, const Rows& rows, bool fresh) {
  if (fresh) {
    const std::string header = NpyHeader(rows.type, 0);
    LEEWAY_RETURN_IF_ERROR(WriteBytes(path, O_TRUNC, header.data(), header.size()));
  }
  return WriteBytes(path, O_APPEND, rows.bytes.data(), rows.bytes.size());
}

absl::Status CheckRange(const char* what, const Rows& rows, int64_t limit, const char* remedy) {
  const std::vector<int64_t> values = IntegersOf(rows);
  const uint64_t width = std::max<uint64_t>(1, rows.type.values());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && (limit == 0 || values[i] < limit)) continue;
    return absl::OutOfRangeError(absl::StrCat(
        what, " ", values[i], " of sample ", i / width, " is out of range: ",
        limit == 0 ? "it must not be negative" : absl::StrCat("it must be from 0 to ", limit - 1),
        remedy));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckFinite(const char* what, const Rows& rows) {
  const auto* values = reinterpret_cast<const T*>(rows.bytes.data());
  const size_t count = rows.bytes.size() / sizeof(T);
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, " of sample ",
                                                   i / std::max<uint64_t>(1, rows.type.values()),
                                                   " is not a finite number"));
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const char* what, const Rows& rows) {
  if (rows.type.type == NpyType::kFloat32) return CheckFinite<float>(what, rows);
  if (rows.type.type == NpyType::kFloat64) return CheckFinite<double>(what, rows);
  return absl::OkStatus();
}

// Moves `from` to `to` only when nothing is there.
absl::Status RenameNew(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  // Some file systems do not know NOREPLACE; rename() refuses a directory with content.
  if (errno == EINVAL && std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return Failed(to, errno);
}

// ": ann, bob, ...": the first few of a list, for a message.
std::string Some(const std::set<std::string>& names) {
  std::string text;
  int count = 0;
  for (const std::string& name : names) {
    if (++count > 5) return text + ", ...";
    absl::StrAppend(&text, count == 1 ? ": " : ", ", Printable(name));
  }
  return text;
}

std::string Normal(const std::string& out) {
  std::string path = fs::path(out).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string PartialPath(const std::string& out, int process) {
  return absl::StrCat(Normal(out), ".partial-", process);
}

FederationWriter::FederationWriter(const WriterOptions& options)
    : options_(options), partial_(PartialPath(options.out, getpid())) {}

FederationWriter::~FederationWriter() {
  std::error_code ignored;
  if (!finished_) fs::remove_all(partial_, ignored);
}

absl::StatusOr<std::unique_ptr<FederationWriter>> FederationWriter::Create(
    const WriterOptions& options) {
  std::error_code error;
  if (options.out.empty()) return absl::InvalidArgumentError("--out is missing");
  if (fs::exists(fs::symlink_status(Normal(options.out), error))) {
    return absl::AlreadyExistsError(
        absl::StrCat(options.out, ": exists; remove it or choose another --out"));
  }
  std::unique_ptr<FederationWriter> writer(new FederationWriter(options));
  fs::remove_all(writer->partial_, error);
  fs::create_directories(writer->partial_, error);
  if (error) return absl::UnavailableError(absl::StrCat(options.out, ": ", error.message()));
  return writer;
}

std::string FederationWriter::FilePath(const std::string& directory, Part part, char axis) const {
  return absl::StrCat(partial_, "/", directory, "/", PartName(part), "_", std::string(1, axis),
                      ".npy");
}

absl::Status FederationWriter::CheckTypes(absl::string_view client, const Rows& x, const Rows& y) {
  if (x.count != y.count) {
    return absl::InvalidArgumentError(absl::StrCat("x has ", x.count, " samples, y has ", y.count));
  }
  if (!x_type_.has_value()) {
    x_type_ = x.type;
    y_type_ = y.type;
    first_client_ = std::string(client);
    const uint64_t asked = RowType{x.type.type, options_.shape}.values();
    if (!options_.shape.empty() && asked != x.type.values()) {
      return absl::InvalidArgumentError(absl::StrCat("--shape ", absl::StrJoin(options_.shape, ","),
                                                     " is ", asked, " values, but a sample has ",
                                                     x.type.values()));
    }
  }
  for (const auto& [what, found, expected] :
       {std::tuple{"x", &x.type, &*x_type_}, std::tuple{"y", &y.type, &*y_type_}}) {
    if (*found == *expected) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has rows of ", found->ToString(), ", but those of client ",
                     Printable(first_client_), " are ", expected->ToString(),
                     ": all clients must have the same dimensions"));
  }
  return absl::OkStatus();
}

absl::Status FederationWriter::CheckValues(const Rows& x, const Rows& y) const {
  LEEWAY_RETURN_IF_ERROR(CheckFinite("x", x));
  LEEWAY_RETURN_IF_ERROR(CheckFinite("y", y));
  const auto tokens = static_cast<int64_t>(vocabulary_);
  if (vocabulary_ > 0 && x.type.integer()) {
    LEEWAY_RETURN_IF_ERROR(CheckRange("token id", x, tokens, ", the size of the vocabulary"));
  }
  if (!y.type.integer()) return absl::OkStatus();
  if (vocabulary_ > 0) {
    return CheckRange("token id", y, tokens, ", the size of the vocabulary");
  }
  return CheckRange("label", y, options_.classes,
                    options_.classes > 0 ? " (--classes)" : "; use a real-valued label instead");
}

absl::Status FederationWriter::Append(absl::string_view client, Part part, const Rows& x,
                                      const Rows& y) {
  const std::string context = absl::StrCat("client ", Printable(client));
  const std::string directory = DirectoryName(client);
  if (x.count == 0 && y.count == 0) {
    empty_.insert(directory);
    return absl::OkStatus();
  }
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckTypes(client, x, y), context));
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckValues(x, y), context));
  auto found = clients_.find(directory);
  if (found == clients_.end()) {
    if (part == Part::kTest) {
      test_only_.insert(directory);
      return absl::OkStatus();
    }
    const std::string path = absl::StrCat(partial_, "/", directory);
    if (mkdir(path.c_str(), 0755) != 0) return Failed(path, errno);
    found = clients_.emplace(directory, Client{std::string(client), {0, 0}}).first;
    test_only_.erase(directory);
  } else if (found->second.name != client) {
    return absl::AlreadyExistsError(absl::StrCat(context, ": shares the directory name ", directory,
                                                 " with client ", Printable(found->second.name)));
  }
  uint64_t& samples = found->second.samples[static_cast<size_t>(part)];
  LEEWAY_RETURN_IF_ERROR(AppendRows(FilePath(directory, part, 'x'), x, samples == 0));
  LEEWAY_RETURN_IF_ERROR(AppendRows(FilePath(directory, part, 'y'), y, samples == 0));
  samples += x.count;
  if (part == Part::kTrain) scales_.Add(x);
  Failpoint("import.appended");
  return absl::OkStatus();
}

absl::Status FederationWriter::AppendCentral(const Rows& x, const Rows& y) {
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckTypes(kEvaluator, x, y), kEvaluator));
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckValues(x, y), kEvaluator));
  uint64_t& samples = central_.samples[static_cast<size_t>(Part::kTest)];
  const std::string path = absl::StrCat(partial_, "/", kEvaluator);
  if (samples == 0 && mkdir(path.c_str(), 0755) != 0) {
    return errno == EEXIST ? absl::AlreadyExistsError(absl::StrCat(
                                 "a client is named ", kEvaluator,
                                 ", as the directory of the central test set; rename the client"))
                           : Failed(path, errno);
  }
  LEEWAY_RETURN_IF_ERROR(AppendRows(FilePath(kEvaluator, Part::kTest, 'x'), x, samples == 0));
  LEEWAY_RETURN_IF_ERROR(AppendRows(FilePath(kEvaluator, Part::kTest, 'y'), y, samples == 0));
  samples += x.count;
  return absl::OkStatus();
}

absl::Status FederationWriter::WriteFile(const std::string& name, absl::string_view content) {
  return WriteBytes(absl::StrCat(partial_, "/", name), O_TRUNC, content.data(), content.size());
}

absl::Status FederationWriter::Complete(const std::string& directory, const Client& client) const {
  RowType x = *x_type_;
  if (!options_.shape.empty()) x.shape = options_.shape;
  for (Part part : {Part::kTrain, Part::kTest}) {
    const uint64_t samples = client.samples[static_cast<size_t>(part)];
    if (samples == 0) continue;
    for (const auto& [axis, type] : {std::pair{'x', x}, std::pair{'y', *y_type_}}) {
      const std::string header = NpyHeader(type, samples);
      LEEWAY_RETURN_IF_ERROR(
          WriteBytes(FilePath(directory, part, axis), 0, header.data(), header.size()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FederationWriter::DropSmallClients() {
  uint64_t dropped = 0;
  for (auto it = clients_.begin(); it != clients_.end();) {
    if (it->second.samples[0] >= options_.min_samples) {
      LEEWAY_RETURN_IF_ERROR(Complete(it->first, it->second));
      ++it;
      continue;
    }
    std::error_code error;
    fs::remove_all(absl::StrCat(partial_, "/", it->first), error);
    if (error) return absl::UnavailableError(absl::StrCat(partial_, ": ", error.message()));
    it = clients_.erase(it);
    ++dropped;
  }
  return dropped;
}

absl::StatusOr<Json> FederationWriter::WriteDescription(Json description) {
  std::vector<ClientEntry> entries;
  for (const auto& [directory, client] : clients_)
    entries.push_back({client.name, directory, 0, 0});
  LEEWAY_ASSIGN_OR_RETURN(FederationSummary summary,
                          Summarize(partial_, std::move(entries), /*count_labels=*/true));
  Json json = {{"format", "leeway-federation-1"}};
  json.update(description);
  json.update(SummaryToJson(summary));
  if (options_.classes > 0 && json.contains("classes")) json["classes"] = options_.classes;
  if (!json.contains("notes")) json["notes"] = Json::array();
  for (const std::string& note : NotesOn(json, scales_)) json["notes"].push_back(note);
  LEEWAY_RETURN_IF_ERROR(
      WriteFile("federation.json", json.dump(1, ' ', false, Json::error_handler_t::replace)));
  return json;
}

absl::StatusOr<Json> FederationWriter::Finish(Json description) {
  const auto empty = std::count_if(empty_.begin(), empty_.end(), [this](const std::string& name) {
    return clients_.count(name) + test_only_.count(name) == 0;
  });
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t dropped, DropSmallClients());
  if (clients_.empty()) {
    return Annotate(
        absl::InvalidArgumentError(
            dropped > 0
                ? absl::StrCat("none of the ", dropped, " clients has ", options_.min_samples,
                               " training samples; lower --min-samples")
                : absl::StrCat("no client has a training sample", Some(empty_))),
        SourceOf(description));
  }
  if (const uint64_t samples = central_.samples[static_cast<size_t>(Part::kTest)]; samples > 0) {
    LEEWAY_RETURN_IF_ERROR(Complete(kEvaluator, central_));
    description["central_test_samples"] = samples;
  }
  Json& skipped = description["skipped"];
  skipped["clients_without_samples"] = static_cast<uint64_t>(empty);
  skipped["clients_with_test_data_only"] = test_only_.size();
  skipped["clients_below_min_samples"] = dropped;
  LEEWAY_ASSIGN_OR_RETURN(Json json, WriteDescription(std::move(description)));
  LEEWAY_RETURN_IF_ERROR(RenameNew(partial_, Normal(options_.out)));
  finished_ = true;
  return json;
}

}  // namespace leeway
