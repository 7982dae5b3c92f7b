// Measures L, mu, the clients' extremes and how their Hessians differ. Everything
// that leaves a client is a sum: a Hessian, a gradient, a product with a Hessian or, for
// extremes over clients, counts of clients above a list of thresholds that closes in on them.
// Of models in float32, such as networks, only products are asked for: L and mu are then the
// extreme eigenvalues of the Hessian of F, and the clients' own extremes stay unknown.
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
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr uint32_t kSpreadIterations = 10;  // where the config leaves it open

class ConstantsPhase : public PhaseScript {
 public:
  ConstantsPhase(const v1::Constants& config, const RunContext& run)
      : config_(config),
        dimension_(static_cast<Eigen::Index>(run.layout.size())),
        spectra_(run.layout.float64),
        exact_(spectra_ && run.layout.size() <= kExactDimension),
        lanczos_(dimension_, config.iterations(),
                 spectra_ ? Lanczos::Keep::kAll : Lanczos::Keep::kLastTwo),
        spread_(dimension_,
                config.dissimilarity_iterations() > 0 ? config.dissimilarity_iterations()
                                                      : kSpreadIterations,
                Lanczos::Keep::kLastTwo) {}

  RoundPlan Next(const RunContext& run, uint64_t) const override {
    RoundPlan plan;
    plan.record.set_kind(v1::CONSTANTS_ROUND);
    plan.record.set_point(config_.point());
    plan.base = run.At(config_.point());
    if (stage_ == Stage::kSpread) {
      PlanSpread(run, plan);
    } else if (stage_ == Stage::kGlobal && exact_) {
      Ask(kHessian, plan.task).set_largest(LargestHessian(run));
    } else if (stage_ == Stage::kGlobal && !spectra_) {
      PlanProduct(lanczos_, kHessianProduct, LargestProduct(run), run, plan);
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
        if (search_.rounds() == 0) {
          const double largest = LargestProduct(run);
          Ask(kSquaredHessianDistance, plan.task).set_largest(largest * largest);
        }
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
    if (stage_ == Stage::kSpread) {
      AbsorbSpread(plan.task, tally);
      return stage_ == Stage::kOver && Finish(plan, run);
    }
    if (Asks(plan.task, kSquaredHessianDistance)) {
      SetMeanDissimilarity(
          Eigenvalues(MatrixOf(plan.task, tally, kSquaredHessianDistance)).maxCoeff());
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
    search_ = ThresholdSearch();
    stage_ = Following(stage_);
    return stage_ == Stage::kOver && Finish(plan, run);
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
                               result_.smallest_client_convexity(),
                               result_.hessian_dissimilarity(),
                               result_.mean_hessian_dissimilarity()};
    out.insert(out.end(), plus_.data(), plus_.data() + plus_.size());
    out.insert(out.end(), hessian_.data(), hessian_.data() + hessian_.size());
    if (const Lanczos* iteration = Iteration()) {
      const std::vector<double> saved = iteration->Save();
      out.insert(out.end(), saved.begin(), saved.end());
    }
    return out;
  }

  absl::Status Restore(const std::vector<double>& state, const RunContext&) override {
    constexpr size_t kFixed = 12;
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
    result_.set_hessian_dissimilarity(state[10]);
    result_.set_mean_hessian_dissimilarity(state[11]);
    result_.set_exact(exact_);
    const double* next = state.data() + kFixed;
    plus_ = Eigen::Map<const Vector<double>>(next, static_cast<Eigen::Index>(plus));
    next += plus;
    if (hessian > 0) hessian_ = Eigen::Map<const Eigen::MatrixXd>(next, dimension_, dimension_);
    next += hessian;
    if (Iteration() == nullptr) return absl::OkStatus();
    Lanczos& iteration = stage_ == Stage::kSpread ? spread_ : lanczos_;
    return iteration.Restore(std::vector<double>(next, state.data() + state.size()));
  }

 private:
  enum class Stage { kGlobal, kSmoothness, kConvexity, kDistance, kSpread, kOver };

  // With exact Hessians the distance's first round gives the spread, too.
  Stage Following(Stage stage) const {
    if (stage == Stage::kGlobal) return spectra_ ? Stage::kSmoothness : Stage::kSpread;
    if (stage == Stage::kSmoothness) return Stage::kConvexity;
    if (stage == Stage::kConvexity) return exact_ ? Stage::kDistance : Stage::kSpread;
    return Stage::kOver;
  }

  // The iteration in progress; null if there is none.
  const Lanczos* Iteration() const {
    if (stage_ == Stage::kSpread) return &spread_;
    return stage_ == Stage::kGlobal && !exact_ ? &lanczos_ : nullptr;
  }

  // A bound on the coordinates of a product of a client's Hessian with a unit vector.
  double LargestProduct(const RunContext& run) const {
    const double known = result_.largest_client_smoothness();
    if (stage_ != Stage::kGlobal && known > 0) return 2 * known;
    return kUsualGradient * MaxUpdate(run.config);
  }

  // A product with the vector that the iteration wants.
  static void PlanProduct(const Lanczos& iteration, const char* sum, double largest,
                          const RunContext& run, RoundPlan& plan) {
    plan.others[kDirection] = MakeModel(run.layout, iteration.direction());
    plan.without_loss = true;
    Ask(sum, plan.task).set_largest(largest);
  }

  // Two rounds a product with sum p_c (H_c - H)^2: u = sum p_c H_c v, then
  // sum p_c H_c (H_c v - u).
  void PlanSpread(const RunContext& run, RoundPlan& plan) const {
    const double largest = LargestProduct(run);
    if (plus_.size() == 0) return PlanProduct(spread_, kHessianProduct, largest, run, plan);
    PlanProduct(spread_, kHessianSpread, largest * largest, run, plan);
    plan.others[kMeanProduct] = MakeModel(run.layout, plus_);
  }

  void AbsorbSpread(const v1::Task& task, const Tally& tally) {
    if (plus_.size() == 0) {
      plus_ = MeanOf(task, tally, kHessianProduct);
      return;
    }
    spread_.Observe(MeanOf(task, tally, kHessianSpread));
    plus_.resize(0);
    if (!spread_.done()) return;
    SetMeanDissimilarity(spread_.largest());
    stage_ = Stage::kOver;
  }

  void SetMeanDissimilarity(double largest_eigenvalue) {
    result_.set_mean_hessian_dissimilarity(std::sqrt(std::max(largest_eigenvalue, 0.0)));
  }

  bool Finish(RoundPlan& plan, RunContext& run) const {
    run.constants = result_;
    *plan.record.mutable_constants() = result_;
    return true;
  }

  static Eigen::VectorXd Eigenvalues(const Eigen::MatrixXd& matrix) {
    return Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(matrix, Eigen::EigenvaluesOnly)
        .eigenvalues();
  }

  // The weighted mean over clients of a matrix, made symmetric.
  Eigen::MatrixXd MatrixOf(const v1::Task& task, const Tally& tally, const char* name) const {
    const TaskSums sums(task, tally.shape().dimension);
    const auto first = static_cast<size_t>(sums.vector(name));
    const auto weight = static_cast<double>(tally.weight());
    Eigen::MatrixXd matrix(dimension_, dimension_);
    for (Eigen::Index j = 0; j < dimension_; ++j) {
      matrix.col(j) = tally.vector(first + static_cast<size_t>(j)) / weight;
    }
    return 0.5 * (matrix + Eigen::MatrixXd(matrix.transpose()));
  }

  static const char* CountOf(Stage stage) {
    if (stage == Stage::kSmoothness) return kSmoothnessAbove;
    return stage == Stage::kConvexity ? kConvexityAbove : kHessianDistanceAbove;
  }

  // One more piece of the Hessian of F: all of it, or a product for Lanczos.
  void AbsorbGlobal(const v1::Task& task, const Tally& tally) {
    if (exact_) {
      hessian_ = MatrixOf(task, tally, kHessian);
      const Eigen::VectorXd values = Eigenvalues(hessian_);
      FinishGlobal(values.minCoeff(), values.maxCoeff());
      return;
    }
    if (!spectra_) {
      lanczos_.Observe(MeanOf(task, tally, kHessianProduct));
      if (lanczos_.done()) FinishGlobal(lanczos_.smallest(), lanczos_.largest());
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
    for (const auto set : {&v1::ConstantsResult::set_largest_client_smoothness,
                           &v1::ConstantsResult::set_smallest_client_convexity,
                           &v1::ConstantsResult::set_hessian_dissimilarity,
                           &v1::ConstantsResult::set_mean_hessian_dissimilarity}) {
      (result_.*set)(kNaN);
    }
    stage_ = Following(stage_);
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
  bool spectra_;  // clients compute Hessians and spectra of their own
  bool exact_;
  Stage stage_ = Stage::kGlobal;
  Lanczos lanczos_;
  Lanczos spread_;  // of sum p_c (H_c - H)^2
  // Between two rounds for one product: the gradient at the upper point of a difference, or u.
  Vector<double> plus_;
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
