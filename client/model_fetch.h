// ModelFetch: the models that orders refer to, inline or by the server's Fetch call. Those
// of the last order are kept, so that what the next one has in common with it is not
// fetched again. For one thread.
#ifndef LEEWAY_CLIENT_MODEL_FETCH_H_
#define LEEWAY_CLIENT_MODEL_FETCH_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/worker.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

class ModelFetch {
 public:
  // The worker, which knows the run's model, outlives this.
  ModelFetch(const Worker& worker, std::shared_ptr<grpc::Channel> channel)
      : worker_(worker), channel_(std::move(channel)) {}

  // All models of an order. NotFound: its round has moved on.
  absl::StatusOr<OrderModels> Get(const v1::Order& order);
  // Another run begins.
  void Clear() { kept_.clear(); }

 private:
  using Kept = std::map<std::string, std::shared_ptr<const Parameters>>;  // by sha256

  absl::StatusOr<std::shared_ptr<const Parameters>> GetOne(const v1::ModelRef& ref, Kept& used);
  absl::Status Transfer(const v1::ModelRef& ref, std::string& file) const;
  absl::Status Continue(const v1::ModelRef& ref, size_t& received, std::string& file) const;

  const Worker& worker_;
  const std::shared_ptr<grpc::Channel> channel_;
  Kept kept_;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_MODEL_FETCH_H_
