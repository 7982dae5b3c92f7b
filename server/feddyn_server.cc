// FedDyn (Acar et al. 2021), the server's part: m, the displacements of all rounds so far added up
// and divided by the number N of all clients (by weight where they count by examples). The model
// moves by the mean displacement of the round's clients plus m, the round included.
#include "common/sums.h"
#include "server/server_algorithm.h"

namespace leeway {
namespace {

class FedDynServer : public ServerAlgorithm {
 public:
  explicit FedDynServer(const RunContext& run)
      : moved_(Vector<double>::Zero(static_cast<Eigen::Index>(run.layout.size()))) {}

  bool keeps_state() const override { return true; }

  void Complete(const RunContext& /*run*/, RoundPlan& /*plan*/) const override {}

  Correction MakeCorrection(const RoundPlan& plan, const Tally& tally,
                            const RunContext& run) const override {
    const double share = static_cast<double>(tally.weight()) / AllClients(plan, run);
    return [this, share](size_t begin, Eigen::Map<Vector<double>>& mean) {
      mean *= 1 + share;
      mean += moved_.segment(static_cast<Eigen::Index>(begin), mean.size());
    };
  }

  void Absorb(const RoundPlan& plan, const Tally& tally, const RunContext& run) override {
    const TaskSums sums(plan.task, run.layout.size());
    moved_ += tally.vector(static_cast<size_t>(sums.vector(kDisplacement))) / AllClients(plan, run);
    begun_ = true;
  }

  std::vector<double> Save() const override {
    if (!begun_) return {};
    return {moved_.data(), moved_.data() + moved_.size()};
  }

  void Restore(const std::vector<double>& state, const RunContext& /*run*/) override {
    if (state.empty()) return;
    moved_ = Eigen::Map<const Vector<double>>(state.data(), moved_.size());
    begun_ = true;
  }

 private:
  static double AllClients(const RoundPlan& plan, const RunContext& run) {
    return static_cast<double>(plan.task.weighting() == v1::EXAMPLES ? run.examples : run.clients);
  }

  Vector<double> moved_;  // m
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakeFedDynServer(const RunContext& run) {
  return std::make_unique<FedDynServer>(run);
}

}  // namespace leeway
