// Measures L, mu, the clients' extremes and the Hessian dissimilarity. Everything
// that leaves a client is a sum: a Hessian, a gradient, or, for extremes over
// clients, counts of clients above a list of thresholds that closes in on them.
#include <Eigen/Eigenvalues>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/lanczos.h"
#include "common/status.h"
#include "common/sums.h"
#include "server/phase.h"
#include "server/scale.h"
#include "server/threshold_search.h"

namespace leeway {
namespace {

constexpr double kDifferenceStep = 1e-4;  // of gradients, for Lanczos

class ConstantsPhase : public PhaseScript {
 public:
  ConstantsPhase(const v1::Constants& config, const RunContext& run)
      : config_(config),
        dimension_(static_cast<Eigen::Index>(run.layout.size())),
        exact_(run.layout.size() <= kExactDimension),
        lanczos_(dimension_, config.iterations()) {}

  RoundPlan Next(const RunContext& run, uint64_t) const override {
    RoundPlan plan;
    plan.record.set_kind(v1::CONSTANTS_ROUND);
    plan.record.set_point(config_.point());
    plan.base = run.At(config_.point());
    if (stage_ == Stage::kGlobal && exact_) {
      Ask(kHessian, plan.task).set_largest(LargestHessian(run));
    } else if (stage_ == Stage::kGlobal) {
      const double sign = plus_.size() == 0 ? kDifferenceStep : -kDifferenceStep;
      plan.base = MakeModel(run.layout, Vector<double>(ValuesOf(run.layout, *plan.base) +
                                                       sign * lanczos_.direction()));
      Ask(kGradient, plan.task)
          .set_largest(LargestGradient(run, kUsualGradient * MaxUpdate(run.config)));
    } else {
      for (const double t : search_.thresholds()) AskAbove(CountOf(stage_), t, plan.task);
      if (stage_ == Stage::kDistance) {
        plan.task.set_reference_hessian(
            std::string(reinterpret_cast<const char*>(hessian_.data()),
                        static_cast<size_t>(hessian_.size()) * sizeof(double)));
      }
    }
    return plan;
  }

  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t,
                              RunContext& run) override {
    if (stage_ == Stage::kGlobal) {
      AbsorbGlobal(plan.task, tally);
      // Lanczos iteration comes to the smallest eigenvalue last; of softmax regression it is the
      // penalty's, at every model.
      const v1::Model& model = run.config.model();
      if (!exact_ && model.has_softmax_regression()) {
        result_.set_convexity(model.softmax_regression().l2());
      }
      return false;
    }
    std::vector<bool> any;
    std::vector<bool> all;
    const TaskSums sums(plan.task, tally.shape().dimension);
    const auto first = static_cast<size_t>(sums.number(CountOf(stage_)));
    for (size_t j = 0; j < search_.thresholds().size(); ++j) {
      const double count = tally.number(first + j);
      any.push_back(count > 0.5);
      all.push_back(count > static_cast<double>(tally.weight()) - 0.5);
    }
    // The largest: some client is above; the smallest: all clients are.
    search_.Narrow(stage_ == Stage::kConvexity ? all : any);
    if (!search_.done()) return false;
    Store();
    const bool over = stage_ == Stage::kDistance || (stage_ == Stage::kConvexity && !exact_);
    if (!over) {
      stage_ = static_cast<Stage>(static_cast<int>(stage_) + 1);
      search_ = ThresholdSearch();
      return false;
    }
    run.constants = result_;
    *plan.record.mutable_constants() = result_;
    return true;
  }

  std::vector<double> Save() const override {
    std::vector<double> out = {static_cast<double>(stage_),
                               static_cast<double>(plus_.size() != 0),
                               static_cast<double>(hessian_.size() != 0),
                               search_.low(),
                               search_.high(),
                               static_cast<double>(search_.rounds()),
                               result_.smoothness(),
                               result_.convexity(),
                               result_.largest_client_smoothness(),
                               result_.smallest_client_convexity()};
    out.insert(out.end(), plus_.data(), plus_.data() + plus_.size());
    out.insert(out.end(), hessian_.data(), hessian_.data() + hessian_.size());
    if (stage_ == Stage::kGlobal && !exact_) {
      const std::vector<double> lanczos = lanczos_.Save();
      out.insert(out.end(), lanczos.begin(), lanczos.end());
    }
    return out;
  }

  absl::Status Restore(const std::vector<double>& state, const RunContext&) override {
    constexpr size_t kFixed = 10;
    const auto d = static_cast<size_t>(dimension_);
    if (state.size() < kFixed) return absl::DataLossError("saved constants are cut short");
    const size_t plus = state[1] != 0 ? d : 0;
    const size_t hessian = state[2] != 0 ? d * d : 0;
    if (state.size() < kFixed + plus + hessian) {
      return absl::DataLossError("saved constants are cut short");
    }
    stage_ = static_cast<Stage>(static_cast<int>(state[0]));
    search_ = ThresholdSearch(state[3], state[4], static_cast<int>(state[5]));
    result_.set_smoothness(state[6]);
    result_.set_convexity(state[7]);
    result_.set_largest_client_smoothness(state[8]);
    result_.set_smallest_client_convexity(state[9]);
    const double* next = state.data() + kFixed;
    plus_ = Eigen::Map<const Vector<double>>(next, static_cast<Eigen::Index>(plus));
    next += plus;
    if (hessian > 0) hessian_ = Eigen::Map<const Eigen::MatrixXd>(next, dimension_, dimension_);
    next += hessian;
    if (stage_ != Stage::kGlobal || exact_) return absl::OkStatus();
    return lanczos_.Restore(std::vector<double>(next, state.data() + state.size()));
  }

 private:
  enum class Stage { kGlobal, kSmoothness, kConvexity, kDistance };

  static const char* CountOf(Stage stage) {
    if (stage == Stage::kSmoothness) return kSmoothnessAbove;
    return stage == Stage::kConvexity ? kConvexityAbove : kHessianDistanceAbove;
  }

  // One more piece of the Hessian of F: all of it, or a product for Lanczos.
  void AbsorbGlobal(const v1::Task& task, const Tally& tally) {
    if (exact_) {
      const TaskSums sums(task, tally.shape().dimension);
      const auto first = static_cast<size_t>(sums.vector(kHessian));
      const auto weight = static_cast<double>(tally.weight());
      hessian_.resize(dimension_, dimension_);
      for (Eigen::Index j = 0; j < dimension_; ++j) {
        hessian_.col(j) = tally.vector(first + static_cast<size_t>(j)) / weight;
      }
      hessian_ = 0.5 * (hessian_ + Eigen::MatrixXd(hessian_.transpose()));
      const Eigen::VectorXd values =
          Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(hessian_, Eigen::EigenvaluesOnly)
              .eigenvalues();
      FinishGlobal(values.minCoeff(), values.maxCoeff());
      return;
    }
    const Vector<double> gradient = MeanOf(task, tally, kGradient);
    if (plus_.size() == 0) {
      plus_ = gradient;
      return;
    }
    lanczos_.Observe((plus_ - gradient) / (2 * kDifferenceStep));
    plus_.resize(0);
    if (lanczos_.done()) FinishGlobal(lanczos_.smallest(), lanczos_.largest());
  }

  void FinishGlobal(double smallest, double largest) {
    result_.set_convexity(smallest);
    result_.set_smoothness(largest);
    result_.set_exact(exact_);
    result_.set_hessian_dissimilarity(std::numeric_limits<double>::quiet_NaN());
    stage_ = Stage::kSmoothness;
  }

  // Bounds on the safe side: the largest from above, the smallest from below.
  void Store() {
    if (stage_ == Stage::kSmoothness) result_.set_largest_client_smoothness(search_.high());
    if (stage_ == Stage::kConvexity) result_.set_smallest_client_convexity(search_.low());
    if (stage_ == Stage::kDistance) result_.set_hessian_dissimilarity(search_.high());
    result_.set_exact(exact_);
  }

  v1::Constants config_;
  Eigen::Index dimension_;
  bool exact_;
  Stage stage_ = Stage::kGlobal;
  Lanczos lanczos_;
  Vector<double> plus_;      // gradient at the upper point of a difference; else empty
  Eigen::MatrixXd hessian_;  // of F, when exact
  ThresholdSearch search_;
  v1::ConstantsResult result_;
};

}  // namespace

std::unique_ptr<PhaseScript> MakeConstantsPhase(const v1::Constants& config,
                                                const RunContext& run) {
  return std::make_unique<ConstantsPhase>(config, run);
}

}  // namespace leeway
