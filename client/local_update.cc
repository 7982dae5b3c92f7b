#include "client/local_update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/curvature.h"
#include "client/local_algorithm.h"
#include "common/known_sums.h"
#include "common/status.h"

namespace leeway {
namespace {

// How a task's steps apply to a client with this many examples.
struct Plan {
  bool full_batch = true;
  uint64_t batch_size = 0;
  uint64_t rule_steps = 0;         // what the rule says: h of the displacement
  uint64_t steps = 0;              // what the asked-for vectors need
  std::vector<uint64_t> drift_at;  // h of each drift vector, increasing
};

absl::StatusOr<uint64_t> StepsOf(const v1::LocalRule& rule, uint64_t examples, uint64_t batch) {
  if (rule.steps() > 0 && rule.epochs() > 0) {
    return absl::InvalidArgumentError(absl::StrCat("rule.steps is ", rule.steps(),
                                                   " and rule.epochs is ", rule.epochs(),
                                                   ": give one of them"));
  }
  if (rule.steps() > 0) return rule.steps();
  return rule.epochs() * ((examples + batch - 1) / batch);
}

// A single 0 stands for the last step; otherwise strictly increasing.
absl::StatusOr<std::vector<uint64_t>> DriftAt(const LocalTask& task, uint64_t steps) {
  std::vector<uint64_t> at;
  for (const LocalTask::DriftSum& drift : task.drifts) at.push_back(drift.steps);
  if (at.size() == 1 && at[0] == 0) at[0] = steps;
  uint64_t before = 0;
  for (uint64_t h : at) {
    if (h <= before || h > steps) {
      return absl::InvalidArgumentError(
          absl::StrCat("task.sums asks for drift after {", absl::StrJoin(at, ", "),
                       "} steps: give increasing numbers from 1 to the ", steps,
                       " steps of this client, or a single 0"));
    }
    before = h;
  }
  return at;
}

absl::StatusOr<Plan> MakePlan(const LocalTask& task, uint64_t examples) {
  const v1::LocalRule& rule = task.task().rule();
  for (const v1::Sum& sum : task.task().sums()) {
    if (MetricName(sum.name()).empty()) continue;
    return absl::UnimplementedError(absl::StrCat(
        "the round asks for the metric '", MetricName(sum.name()),
        "', which Leeway's own models do not report: leave it out of train.metrics, or "
        "take part with a worker that reports it (docs/worker.md)"));
  }
  const bool moves = task.displacement != TaskSums::kNone || !task.drifts.empty() ||
                     (task.fine_tunes && examples > 0);
  const double step_size = rule.step_size();
  if (moves && !(std::isfinite(step_size) && step_size > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rule.step_size is ", step_size, ": give a positive number"));
  }
  Plan plan;
  // A batch of everything is the full batch: no need to shuffle and gather it,
  // and the drift after its first step is then exactly 0.
  plan.full_batch = rule.batch_size() == 0 || rule.batch_size() >= examples;
  plan.batch_size = plan.full_batch ? examples : rule.batch_size();
  if (!moves) return plan;
  LEEWAY_ASSIGN_OR_RETURN(plan.rule_steps, StepsOf(rule, examples, plan.batch_size));
  if (plan.rule_steps == 0) {
    return absl::InvalidArgumentError(
        "rule.steps and rule.epochs are 0: give one of them to move at all");
  }
  LEEWAY_ASSIGN_OR_RETURN(plan.drift_at, DriftAt(task, plan.rule_steps));
  const bool all = task.displacement != TaskSums::kNone || task.fine_tunes;
  plan.steps = all ? plan.rule_steps : plan.drift_at.back();
  return plan;
}

// Cuts passes over the rows 0 .. examples-1 into batches.
class Batches {
 public:
  // Without the first `skipped` batches.
  Batches(const Plan& plan, uint64_t examples, Rng rng, uint64_t skipped = 0)
      : batch_size_(plan.batch_size), rng_(rng), order_(plan.full_batch ? 0 : examples) {
    std::iota(order_.begin(), order_.end(), 0u);
    next_ = order_.size();
    for (uint64_t i = 0; i < skipped && !order_.empty(); ++i) Next();
  }

  absl::Span<const uint32_t> Next() {
    if (next_ == order_.size()) {
      rng_.Shuffle(order_);
      next_ = 0;
    }
    const size_t begin = next_;
    next_ = std::min<size_t>(begin + batch_size_, order_.size());
    return absl::MakeConstSpan(order_).subspan(begin, next_ - begin);
  }

 private:
  const uint64_t batch_size_;
  Rng rng_;
  std::vector<uint32_t> order_;
  size_t next_;
};

// A value less itself is 0 unless it is infinite or no number. Unlike Eigen's allFinite() with
// vector instructions.
template <typename Values>
bool Finite(const Values& x) {
  return (x - x).sum() == 0;
}

// The share of labels that are at least `label`, for every label.
std::vector<double> SharesFrom(const TargetSummary& summary) {
  std::vector<double> from = summary.shares;
  for (size_t label = from.size(); label > 1; --label) from[label - 2] += from[label - 1];
  return from;
}

// One client's work on one task.
template <typename T>
class Trajectory {
 public:
  Trajectory(Objective<T>& objective, const LocalTask& task, const Plan& plan,
             ConstVectorRef<T> start, Rng rng, LocalAlgorithm<T>* algorithm)
      : objective_(objective),
        local_task_(task),
        task_(task.task()),
        plan_(plan),
        step_size_(static_cast<T>(task_.rule().step_size())),
        start_(start),
        algorithm_(algorithm),
        sign_(SignOf(rng)),
        first_{plan.full_batch, Batches(plan, objective.examples(), rng, task_.batch_step()), {}} {
    if (!task.repeats || plan.full_batch) return;
    others_.reserve(task_.repeats());
    others_.push_back({true, Batches(plan, 0, rng), {}});
    for (uint32_t r = 1; r < task_.repeats(); ++r) {
      const Rng own(rng.Next64(), r, 0, Purpose::kBatchOrder);
      others_.push_back({false, Batches(plan, objective.examples(), own), {}});
    }
  }

  absl::StatusOr<ClientReport<T>> Run() {
    const TaskSums& sums = local_task_.sums();
    report_.weight = task_.weighting() == v1::EXAMPLES ? objective_.examples() : 1;
    report_.numbers.resize(sums.numbers());
    report_.vectors.resize(sums.vectors() * static_cast<size_t>(start_.size()));
    if (!Finite(start_)) {
      return absl::InvalidArgumentError(
          "the model to start from is not finite: restart from an earlier one with a lower "
          "step_size");
    }
    // An evaluator has nothing to fine-tune with.
    if (local_task_.trains() || (local_task_.fine_tunes && objective_.examples() > 0)) {
      Start();
      LEEWAY_RETURN_IF_ERROR(OfGradient());
      LEEWAY_RETURN_IF_ERROR(Difference());
      LEEWAY_RETURN_IF_ERROR(Move());
    }
    LEEWAY_RETURN_IF_ERROR(AccuracyDifference());
    if (local_task_.tests) LEEWAY_RETURN_IF_ERROR(Test());
    if (local_task_.targets) Targets();
    LEEWAY_RETURN_IF_ERROR(Curvature());
    sums.Derive<T>(report_.weight, report_.vectors, absl::MakeSpan(report_.numbers));
    for (size_t i = 0; i < report_.numbers.size(); ++i) {
      if (!std::isfinite(report_.numbers[i])) return NotFinite(sums.shape().numbers[i].name, 0);
    }
    if (local_task_.trains() && TooFar()) {
      if (const std::string why = StepTooLarge(); !why.empty()) {
        return absl::InvalidArgumentError(why);
      }
    }
    return std::move(report_);
  }

 private:
  // A local model on its way, as displacement from the start.
  struct Path {
    bool full_batch;
    Batches batches;
    Vector<T> u;
  };

  // H_c v, or H_c (H_c v - u), with the vectors that the order carries.
  absl::Status Products() {
    const int product = local_task_.sums().vector(kHessianProduct);
    const int spread = local_task_.sums().vector(kHessianSpread);
    if (product == TaskSums::kNone && spread == TaskSums::kNone) return absl::OkStatus();
    const Vector<double> w = start_.template cast<double>();
    LEEWAY_ASSIGN_OR_RETURN(const Vector<T>* direction, local_task_.Other<T>(kDirection));
    Vector<double> value = HessianVector(objective_, w, direction->template cast<double>());
    if (product != TaskSums::kNone) Report(product) = value.template cast<T>();
    if (spread == TaskSums::kNone) return absl::OkStatus();
    LEEWAY_ASSIGN_OR_RETURN(const Vector<T>* mean, local_task_.Other<T>(kMeanProduct));
    value = HessianVector(objective_, w, Vector<double>(value - mean->template cast<double>()));
    Report(spread) = value.template cast<T>();
    return absl::OkStatus();
  }

  absl::Status Curvature() {
    LEEWAY_RETURN_IF_ERROR(Products());
    if (!local_task_.curvature) return absl::OkStatus();
    if constexpr (std::is_same_v<T, double>) {
      return ReportCurvature(objective_, task_, local_task_.sums(), start_,
                             absl::MakeSpan(report_.vectors), absl::MakeSpan(report_.numbers));
    }
    return absl::UnimplementedError("curvature is measured for convex models only");
  }

  // Loss and, where it is asked for or is the first step, gradient over all examples
  // at the start.
  void Start() {
    gradient_.resize(start_.size());
    local_.resize(start_.size());
    // A task that only counts needs neither.
    const bool counts =
        local_task_.loss == TaskSums::kNone && plan_.steps == 0 && !local_task_.targets;
    const bool needed = local_task_.gradient != TaskSums::kNone || !local_task_.drifts.empty() ||
                        local_task_.of_gradient || (plan_.full_batch && !counts) ||
                        !others_.empty();
    if (needed) {
      Set(local_task_.loss, objective_.Evaluate(start_, {}, gradient_));
    } else if (local_task_.loss != TaskSums::kNone) {
      Set(local_task_.loss, objective_.Loss(start_, gradient_));
    }
    if (needed) full_step_ = step_size_ * gradient_;
    if (local_task_.gradient != TaskSums::kNone) Report(local_task_.gradient) = gradient_;
  }

  // What is made of the gradient that Start has left.
  absl::Status OfGradient() {
    if (!local_task_.of_gradient) return absl::OkStatus();
    const TaskSums& sums = local_task_.sums();
    if (const int place = sums.vector(kSignedGradient); place != TaskSums::kNone) {
      Report(place) = static_cast<T>(sign_) * gradient_;
    }
    if (const int place = sums.number(kNewtonDecrement); place != TaskSums::kNone) {
      LEEWAY_ASSIGN_OR_RETURN(const double decrement,
                              NewtonDecrement(task_, gradient_.template cast<double>()));
      Set(place, static_cast<double>(report_.weight) * decrement);
    }
    const auto largest = static_cast<double>(gradient_.cwiseAbs().maxCoeff());
    Set(sums.number(kLargestGradient), largest * largest);
    return absl::OkStatus();
  }

  // Of this client's losses at the model and at the other one that the order carries. Both are
  // of Loss, not of Evaluate, so that equal models have equal losses to the last bit.
  absl::Status Difference() {
    if (!local_task_.compares) return absl::OkStatus();
    LEEWAY_ASSIGN_OR_RETURN(const Vector<T>* other, local_task_.Other<T>(kOtherModel));
    const double own = objective_.Loss(start_, local_);
    const double difference = objective_.Loss(*other, local_) - own;
    Set(local_task_.loss_difference, difference);
    CountClient(kLossDifferenceAbove, difference);
    return absl::OkStatus();
  }

  // The same of the accuracies on the test part; without one it is above no threshold.
  absl::Status AccuracyDifference() {
    if (!local_task_.compares_accuracies) return absl::OkStatus();
    LEEWAY_ASSIGN_OR_RETURN(const Vector<T>* other, local_task_.Other<T>(kOtherModel));
    const TestResult own = objective_.Test(start_);
    if (own.examples == 0) return absl::OkStatus();
    const auto more =
        static_cast<double>(objective_.Test(*other).correct) - static_cast<double>(own.correct);
    CountClient(kAccuracyDifferenceAbove, more / static_cast<double>(own.examples));
    return absl::OkStatus();
  }

  // Counts this client, whatever it weighs, if its value is above the thresholds of `name`.
  void CountClient(absl::string_view name, double value) {
    size_t place = 0;  // among the numbers
    for (const v1::Sum& sum : task_.sums()) {
      if (sum.name() == name && value > sum.threshold()) {
        report_.numbers[place] = 1 / static_cast<double>(report_.weight);
      }
      if (sum.shape() == v1::NUMBER) ++place;
    }
  }

  absl::Status Move() {
    first_.u = Vector<T>::Zero(start_.size());
    for (Path& path : others_) path.u = first_.u;
    size_t drift = 0;
    for (uint64_t h = 1; h <= plan_.steps; ++h) {
      if (!Step(h, first_)) return NotFinite("the displacement", h);
      for (Path& path : others_) Step(h, path);
      if (drift < plan_.drift_at.size() && plan_.drift_at[drift] == h) {
        Drift(drift, h);
        Spread(drift++, h);
      }
    }
    if (local_task_.displacement != TaskSums::kNone) Report(local_task_.displacement) = first_.u;
    Set(local_task_.sums().number(kLocalSteps), static_cast<double>(plan_.steps));
    if (algorithm_ && plan_.steps > 0) {
      algorithm_->Finish(first_.u, plan_.steps,
                         [this](absl::string_view sum, const Vector<T>& value) {
                           const int place = local_task_.sums().vector(sum);
                           if (place != TaskSums::kNone) Report(place) = value;
                         });
    }
    return absl::OkStatus();
  }

  // u^(h) = u^(h-1) + step_size * gradient at w - u^(h-1). False if it is not finite.
  bool Step(uint64_t h, Path& path) {
    if (path.full_batch && h == 1 && !algorithm_) {
      path.u = full_step_;
      return Finite(path.u);
    }
    local_ = start_ - path.u;
    if (path.full_batch) {
      const bool known = h == 1 && &path == &first_;  // Start has left it in gradient_
      if (!known) objective_.FullGradient(local_, gradient_);
    } else {
      objective_.Evaluate(local_, path.batches.Next(), gradient_);
    }
    if (algorithm_) algorithm_->Correct(path.u, gradient_);
    // Some at a time, which are then looked at while they are in the cache: large models are not.
    constexpr Eigen::Index kSome = 2048;
    bool finite = true;
    for (Eigen::Index i = 0; i < path.u.size(); i += kSome) {
      auto u = path.u.segment(i, std::min(kSome, path.u.size() - i));
      u += step_size_ * gradient_.segment(i, u.size());
      finite &= Finite(u);
    }
    return finite;
  }

  // B_c^h = (step_size * gradient - u^h/h) / step_size.
  void Drift(size_t k, uint64_t h) {
    local_ = (full_step_ - first_.u / static_cast<T>(h)) / step_size_;
    Report(local_task_.drifts[k].vector) = local_;
  }

  // delta_c = (w_GD - E w) / (step_size h) and the variance of the pseudo-gradient,
  // from R stochastic paths. The squared mean of finitely many overstates
  // |delta_c|^2 by variance/R. Steps over the whole data set have neither.
  void Spread(size_t k, uint64_t h) {
    if (others_.empty()) return;
    const auto ahead = [this](const Path& path) {  // of gradient descent
      return Vector<double>((path.u - others_[0].u).template cast<double>());
    };
    const double paths = static_cast<double>(others_.size());  // others_[0] is not one, first_ is
    Vector<double> mean = ahead(first_);
    for (size_t r = 1; r < others_.size(); ++r) mean += ahead(others_[r]);
    mean /= paths;
    double squares = (ahead(first_) - mean).squaredNorm();
    for (size_t r = 1; r < others_.size(); ++r) squares += (ahead(others_[r]) - mean).squaredNorm();
    const double variance = squares / (paths - 1);
    const double length = task_.rule().step_size() * static_cast<double>(h);
    const LocalTask::DriftSum& sum = local_task_.drifts[k];
    Set(sum.iterate_bias_squared, (mean.squaredNorm() - variance / paths) / (length * length));
    Set(sum.pseudo_gradient_variance,
        static_cast<double>(report_.weight) * variance / (length * length));
  }

  absl::Status Test() {
    const TaskSums& sums = local_task_.sums();
    const bool moved = local_task_.fine_tunes && first_.u.size() > 0;
    const Vector<T> evaluated = moved ? Vector<T>(start_ - first_.u) : start_;
    const TestResult result = objective_.Test(evaluated);
    const auto examples = static_cast<double>(result.examples);
    Set(sums.number(kTestExamples), examples);
    Set(sums.number(kTestLoss), result.loss_sum);
    Set(sums.number(kTestCorrect), static_cast<double>(result.correct));
    LEEWAY_RETURN_IF_ERROR(TestDifference(evaluated, result));
    if (result.examples == 0) return absl::OkStatus();  // no test part: above no threshold
    TestCounts(result);
    CountAbove(task_, kAccuracyAbove, static_cast<double>(result.correct) / examples, sums,
               absl::MakeSpan(report_.numbers));
    CountAbove(task_, kTestLossAbove, result.loss_sum / examples, sums,
               absl::MakeSpan(report_.numbers));
    return absl::OkStatus();
  }

  // Is this client better off with `evaluated` than with the other model? Without a test part
  // the training part tells, unless the client has just been fitted to it.
  absl::Status TestDifference(const Vector<T>& evaluated, const TestResult& result) {
    const TaskSums& sums = local_task_.sums();
    if (sums.number(kTestDifference) == TaskSums::kNone) return absl::OkStatus();
    if (result.examples == 0 && (local_task_.fine_tunes || objective_.examples() == 0)) {
      return absl::OkStatus();
    }
    LEEWAY_ASSIGN_OR_RETURN(const Vector<T>* other, local_task_.Other<T>(kOtherModel));
    double difference = 0;
    if (result.examples > 0) {
      difference = (result.loss_sum - objective_.Test(*other).loss_sum) /
                   static_cast<double>(result.examples);
    } else {
      gradient_.resize(start_.size());
      difference = objective_.Loss(evaluated, gradient_);
      difference -= objective_.Loss(*other, gradient_);
    }
    Set(sums.number(kTestDifference), difference);
    CountAbove(task_, kTestDifferenceAbove, difference, sums, absl::MakeSpan(report_.numbers));
    return absl::OkStatus();
  }

  // How many labels, and how many scores of each class, are above the thresholds asked for.
  void TestCounts(const TestResult& result) {
    const auto labels_above = [&](double threshold) {
      double count = 0;
      for (size_t label = 0; label < result.labels.size(); ++label) {
        if (static_cast<double>(label) > threshold)
          count += static_cast<double>(result.labels[label]);
      }
      return count;
    };
    const auto scores_above = [](const std::vector<double>& scores, double threshold) {
      return static_cast<double>(std::count_if(scores.begin(), scores.end(),
                                               [&](double score) { return score > threshold; }));
    };
    size_t place = 0;  // among the numbers
    for (const v1::Sum& sum : task_.sums()) {
      const double t = sum.threshold();
      if (sum.name() == kTestLabelAbove) report_.numbers[place] = labels_above(t);
      if (sum.name() == kPositiveScoreAbove) {
        report_.numbers[place] = scores_above(result.scores[1], t);
      }
      if (sum.name() == kNegativeScoreAbove) {
        report_.numbers[place] = scores_above(result.scores[0], t);
      }
      if (sum.shape() == v1::NUMBER) ++place;
    }
  }

  void Targets() {
    const TaskSums& sums = local_task_.sums();
    const TargetSummary summary = objective_.Targets();
    Set(sums.number(kTarget), summary.mean);
    Set(sums.number(kSquaredTarget), summary.mean_square);
    const std::vector<double> from = SharesFrom(summary);
    size_t place = 0;  // among the numbers
    for (const v1::Sum& sum : task_.sums()) {
      if (sum.name() == kLabelAbove) {
        const double next = std::max(0.0, std::floor(sum.threshold()) + 1);
        const bool any = next < static_cast<double>(from.size());
        report_.numbers[place] = any ? std::min(1.0, from[static_cast<size_t>(next)]) : 0;
      }
      if (sum.shape() == v1::NUMBER) ++place;
    }
  }

  // A number, if it is asked for.
  void Set(int place, double value) {
    if (place != TaskSums::kNone) report_.numbers[static_cast<size_t>(place)] = value;
  }

  Eigen::Map<Vector<T>> Report(int index) {
    return {report_.vectors.data() + index * start_.size(), start_.size()};
  }

  absl::Status NotFinite(absl::string_view what, uint64_t h) {
    const std::string text =
        absl::StrCat(what, " is not finite", h > 0 ? absl::StrCat(" after local step ", h) : "");
    const std::string why = StepTooLarge();
    return absl::InvalidArgumentError(
        why.empty() ? absl::StrCat(text, " with step_size ", task_.rule().step_size(),
                                   ": lower step_size, or scale the data")
                    : absl::StrCat(text, ": ", why));
  }

  // Whether the report will be refused for its size: the displacement for what the task
  // accepts (a norm limit deals with that itself), or a loss that has no unit any more.
  bool TooFar() const {
    constexpr double kLargestLoss = 0x1p100;
    if (local_task_.loss != TaskSums::kNone &&
        std::abs(report_.numbers[static_cast<size_t>(local_task_.loss)]) > kLargestLoss) {
      return true;
    }
    if (local_task_.displacement == TaskSums::kNone || task_.max_norm() > 0) return false;
    const double limit =
        local_task_.sums().shape().vectors[static_cast<size_t>(local_task_.displacement)].largest;
    return limit > 0 && static_cast<double>(first_.u.cwiseAbs().maxCoeff()) > limit;
  }

  // Why the step size is what went wrong; empty if it is not. Of a convex model the
  // curvature tells, of a network the loss at the end of the local steps.
  std::string StepTooLarge() {
    const double eta = task_.rule().step_size();
    if constexpr (std::is_same_v<T, double>) {
      const Vector<double> origin = Vector<double>::Zero(start_.size());
      const std::optional<double> everywhere = objective_.SmoothnessEverywhere();
      const double smoothness = everywhere ? *everywhere : SpectrumOf(objective_, origin).largest;
      if (!(eta * smoothness > 2)) return "";
      return absl::StrFormat(
          "the step size %.4g is too large: above 2/L = %.4g this client's local steps diverge, "
          "and the largest that is safe is 1/L = %.4g; lower step_size, or use auto_step_size: "
          "true after a constants phase",
          eta, 2 / smoothness, 1 / smoothness);
    }
    if (local_task_.loss == TaskSums::kNone) return "";
    const double before = report_.numbers[static_cast<size_t>(local_task_.loss)];
    local_ = start_ - first_.u;
    const double after = objective_.Loss(local_, gradient_);
    if (after <= before) return "";
    return absl::StrFormat(
        "the step size %.4g is too large: this client's loss went from %.4g to %.4g within its "
        "local steps; lower step_size, for instance to %.4g",
        eta, before, after, eta / 10);
  }

  Objective<T>& objective_;
  const LocalTask& local_task_;
  const v1::Task& task_;
  const Plan& plan_;
  const T step_size_;
  // A copy in Eigen's own, aligned storage: where vector instructions start,
  // and with it rounding, does not depend on the caller.
  const Vector<T> start_;
  LocalAlgorithm<T>* const algorithm_;  // null: gradient descent
  const double sign_;                   // of signed_gradient
  Path first_;                          // the one whose displacement and drift are reported
  std::vector<Path> others_;            // with repeats: gradient descent, then repeats - 1 more

  Vector<T> gradient_;
  Vector<T> full_step_;
  Vector<T> local_;  // the local model; at recorded steps, the drift
  ClientReport<T> report_;
};

}  // namespace

LocalTask::LocalTask(const v1::Task& task, size_t dimension, Others others)
    : task_(task), sums_(task, dimension), others_(std::move(others)) {
  loss = sums_.number(kLoss);
  loss_difference = sums_.number(kLossDifference);
  compares =
      loss_difference != TaskSums::kNone || sums_.number(kLossDifferenceAbove) != TaskSums::kNone;
  compares_accuracies = sums_.number(kAccuracyDifferenceAbove) != TaskSums::kNone;
  gradient = sums_.vector(kGradient);
  displacement = sums_.vector(kDisplacement);
  for (const char* name :
       {kTestExamples, kTestLoss, kTestCorrect, kAccuracyAbove, kTestLossAbove}) {
    tests = tests || sums_.number(name) != TaskSums::kNone;
  }
  fine_tunes = tests && (task.rule().steps() > 0 || task.rule().epochs() > 0);
  for (const uint32_t steps : sums_.StepsOf(kDrift)) {
    drifts.push_back({steps, sums_.vector(kDrift, steps), sums_.number(kIterateBiasSquared, steps),
                      sums_.number(kPseudoGradientVariance, steps)});
    repeats = repeats || drifts.back().iterate_bias_squared != TaskSums::kNone ||
              drifts.back().pseudo_gradient_variance != TaskSums::kNone;
  }
  for (const char* name : {kLabelAbove, kTarget, kSquaredTarget}) {
    targets = targets || sums_.number(name) != TaskSums::kNone;
  }
  of_gradient = sums_.vector(kSignedGradient) != TaskSums::kNone ||
                sums_.number(kNewtonDecrement) != TaskSums::kNone ||
                sums_.number(kLargestGradient) != TaskSums::kNone;
  products = sums_.vector(kHessianProduct) != TaskSums::kNone ||
             sums_.vector(kHessianSpread) != TaskSums::kNone;
  curvature = sums_.vector(kHessian) != TaskSums::kNone ||
              sums_.vector(kSquaredHessianDistance) != TaskSums::kNone ||
              sums_.number(kLargestHessian) != TaskSums::kNone;
  for (const char* name : {kSmoothnessAbove, kConvexityAbove, kHessianDistanceAbove}) {
    curvature = curvature || sums_.number(name) != TaskSums::kNone;
  }
}

double SignOf(Rng rng) { return Rng(rng.Next64(), 0, 0, Purpose::kSigns).Below(2) == 0 ? 1 : -1; }

absl::StatusOr<double> NewtonDecrement(const v1::Task& task, const Vector<double>& gradient) {
  const auto n = static_cast<size_t>(gradient.size());
  if (task.inverse_hessian().size() != n * n * sizeof(double)) {
    return absl::InvalidArgumentError(absl::StrCat("task.inverse_hessian has ",
                                                   task.inverse_hessian().size(),
                                                   " bytes, expected ", n, " x ", n, " numbers"));
  }
  Eigen::MatrixXd inverse(gradient.size(), gradient.size());
  std::memcpy(inverse.data(), task.inverse_hessian().data(), n * n * sizeof(double));
  return std::max(0.0, gradient.dot(inverse * gradient));
}

template <typename T>
absl::StatusOr<const Vector<T>*> LocalTask::Other(const std::string& name) const {
  const auto found = others_.find(name);
  const auto* values =
      found == others_.end() ? nullptr : std::get_if<Vector<T>>(found->second.get());
  if (values != nullptr) return values;
  return absl::InvalidArgumentError(absl::StrCat("order.others has no '", name,
                                                 "' in the type of the model, which the task ",
                                                 "needs; install the server's version of Leeway"));
}
template absl::StatusOr<const Vector<float>*> LocalTask::Other<float>(const std::string&) const;
template absl::StatusOr<const Vector<double>*> LocalTask::Other<double>(const std::string&) const;

template <typename T>
absl::StatusOr<ClientReport<T>> RunTask(Objective<T>& objective, const LocalTask& task,
                                        ConstVectorRef<T> start, Rng rng, Vector<T>& state) {
  LEEWAY_ASSIGN_OR_RETURN(const Plan plan, MakePlan(task, objective.examples()));
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<LocalAlgorithm<T>> algorithm,
                          MakeLocalAlgorithm<T>(task, state));
  return Trajectory<T>(objective, task, plan, start, rng, algorithm.get()).Run();
}

template absl::StatusOr<ClientReport<float>> RunTask<float>(Objective<float>&, const LocalTask&,
                                                            ConstVectorRef<float>, Rng,
                                                            Vector<float>&);
template absl::StatusOr<ClientReport<double>> RunTask<double>(Objective<double>&, const LocalTask&,
                                                              ConstVectorRef<double>, Rng,
                                                              Vector<double>&);

}  // namespace leeway
