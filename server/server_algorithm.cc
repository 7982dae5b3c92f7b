#include "server/server_algorithm.h"

namespace leeway {

// One maker for each kind, in a file of its own.
std::unique_ptr<ServerAlgorithm> MakeScaffoldServer(const RunContext& run);
std::unique_ptr<ServerAlgorithm> MakeFedNovaServer();
std::unique_ptr<ServerAlgorithm> MakeFedDynServer(const RunContext& run);

std::unique_ptr<ServerAlgorithm> MakeServerAlgorithm(const v1::LocalRule& rule,
                                                     const RunContext& run) {
  switch (rule.algorithm_case()) {
    case v1::LocalRule::kScaffold:
      return MakeScaffoldServer(run);
    case v1::LocalRule::kFednova:
      return MakeFedNovaServer();
    case v1::LocalRule::kFeddyn:
      return MakeFedDynServer(run);
    default:
      return nullptr;
  }
}

}  // namespace leeway
