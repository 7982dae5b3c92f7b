// Rounds of FedAvg.
#include "absl/strings/str_cat.h"
#include "common/layout.h"
#include "server/phase.h"

namespace leeway {
namespace {

class TrainPhase : public PhaseScript {
 public:
  explicit TrainPhase(const v1::Train& config) : config_(config) {}

  RoundPlan Next(const RunContext& run, uint64_t rounds_done) const override {
    RoundPlan plan;
    plan.record.set_kind(v1::TRAIN_ROUND);
    plan.record.set_server_rate(config_.server().rate());
    *plan.task.mutable_rule() = config_.local();
    plan.task.mutable_rule()->set_step_size(
        run.StepSize(config_.local().step_size(), config_.local().steps()));
    plan.task.set_displacement(true);
    if (!config_.drift_off() && rounds_done % config_.drift_every() == 0) {
      plan.task.add_drift_steps(0);
    }
    plan.sample = run.config.cohort().size();
    plan.rounds_in_phase = config_.rounds();
    plan.base = run.current;
    return plan;
  }

  // w <- w - alpha * m, m <- momentum * m + average displacement (paper, eq. (2)).
  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t rounds_done,
                              RunContext& run) override {
    const ReportLayout layout(plan.task);
    const v1::ServerOptimizer& server = config_.server();
    if (server.momentum() > 0 && momentum_.size() == 0) {
      momentum_ = Vector<double>::Zero(static_cast<Eigen::Index>(run.layout.size()));
    }
    bool finite = true;
    Vector<double> move;
    ModelPtr next =
        ChangeModel(run.layout, *run.current, [&](size_t begin, absl::Span<double> values) {
          const auto size = static_cast<Eigen::Index>(values.size());
          move.resize(size);
          tally.Read(static_cast<size_t>(layout.displacement), begin,
                     absl::MakeSpan(move.data(), values.size()));
          move /= static_cast<double>(tally.weight());
          if (server.momentum() > 0) {
            auto kept = momentum_.segment(static_cast<Eigen::Index>(begin), size);
            kept = server.momentum() * kept + move;
            move = kept;
          }
          Eigen::Map<Vector<double>> w(values.data(), size);
          w -= server.rate() * move;
          finite = finite && w.allFinite();
        });
    if (!finite) {
      return absl::OutOfRangeError(
          absl::StrCat("training diverged in round ", rounds_done,
                       ": the model is no longer finite; lower local.step_size or server.rate"));
    }
    run.current = std::move(next);
    return rounds_done >= config_.rounds();
  }

  std::vector<double> Save() const override {
    return std::vector<double>(momentum_.data(), momentum_.data() + momentum_.size());
  }
  absl::Status Restore(const std::vector<double>& state, const RunContext& run) override {
    if (!state.empty() && state.size() != run.layout.size()) {
      return absl::DataLossError("saved momentum has another size than the model");
    }
    momentum_ =
        Eigen::Map<const Vector<double>>(state.data(), static_cast<Eigen::Index>(state.size()));
    return absl::OkStatus();
  }

 private:
  v1::Train config_;
  Vector<double> momentum_;  // empty until used
};

}  // namespace

std::unique_ptr<PhaseScript> MakeTrainPhase(const v1::Train& config, RunContext& run) {
  run.current = run.At(config.start());
  return std::make_unique<TrainPhase>(config);
}

}  // namespace leeway
