// A whole federation in one test process, without network or files: the real
// script, the real local updates, the real tally.
#ifndef LEEWAY_TESTS_SIMULATED_FEDERATION_H_
#define LEEWAY_TESTS_SIMULATED_FEDERATION_H_

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <memory>
#include <string>
#include <vector>

#include "client/local_update.h"
#include "client/objective.h"
#include "common/rng.h"
#include "common/sampler.h"
#include "common/sums.h"
#include "common/tally.h"
#include "records/config.h"
#include "server/script.h"

namespace leeway {

// F(w) = 1/2 (w - m)' A (w - m): a client with any Hessian and any optimum.
class QuadraticObjective : public Objective<double> {
 public:
  QuadraticObjective(Eigen::MatrixXd a, Eigen::VectorXd m) : a_(std::move(a)), m_(std::move(m)) {}
  uint64_t examples() const override { return 1; }
  double Evaluate(ConstVectorRef<double> w, absl::Span<const uint32_t>,
                  VectorRef<double> gradient) override {
    const Eigen::VectorXd g = a_ * (w - m_);
    gradient = g;
    return 0.5 * g.dot(w - m_);
  }
  double DifferenceStep() const override { return 1; }
  TestResult Test(ConstVectorRef<double>) override { return {}; }
  const Eigen::MatrixXd& hessian() const { return a_; }
  const Eigen::VectorXd& minimiser() const { return m_; }

 private:
  Eigen::MatrixXd a_;
  Eigen::VectorXd m_;
};

// Runs a config over objectives; collects the records.
class SimulatedFederation {
 public:
  SimulatedFederation(std::vector<std::unique_ptr<QuadraticObjective>> clients,
                      const std::string& config_text)
      : clients_(std::move(clients)) {
    absl::StatusOr<v1::RunConfig> config =
        ParseConfig("model { linear_regression { intercept: false } } " + config_text, "test");
    EXPECT_TRUE(config.ok()) << config.status();
    config_ = *config;
    v1::DataSchema schema;
    schema.add_feature_shape(static_cast<uint64_t>(clients_[0]->minimiser().size()));
    layout_ = *LayoutOf(config_.model(), schema);
    script_ = std::make_unique<Script>(config_, layout_, clients_.size());
  }

  // One round; false when the script is done.
  bool Step() {
    if (script_->done()) return false;
    RoundPlan plan = script_->Next();
    const uint64_t drawn = plan.record.round() - plan.rounds_aside;
    const auto cohort = plan.cohort_of_rounds_ago > 0
                            ? cohorts_[cohorts_.size() - plan.cohort_of_rounds_ago]
                            : SampleCohort(config_.seed(), drawn, 1,
                                           static_cast<uint32_t>(clients_.size()), plan.sample);
    cohorts_.push_back(cohort);
    SetUnits(cohort.size(), plan.task);
    Tally tally(TaskSums(plan.task, layout_.size()).shape());
    const Vector<double> start = ValuesOf(layout_, *plan.base);
    const auto groups = DrawGroups(config_.seed(), drawn, 1, static_cast<uint32_t>(cohort.size()),
                                   plan.task.groups());
    LocalTask::Others others;
    for (const auto& [name, model] : plan.others) {
      others[name] = std::make_shared<Parameters>(ValuesOf(layout_, *model));
    }
    const LocalTask task(plan.task, layout_.size(), others);
    const uint64_t batches =
        plan.task.batch_round() > 0 ? plan.task.batch_round() : plan.record.round();
    for (size_t i = 0; i < cohort.size(); ++i) {
      const uint32_t c = cohort[i];
      const auto report = RunTask<double>(*clients_[c], task, start,
                                          Rng(config_.seed(), batches, c, Purpose::kBatchOrder));
      EXPECT_TRUE(report.ok()) << report.status();
      const absl::Status added =
          tally.Add<double>(groups[i], report->weight, report->numbers, report->vectors);
      EXPECT_TRUE(added.ok()) << added;
    }
    const absl::Status absorbed = script_->Absorb(plan, tally);
    EXPECT_TRUE(absorbed.ok()) << absorbed;
    records_.push_back(plan.record);
    return absorbed.ok();
  }
  void Run() {
    while (Step()) {
    }
  }

  // As if the server had been killed between two rounds: all that is left is the
  // saved state and the model files.
  void Restart() {
    v1::ScriptState state;
    ASSERT_TRUE(state.ParseFromString(script_->Save().SerializeAsString()));
    const std::vector<ModelPtr> files = {script_->initial(), script_->current(),
                                         script_->optimum()};
    const auto load = [&files](const std::string& sha256) -> absl::StatusOr<std::string> {
      for (const ModelPtr& model : files) {
        if (model && model->sha256 == sha256) return std::string(model->file.view());
      }
      return absl::NotFoundError(sha256);
    };
    absl::StatusOr<Script> script = Script::Resume(config_, layout_, clients_.size(), state, load);
    ASSERT_TRUE(script.ok()) << script.status();
    script_ = std::make_unique<Script>(*std::move(script));
  }

  Vector<double> current() const { return ValuesOf(layout_, *script_->current()); }
  Vector<double> optimum() const { return ValuesOf(layout_, *script_->optimum()); }
  const std::vector<v1::RoundRecord>& records() const { return records_; }
  const v1::RoundRecord& last() const { return records_.back(); }
  // Who was asked, round by round.
  const std::vector<std::vector<uint32_t>>& cohorts() const { return cohorts_; }
  Script& script() { return *script_; }
  const std::vector<std::unique_ptr<QuadraticObjective>>& clients() const { return clients_; }

 private:
  std::vector<std::unique_ptr<QuadraticObjective>> clients_;
  v1::RunConfig config_;
  ModelLayout layout_;
  std::unique_ptr<Script> script_;
  std::vector<v1::RoundRecord> records_;
  std::vector<std::vector<uint32_t>> cohorts_;
};

inline Eigen::VectorXd RandomVector(Eigen::Index n, Rng& rng) {
  Eigen::VectorXd v(n);
  for (double& x : v) x = rng.Normal();
  return v;
}

// A random symmetric matrix with eigenvalues in [smallest, largest].
inline Eigen::MatrixXd RandomHessian(Eigen::Index n, double smallest, double largest, Rng& rng) {
  Eigen::MatrixXd m(n, n);
  for (Eigen::Index i = 0; i < n; ++i) m.col(i) = RandomVector(n, rng);
  const Eigen::MatrixXd q = m.householderQr().householderQ();
  Eigen::VectorXd d(n);
  for (double& x : d) x = smallest + (largest - smallest) * rng.Uniform();
  return q * d.asDiagonal() * q.transpose();
}

inline Eigen::MatrixXd Power(const Eigen::MatrixXd& m, int exponent) {
  Eigen::MatrixXd out = Eigen::MatrixXd::Identity(m.rows(), m.cols());
  for (int i = 0; i < exponent; ++i) out = out * m;
  return out;
}

}  // namespace leeway

#endif  // LEEWAY_TESTS_SIMULATED_FEDERATION_H_
