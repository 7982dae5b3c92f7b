// Worker: whatever computes for the clients that a process hosts. It knows their data
// and nothing of connections, limits, encodings or sums. BuiltinWorker has the models
// that Leeway contains; others may ask another program. Not thread-safe: one order at
// a time.
#ifndef LEEWAY_CLIENT_WORKER_H_
#define LEEWAY_CLIENT_WORKER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/client_report.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

// The models of an order.
struct OrderModels {
  std::shared_ptr<const Parameters> model;  // to start from
  // Further vectors in its shape, by name.
  std::map<std::string, std::shared_ptr<const Parameters>> others;
};

class Worker {
 public:
  // Receives the report of the client at this place of the order, or why there is none.
  using Take = absl::FunctionRef<void(size_t place, absl::StatusOr<AnyReport> report)>;

  virtual ~Worker() = default;

  // Who is hosted, with what data: a join request without the process's own fields.
  virtual v1::JoinRequest Hosted() const = 0;
  virtual size_t clients() const = 0;
  // The name of the client at this place of Hosted().
  virtual std::string ClientId(uint32_t client) const = 0;

  // A run begins: what the orders after this refer to.
  virtual absl::Status Prepare(const v1::Welcome& welcome) = 0;
  // The parameters in a model file, checked against the run's model.
  virtual absl::StatusOr<Parameters> Decode(absl::string_view file) const = 0;
  // Does the task for each client of the order, which are all hosted here. Calls `take`
  // once for each, perhaps from several threads at a time. An error takes all of it back.
  virtual absl::Status Compute(const v1::Order& order, const OrderModels& models, Take take) = 0;
  // Clients computed at a time.
  virtual size_t threads() const { return 1; }
  // What each client of an order has taken, by place, in seconds: for the next one's order of
  // work.
  virtual void Learn(const v1::Order& /*order*/, absl::Span<const double> /*seconds*/) {}
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_WORKER_H_
