#include "records/final_loss.h"

#include <cmath>

namespace leeway {
namespace {

bool MeasuresCurrentLoss(const v1::Phase& phase) {
  return (phase.has_probe() && phase.probe().point() == v1::Probe::CURRENT) ||
         (phase.has_release() && phase.release().point() == v1::Probe::CURRENT);
}

// The last training round of this phase; null if it has none.
const v1::RoundRecord* LastOf(const RunSummary& run, uint32_t phase) {
  for (auto record = run.records.rbegin(); record != run.records.rend(); ++record) {
    if (record->phase() < phase) break;
    if (record->phase() == phase && record->kind() == v1::TRAIN_ROUND) return &*record;
  }
  return nullptr;
}

bool Trains(const RunSummary& run, uint32_t phase) {
  return static_cast<int>(phase) < run.config.phases_size() &&
         run.config.phases(static_cast<int>(phase)).has_train();
}

}  // namespace

bool EndsWithLossRound(const v1::RunConfig& config) {
  if (config.model().has_file()) return false;
  for (int i = config.phases_size() - 1; i >= 0; --i) {
    if (MeasuresCurrentLoss(config.phases(i))) return false;
    if (!config.phases(i).has_train()) continue;
    // Nobody is waited for in the end of a run that measures little, or does not wait in training.
    const v1::Train& train = config.phases(i).train();
    return !train.loss_off() && !train.drift_off() && config.cohort().spare() == 0;
  }
  return false;
}

const v1::RoundRecord* LossAfterTraining(const RunSummary& run, uint32_t phase) {
  const v1::RoundRecord* last = LastOf(run, phase);
  if (last == nullptr || !Trains(run, phase) ||
      last->round_in_phase() < run.config.phases(static_cast<int>(phase)).train().rounds()) {
    return nullptr;
  }
  for (const v1::RoundRecord& record : run.records) {
    if (record.round() > last->round() && record.base_sha256() == last->model_sha256() &&
        std::isfinite(record.loss())) {
      return &record;
    }
  }
  return nullptr;
}

const v1::RoundRecord* FinalLoss(const RunSummary& run) {
  for (int i = run.config.phases_size() - 1; i >= 0; --i) {
    const auto phase = static_cast<uint32_t>(i);
    if (LastOf(run, phase) != nullptr) return LossAfterTraining(run, phase);
  }
  return nullptr;
}

std::optional<Training> TrainingOf(const RunSummary& run, const v1::RoundRecord& record) {
  if (Trains(run, record.phase())) {
    // A training round's record is of the model that it starts from.
    return Training{record.phase(),
                    record.round_in_phase() - (record.kind() == v1::TRAIN_ROUND ? 1 : 0)};
  }
  for (auto one = run.records.rbegin(); one != run.records.rend(); ++one) {
    if (one->round() >= record.round() || one->kind() != v1::TRAIN_ROUND) continue;
    if (one->model_sha256() != record.base_sha256()) return std::nullopt;
    return Training{one->phase(), one->round_in_phase()};
  }
  return std::nullopt;
}

}  // namespace leeway
