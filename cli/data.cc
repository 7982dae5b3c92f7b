#include "cli/data.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/npy.h"
#include "common/status.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

absl::Status MakeDirectory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", path.string()));
}

absl::Status WriteClient(const SyntheticClients& clients, uint32_t client,
                         const fs::path& directory) {
  const SyntheticProblem& problem = clients.problem();
  const SyntheticClient data = clients.Make(client);
  LEEWAY_RETURN_IF_ERROR(MakeDirectory(directory));
  LEEWAY_RETURN_IF_ERROR(
      WriteNpy<double>(directory / "train_x.npy", {problem.samples, problem.dimension}, data.x));
  return WriteNpy<double>(directory / "train_y.npy", {problem.samples}, data.y);
}

absl::Status WriteAll(const SyntheticOptions& options, const fs::path& directory) {
  LEEWAY_RETURN_IF_ERROR(MakeDirectory(directory));
  const SyntheticClients clients(options);
  LEEWAY_RETURN_IF_ERROR(
      WriteNpy<double>(directory / "truth.npy", {options.dimension}, clients.truth()));
  if (options.on_the_fly) {
    std::ofstream file(directory / kSyntheticFile);
    file << SyntheticJson(options);
    file.close();
    return file ? absl::OkStatus() : absl::ErrnoToStatus(errno, "cannot write synthetic.json");
  }
  for (uint32_t c = 0; c < options.clients; ++c) {
    LEEWAY_RETURN_IF_ERROR(WriteClient(clients, c, directory / clients.Name(c)));
  }
  return absl::OkStatus();
}

// Without a trailing slash, so that the temporary name is beside it.
fs::path Normal(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

}  // namespace

std::string TemporaryPath(const std::string& out, int process) {
  return absl::StrCat(Normal(out).string(), ".tmp", process);
}

absl::Status WriteSynthetic(const SyntheticOptions& options) {
  LEEWAY_RETURN_IF_ERROR(CheckSynthetic(options));
  if (options.out.empty()) return absl::InvalidArgumentError("--out is empty; name a directory");
  const fs::path out = Normal(options.out);
  std::error_code error;
  if (fs::exists(out, error) && !(fs::is_directory(out, error) && fs::is_empty(out, error))) {
    return absl::AlreadyExistsError(absl::StrCat(
        options.out, " exists and is not an empty directory; remove it or choose another --out"));
  }
  if (out.has_parent_path()) LEEWAY_RETURN_IF_ERROR(MakeDirectory(out.parent_path()));
  const std::string temporary = TemporaryPath(options.out, getpid());
  const absl::Cleanup remove = [&] { fs::remove_all(temporary, error); };
  LEEWAY_RETURN_IF_ERROR(WriteAll(options, temporary));
  fs::rename(temporary, out, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot rename ", temporary, " to ", out.string()));
}

}  // namespace leeway
