#include "server/server_optimizer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {

void ServerOptimizer::Begin(size_t dimension) {
  dimension_ = dimension;
  if (!state_.empty()) return;
  for (const double value : initial_) state_.insert(state_.end(), dimension, value);
}

absl::Status ServerOptimizer::Restore(std::vector<double> state, size_t dimension) {
  if (!state.empty() && state.size() != initial_.size() * dimension) {
    return absl::DataLossError(absl::StrCat("the saved state of the server optimizer has ",
                                            state.size(), " numbers, expected ", initial_.size(),
                                            " x ", dimension));
  }
  state_ = std::move(state);
  return absl::OkStatus();
}

std::unique_ptr<ServerOptimizer> MakeServerOptimizer(const v1::ServerOptimizer& config) {
  switch (config.adaptive_case()) {
    case v1::ServerOptimizer::kAdagrad:
      return MakeAdagradOptimizer(config);
    case v1::ServerOptimizer::kAdam:
      return MakeAdamOptimizer(config);
    case v1::ServerOptimizer::kYogi:
      return MakeYogiOptimizer(config);
    default:
      return MakeMomentumOptimizer(config);
  }
}

}  // namespace leeway
