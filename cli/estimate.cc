#include "cli/estimate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace leeway {
namespace {

// As the server's phases have it: Hessians up to this size are exchanged whole, and
// an extreme over clients takes at most so many rounds of counting.
constexpr uint64_t kExactDimension = 256;
constexpr uint64_t kMostCounting = 5;

RoundRange ConstantsRounds(const v1::Constants& constants, uint64_t parameters) {
  const RoundRange exact = {1 + 3, 1 + 3 * kMostCounting};
  const uint64_t iterations = std::max(1u, constants.iterations());
  const RoundRange lanczos = {2 + 2, 2 * iterations + 2 * kMostCounting};
  if (parameters == 0) return {exact.least, std::max(exact.most, lanczos.most)};
  return parameters <= kExactDimension ? exact : lanczos;
}

RoundRange TrainRounds(const v1::Train& train) {
  const uint64_t evaluations =
      train.evaluate_every() > 0 ? train.rounds() / train.evaluate_every() : 0;
  const uint64_t rounds =
      train.rounds() + static_cast<uint64_t>(train.probe_at_size()) + evaluations;
  return {rounds, rounds};
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
      return {steps, steps * phase.fixed_point().max_rounds()};
    }
    default:
      return {1, 1};
  }
}

RoundRange RoundsOf(const v1::RunConfig& config, uint64_t parameters) {
  RoundRange all;
  for (const v1::Phase& phase : config.phases()) all += RoundsOf(phase, parameters);
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
  const uint64_t vectors = train.drift_off() ? 1 : 2;  // the displacement and the drift
  RoundBytes bytes;
  bytes.down = layout.size() * (layout.float64 ? 8 : 4);
  bytes.up = static_cast<uint64_t>(std::ceil(static_cast<double>(vectors) * size *
                                             ValueBytes(config.encoding(), layout.float64)));
  return bytes;
}

double TrainingSeconds(const v1::RunConfig& config, const v1::Train& train, uint64_t clients,
                       double examples, const GradientSpeed& speed) {
  const v1::LocalRule& rule = train.local();
  const bool batches = rule.batch_size() > 0;
  // The loss at the start is one more gradient; with batches the drift needs it, too.
  double seconds = speed.full_batch_seconds;
  if (rule.epochs() > 0) {
    seconds +=
        rule.epochs() * (batches ? examples * speed.example_seconds : speed.full_batch_seconds);
  } else {
    const double taken = std::min(static_cast<double>(rule.batch_size()), examples);
    seconds += rule.steps() * (batches ? taken * speed.example_seconds : speed.full_batch_seconds);
  }
  const uint64_t sampled = config.cohort().size() == 0 ? clients : config.cohort().size();
  return seconds * static_cast<double>(sampled) * train.rounds();
}

std::string SpanText(double seconds) {
  if (seconds < 1) return "less than 1 s";
  if (seconds < 90) return absl::StrFormat("%.0f s", seconds);
  if (seconds < 5400) return absl::StrFormat("%.0f min", seconds / 60);
  return absl::StrFormat("%.1f h", seconds / 3600);
}

std::string BytesText(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 10'000) return absl::StrCat(bytes, " bytes");
  if (value < 1e6) return absl::StrFormat("%.0f kB", value / 1e3);
  if (value < 1e9) return absl::StrFormat("%.3g MB", value / 1e6);
  return absl::StrFormat("%.3g GB", value / 1e9);
}

}  // namespace leeway
