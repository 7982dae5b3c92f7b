#include "cli/estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "records/final_loss.h"
#include "records/network_config.h"
#include "records/release_config.h"
#include "records/who_pays.h"

namespace leeway {
namespace {

// As the server's phases have it: Hessians up to this size are exchanged whole, and
// an extreme over clients takes at most so many rounds of counting.
constexpr uint64_t kExactDimension = 256;
// What a fixed_point phase compares gaps with (server/yardstick.h).
constexpr uint64_t kExactYardstick = 3;
constexpr uint64_t kMostYardstick = 1 + 3 * 51;
constexpr uint64_t kMostCounting = 5;

// Products for the mean Hessian dissimilarity, as server/constants_phase.cc has it.
uint64_t SpreadIterations(const v1::Constants& constants) {
  return constants.dissimilarity_iterations() > 0 ? constants.dissimilarity_iterations() : 10;
}

// Of models in float32: products with Hessians alone.
RoundRange ProductRounds(const v1::Constants& constants) {
  return {1 + 2, std::max(1u, constants.iterations()) + 2 * SpreadIterations(constants)};
}

RoundRange ConstantsRounds(const v1::Constants& constants, uint64_t parameters) {
  const RoundRange exact = {1 + 3, 1 + 3 * kMostCounting};
  const uint64_t iterations = std::max(1u, constants.iterations());
  const RoundRange lanczos = {2 + 2 + 2,
                              2 * iterations + 2 * kMostCounting + 2 * SpreadIterations(constants)};
  if (parameters == 0) return {exact.least, std::max(exact.most, lanczos.most)};
  return parameters <= kExactDimension ? exact : lanczos;
}

RoundRange TrainRounds(const v1::Train& train) {
  const uint64_t evaluations =
      train.evaluate_every() > 0 ? train.rounds() / train.evaluate_every() : 0;
  const uint64_t rounds =
      train.rounds() + static_cast<uint64_t>(train.probe_at_size()) + evaluations +
      (train.has_release()
           ? static_cast<uint64_t>(train.release_at_size()) * RoundsOf(train.release())
           : 0);
  return {rounds, rounds};
}

// Rounds that searches usually take; a fixed point for each number of local steps.
constexpr double kUsualOptimumRounds = 60;
constexpr double kUsualFixedPointRounds = 10;

// Full-batch gradients that a client takes for the constants: whole Hessians by central
// differences, or Lanczos iteration; then the extremes over clients, by counting. Of softmax
// regression a client knows them without.
double ConstantsGradients(const v1::Constants& constants, const v1::Model& model,
                          uint64_t parameters) {
  constexpr double kClientIterations = 40;  // client/curvature.cc
  const bool exact = parameters <= kExactDimension;
  const double whole = 2.0 * static_cast<double>(parameters);
  // A product is two gradients, and the second round for the dissimilarity takes two of them.
  const double products = 6 * static_cast<double>(SpreadIterations(constants));
  if (IsNetwork(model)) return 2.0 * constants.iterations() + products;
  const double of_all = exact ? 2 * whole : 2.0 * constants.iterations() + products;
  if (model.has_softmax_regression()) return exact ? of_all + kMostCounting * whole : of_all;
  return of_all + 2 * kMostCounting * (exact ? whole : 2 * kClientIterations);
}

double Sampled(uint32_t asked, uint64_t clients) {
  return static_cast<double>(asked == 0 ? clients : asked);
}

double ProbeSeconds(const v1::Probe& probe, const Workload& work) {
  const uint32_t steps = probe.steps().empty() ? 0 : *probe.steps().rbegin();
  const double one = probe.batch_size() == 0
                         ? work.speed.full_batch_seconds
                         : std::min(static_cast<double>(probe.batch_size()), work.examples) *
                               work.speed.example_seconds;
  return (work.speed.full_batch_seconds + std::max(1u, probe.repeats()) * steps * one) *
         Sampled(probe.clients(), work.clients);
}

// Two losses in every round of counting; a loss takes half as long as a gradient.
double WhoPaysGradients(int numbers_of_steps) {
  return static_cast<double>(kWhoPaysRounds) * numbers_of_steps;
}

// Both branches' steps, and the evaluations at the ends.
double ReleaseSeconds(const v1::ReleaseTest& release, const Workload& work) {
  const double one = release.batch_size() == 0
                         ? work.speed.full_batch_seconds
                         : std::min(static_cast<double>(release.batch_size()), work.examples) *
                               work.speed.example_seconds;
  const double steps =
      release.rounds() * (std::accumulate(release.steps().begin(), release.steps().end(), 0.0) +
                          *release.steps().rbegin());
  return (release.repeats() * (steps * one + release.steps_size() * work.speed.full_batch_seconds) +
          (release.who_pays_off() ? 0 : WhoPaysGradients(release.steps_size())) *
              work.speed.full_batch_seconds) *
         Sampled(release.clients(), work.clients);
}

// The loss at the start is one more gradient; with batches the drift needs it, too.
double TrainingSeconds(const v1::RunConfig& config, const v1::Train& train, const Workload& work) {
  const v1::LocalRule& rule = train.local();
  const bool batches = rule.batch_size() > 0;
  const GradientSpeed& speed = work.speed;
  double seconds = speed.full_batch_seconds;
  if (rule.epochs() > 0) {
    seconds += rule.epochs() *
               (batches ? work.examples * speed.example_seconds : speed.full_batch_seconds);
  } else {
    const double taken = std::min(static_cast<double>(rule.batch_size()), work.examples);
    // How many steps auto_steps chooses is not known: the most.
    const uint32_t steps = rule.has_auto_steps() ? rule.auto_steps().largest() : rule.steps();
    seconds += steps * (batches ? taken * speed.example_seconds : speed.full_batch_seconds);
  }
  return seconds * Sampled(config.cohort().size(), work.clients) * train.rounds() +
         train.probe_at_size() * ProbeSeconds(train.probe(), work) +
         (train.has_release() ? train.release_at_size() * ReleaseSeconds(train.release(), work)
                              : 0);
}

// Bytes of one value as clients write it.
double ValueBytes(v1::WireEncoding encoding, bool float64) {
  switch (encoding) {
    case v1::BFLOAT16_WIRE:
      return 2;
    case v1::INT8_WIRE:
      return 1 + 4.0 / 256;  // and a scale per 256 values
    default:
      return float64 ? 8 : 4;
  }
}

}  // namespace

RoundRange RoundsOf(const v1::Phase& phase, uint64_t parameters) {
  switch (phase.kind_case()) {
    case v1::Phase::kOptimum:
      return {1, uint64_t{phase.optimum().max_rounds()} + 1};
    case v1::Phase::kTrain:
      return TrainRounds(phase.train());
    case v1::Phase::kEvaluate:
      if (phase.evaluate().percentiles().empty()) return {1, 1};
      return {1, 1 + 2 * kMostCounting};
    case v1::Phase::kConstants:
      return ConstantsRounds(phase.constants(), parameters);
    case v1::Phase::kFixedPoint: {
      const auto steps = static_cast<uint64_t>(phase.fixed_point().steps_size());
      const uint64_t aside = RoundsAside(phase.fixed_point());
      const uint64_t least = steps + aside;
      const uint64_t most = steps * phase.fixed_point().max_rounds() + aside;
      return parameters <= kExactDimension
                 ? RoundRange{least + kExactYardstick, most + kExactYardstick}
                 : RoundRange{least + 1, most + kMostYardstick};
    }
    case v1::Phase::kRelease:
      return {RoundsOf(phase.release()), RoundsOf(phase.release())};
    default:
      return {1, 1};
  }
}

RoundRange RoundsOf(const v1::RunConfig& config, int phase, uint64_t parameters) {
  const v1::Phase& one = config.phases(phase);
  RoundRange rounds = one.has_constants() && IsNetwork(config.model())
                          ? ProductRounds(one.constants())
                          : RoundsOf(one, parameters);
  if (phase + 1 == config.phases_size() && EndsWithLossRound(config)) rounds += {1, 1};
  return rounds;
}

RoundRange RoundsOf(const v1::RunConfig& config, uint64_t parameters) {
  RoundRange all;
  for (int i = 0; i < config.phases_size(); ++i) all += RoundsOf(config, i, parameters);
  return all;
}

std::string RoundsText(const RoundRange& rounds) {
  if (rounds.least < rounds.most) {
    return absl::StrCat(rounds.least, " to ", rounds.most, " rounds");
  }
  return absl::StrCat(rounds.most, rounds.most == 1 ? " round" : " rounds");
}

RoundBytes TrainingBytes(const v1::RunConfig& config, const v1::Train& train,
                         const ModelLayout& layout) {
  const auto size = static_cast<double>(layout.size());
  // The displacement, the drift, and the gradient that the choice of steps needs.
  const uint64_t vectors = 1 + (train.drift_off() ? 0 : 1) +
                           (train.local().has_auto_steps() ? 1 : 0) +
                           (train.local().has_scaffold() ? 1 : 0);
  RoundBytes bytes;
  // With SCAFFOLD the control variate goes along, down and up.
  bytes.down = layout.size() * (layout.float64 ? 8 : 4) * (train.local().has_scaffold() ? 2 : 1);
  bytes.up = static_cast<uint64_t>(std::ceil(static_cast<double>(vectors) * size *
                                             ValueBytes(config.encoding(), layout.float64)));
  return bytes;
}

double PhaseSeconds(const v1::RunConfig& config, const v1::Phase& phase, const Workload& work) {
  const double full = work.speed.full_batch_seconds * static_cast<double>(work.clients);
  switch (phase.kind_case()) {
    case v1::Phase::kOptimum:
      return kUsualOptimumRounds * full;
    case v1::Phase::kTrain:
      return TrainingSeconds(config, phase.train(), work);
    case v1::Phase::kProbe:
      return ProbeSeconds(phase.probe(), work);
    case v1::Phase::kConstants:
      return ConstantsGradients(phase.constants(), config.model(), work.parameters) * full;
    case v1::Phase::kFixedPoint: {
      const v1::FixedPoint& fixed = phase.fixed_point();
      const double steps = std::accumulate(fixed.steps().begin(), fixed.steps().end(), 0.0);
      return (kUsualFixedPointRounds + fixed.after_rounds()) * steps * full +
             (fixed.who_pays_off() ? 0 : WhoPaysGradients(fixed.steps_size())) * full;
    }
    case v1::Phase::kRelease:
      return ReleaseSeconds(phase.release(), work);
    default:
      return full;
  }
}

double RunSeconds(const v1::RunConfig& config, const Workload& work) {
  double seconds = 0;
  for (const v1::Phase& phase : config.phases()) seconds += PhaseSeconds(config, phase, work);
  return seconds;
}

std::string SpanText(double seconds) {
  if (seconds < 1) return "less than 1 s";
  if (seconds < 90) return absl::StrFormat("about %.0f s", seconds);
  if (seconds < 5400) return absl::StrFormat("about %.0f min", seconds / 60);
  return absl::StrFormat("about %.1f h", seconds / 3600);
}

std::string BytesText(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 10'000) return absl::StrCat(bytes, " bytes");
  if (value < 1e6) return absl::StrFormat("%.0f kB", value / 1e3);
  if (value < 1e9) return absl::StrFormat("%.3g MB", value / 1e6);
  return absl::StrFormat("%.3g GB", value / 1e9);
}

}  // namespace leeway
