#include "client/state_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/durable_file.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr char kPendingSuffix[] = ".new";

void Append(uint64_t number, std::string& out) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof number);
}

void Append(const StateStore::State& state, std::string& out) {
  Append(state.round, out);
  Append(state.bytes.size(), out);
  Append(Xxh3(state.bytes), out);
  out.append(state.bytes);
}

bool TakeNumber(absl::string_view& file, uint64_t& number) {
  if (file.size() < sizeof number) return false;
  std::memcpy(&number, file.data(), sizeof number);
  file.remove_prefix(sizeof number);
  return true;
}

// False at the end of the file, or where it is damaged.
bool TakeState(absl::string_view& file, StateStore::State& state) {
  uint64_t size = 0;
  uint64_t hash = 0;
  if (!TakeNumber(file, state.round) || !TakeNumber(file, size) || !TakeNumber(file, hash) ||
      file.size() < size) {
    return false;
  }
  state.bytes = std::string(file.substr(0, size));
  file.remove_prefix(size);
  return Xxh3(state.bytes) == hash;
}

// Hands everything written to this file system to its disk: one call for all clients.
absl::Status SyncFiles(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", directory, errno);
  const int result = syncfs(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : FileError("cannot sync", directory, error);
}

}  // namespace

std::string StateStore::PathOf(absl::string_view run, absl::string_view client) const {
  // Names may hold anything, file names may not; nor may a server choose where we write.
  return absl::StrCat(directory_, "/", Sha256Hex(run).substr(0, 16), "/", Sha256Hex(client),
                      ".state");
}

absl::StatusOr<std::string> StateStore::Get(absl::string_view run, absl::string_view client,
                                            uint64_t round) const {
  const std::string path = PathOf(run, client);
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  const std::string file = bytes.str();
  absl::string_view rest = file;
  State state;
  while (TakeState(rest, state)) {
    if (state.round == round) return std::move(state.bytes);
  }
  return absl::NotFoundError(absl::StrCat(
      "the state of client '", client, "' after round ", round, " is not in ", path,
      in ? ", which is damaged or of another round" : ", which is not there",
      "; start leeway-client with the --state directory that it had before, or restore that from "
      "a copy: without it this client can take no further part in this phase"));
}

absl::Status StateStore::MakeDirectory(absl::string_view run) {
  const std::lock_guard lock(mu_);
  if (made_ == run) return absl::OkStatus();
  const std::filesystem::path directory = std::filesystem::path(PathOf(run, "")).parent_path();
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make ", directory.string(), " for what this client keeps between ",
                     "rounds: ", error.message(), "; give another directory with --state"));
  }
  LEEWAY_RETURN_IF_ERROR(SyncDirectory(directory.parent_path().string()));
  made_ = std::string(run);
  return absl::OkStatus();
}

absl::Status StateStore::Put(absl::string_view run, absl::string_view client, const State& counted,
                             const State& computed) {
  LEEWAY_RETURN_IF_ERROR(MakeDirectory(run));
  const std::string path = PathOf(run, client);
  std::string bytes;
  Append(counted, bytes);
  Append(computed, bytes);
  // Under its temporary name until all of the order's are on the disk.
  LEEWAY_RETURN_IF_ERROR(
      WriteFile(absl::StrCat(path, kPendingSuffix), bytes, /*sync=*/false, 0600));
  const std::lock_guard lock(mu_);
  unflushed_.push_back(path);
  return absl::OkStatus();
}

absl::Status StateStore::Flush() {
  std::vector<std::string> paths;
  {
    const std::lock_guard lock(mu_);
    paths.swap(unflushed_);
  }
  if (paths.empty()) return absl::OkStatus();
  const std::string directory = std::filesystem::path(paths[0]).parent_path();
  LEEWAY_RETURN_IF_ERROR(SyncFiles(directory));
  for (const std::string& path : paths) {
    LEEWAY_RETURN_IF_ERROR(Rename(absl::StrCat(path, kPendingSuffix), path, /*sync=*/false));
  }
  return SyncDirectory(directory);
}

}  // namespace leeway
