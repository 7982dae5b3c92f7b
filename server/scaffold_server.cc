// SCAFFOLD (Karimireddy et al. 2019), the server's part: the control variate c, which goes out
// with every order. c <- c + |S|/N * average change of the control variates of the clients
// in S, so that c stays the average over all N clients of theirs, by the run's weighting.
#include "common/sums.h"
#include "server/scale.h"
#include "server/server_algorithm.h"

namespace leeway {
namespace {

class ScaffoldServer : public ServerAlgorithm {
 public:
  explicit ScaffoldServer(const RunContext& run)
      : control_(Vector<double>::Zero(static_cast<Eigen::Index>(run.layout.size()))),
        sent_(MakeModel(run.layout, control_)) {}

  bool keeps_state() const override { return true; }

  void Complete(const RunContext& run, RoundPlan& plan) const override {
    // Two gradients apart at most, as drifts are.
    Ask(kControlChange, plan.task)
        .set_largest(LargestGradient(run, MaxUpdate(run.config) / plan.task.rule().step_size()));
    plan.others["control"] = sent_;
  }

  void Absorb(const RoundPlan& plan, const Tally& tally, const RunContext& run) override {
    const TaskSums sums(plan.task, run.layout.size());
    const bool by_examples = plan.task.weighting() == v1::EXAMPLES;
    const auto all = static_cast<double>(by_examples ? run.examples : run.clients);
    control_ += tally.vector(static_cast<size_t>(sums.vector(kControlChange))) / all;
    sent_ = MakeModel(run.layout, control_);
    moved_ = true;
  }

  std::vector<double> Save() const override {
    if (!moved_) return {};
    return {control_.data(), control_.data() + control_.size()};
  }

  void Restore(const std::vector<double>& state, const RunContext& run) override {
    if (state.empty()) return;
    control_ = Eigen::Map<const Vector<double>>(state.data(), control_.size());
    sent_ = MakeModel(run.layout, control_);
    moved_ = true;
  }

 private:
  Vector<double> control_;  // c
  ModelPtr sent_;           // the same in the model's type
  bool moved_ = false;
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakeScaffoldServer(const RunContext& run) {
  return std::make_unique<ScaffoldServer>(run);
}

}  // namespace leeway
