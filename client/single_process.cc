// The job of a process that is alone. Asked for several, it becomes the program for MPI,
// which is a program of its own so that nobody else needs MPI installed.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/job.h"

namespace leeway {
namespace {

class SingleProcess : public Job {
 public:
  absl::Status TakeShare(BuiltinWorkerOptions& /*options*/) override { return absl::OkStatus(); }
  absl::Status TakePart(Worker& worker, const ConnectionOptions& options) override {
    return leeway::TakePart(worker, options);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Job>> EnterJob(bool ranks, char** argv) {
  if (!ranks) return std::make_unique<SingleProcess>();
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path program = own.parent_path() / "leeway-client-mpi";
  execv(program.c_str(), argv);
  return absl::NotFoundError(absl::StrCat(
      "--mpi: there is no ", program.string(),
      "; install libopenmpi-dev and build again, or leave out --mpi and use several processes"));
}

}  // namespace leeway
