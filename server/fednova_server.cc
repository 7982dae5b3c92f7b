// FedNova (Wang et al. 2020), the server's part: clients report their displacements per local step,
// and the model moves by the mean of those times the mean number of steps.
#include "common/sums.h"
#include "server/server_algorithm.h"

namespace leeway {
namespace {

class FedNovaServer : public ServerAlgorithm {
 public:
  bool keeps_state() const override { return false; }

  void Complete(const RunContext& run, RoundPlan& plan) const override {
    const v1::LocalRule& rule = plan.task.rule();
    // With epochs nobody takes more steps than one who held all examples.
    const uint64_t passes = rule.batch_size() == 0 ? 1 : run.examples / rule.batch_size() + 1;
    const uint64_t most = rule.steps() > 0 ? rule.steps() : rule.epochs() * passes;
    Ask(kLocalSteps, plan.task).set_largest(static_cast<double>(most));
  }

  Correction MakeCorrection(const RoundPlan& plan, const Tally& tally,
                            const RunContext& run) const override {
    const TaskSums sums(plan.task, run.layout.size());
    const double mean_steps = tally.number(static_cast<size_t>(sums.number(kLocalSteps))) /
                              static_cast<double>(tally.weight());
    return [mean_steps](size_t /*begin*/, Eigen::Map<Vector<double>>& mean) { mean *= mean_steps; };
  }
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakeFedNovaServer() { return std::make_unique<FedNovaServer>(); }

}  // namespace leeway
