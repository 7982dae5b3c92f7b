// What happens to a client's report between the worker that computed it and the wire:
// a row of steps, each a class of its own. Steps have no state and are thread-safe.
#ifndef LEEWAY_CLIENT_REPORT_STEP_H_
#define LEEWAY_CLIENT_REPORT_STEP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "client/client_report.h"
#include "common/sums.h"
#include "proto/federation.pb.h"

namespace leeway {

// What a step may know of the report.
struct ReportContext {
  const v1::Task& task;
  const TaskSums& sums;
  uint64_t seed = 0;    // of the run
  uint64_t round = 0;   // of the order
  uint64_t client = 0;  // ClientKey of its name
};

class ReportStep {
 public:
  virtual ~ReportStep() = default;
  // Changes the report, or says why the client cannot send it.
  virtual absl::Status Apply(const ReportContext& context, ClientReport<float>& report) const = 0;
  virtual absl::Status Apply(const ReportContext& context, ClientReport<double>& report) const = 0;
};

// Brings a displacement that is longer than task.max_norm down to it, or refuses it.
std::unique_ptr<ReportStep> MakeNormLimit();
// Is its displacement well within task.max_norm, so that the step above has nothing to do?
template <typename T>
bool IsShort(const ClientReport<T>& report, const v1::Task& task, const TaskSums& sums);
// Writes the vectors in a short encoding: afterwards the report holds what the server will
// read, the bytes, and how far that is from the exact vectors.
std::unique_ptr<ReportStep> MakeShortEncoding();

// The steps that a task asks for, in order.
std::vector<std::unique_ptr<ReportStep>> StepsFor(const v1::Task& task);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_REPORT_STEP_H_
