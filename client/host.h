// Host: the clients that this process hosts, and the work they do. It computes
// one client per worker thread, so the number of threads changes nothing but
// speed. Not thread-safe: one order at a time.
#ifndef LEEWAY_CLIENT_HOST_H_
#define LEEWAY_CLIENT_HOST_H_

#include <grpcpp/support/slice.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/dataset.h"
#include "client/objective.h"
#include "common/model_layout.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

// What is sent back: the report of one client, or the exact sum of several.
struct Outgoing {
  v1::ReportHeader header;
  grpc::Slice payload;
};

class Host {
 public:
  // Loads every directory, and central test sets; all must have the same schema.
  static absl::StatusOr<Host> Load(const std::vector<std::string>& directories, size_t threads,
                                   const std::vector<std::string>& evaluators = {});

  // What this process announces: everything but its name.
  v1::JoinRequest JoinRequest() const;
  // The name of the client at this place of the join request.
  const std::string& ClientId(uint32_t client) const { return data_[client].id; }
  size_t clients() const { return data_.size(); }
  // Builds the objectives for the run's model.
  absl::Status Prepare(const v1::Welcome& welcome);
  // The model's parameters, checked against the layout.
  absl::StatusOr<Parameters> Decode(absl::string_view file) const;
  // Does an order. A client that fails is left out and named in the header; only
  // an order that makes no sense is an error.
  absl::StatusOr<Outgoing> Work(const v1::Order& order, const Parameters& model);

 private:
  absl::Status Add(Dataset data);
  template <typename T>
  absl::StatusOr<Outgoing> WorkAs(const v1::Order& order, const Vector<T>& model);

  size_t threads_ = 1;
  std::vector<Dataset> data_;
  std::vector<AnyObjective> objectives_;
  ModelLayout layout_;
  uint64_t seed_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_HOST_H_
