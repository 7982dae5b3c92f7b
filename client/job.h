// Job: the processes that the server sees as one. leeway-client is a job of one process;
// leeway-client-mpi is a rank of an MPI job (engines/mpi). A program links one of them.
#ifndef LEEWAY_CLIENT_JOB_H_
#define LEEWAY_CLIENT_JOB_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/builtin_worker.h"
#include "client/connection.h"
#include "client/worker.h"

namespace leeway {

class Job {
 public:
  virtual ~Job() = default;
  // Leaves in `options` the data that this process hosts.
  virtual absl::Status TakeShare(BuiltinWorkerOptions& options) = 0;
  // leeway::TakePart for the whole job; every process of it calls this.
  virtual absl::Status TakePart(Worker& worker, const ConnectionOptions& options) = 0;
};

// Call it once, before anything else that may fail. `ranks`: the user has asked for several
// processes that act as one.
absl::StatusOr<std::unique_ptr<Job>> EnterJob(bool ranks, char** argv);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_JOB_H_
