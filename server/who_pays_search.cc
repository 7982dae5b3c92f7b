#include "server/who_pays_search.h"

#include <algorithm>
#include <cmath>

#include "common/sums.h"
#include "server/test_measures.h"

namespace leeway {
namespace {

// Losses that are not known, or 0, leave no size to go by.
double LargestDifference(double loss, const RunContext& run) {
  const double size = std::abs(loss);
  const double clients = static_cast<double>(std::max<uint64_t>(run.clients, 1));
  // No client's loss is more than all of them together.
  return (std::isfinite(size) && size > 0 ? size : 1) * 2 * clients;
}

void AskForCounts(const char* name, const DecileSearch& search, v1::Task& task) {
  for (const double t : search.thresholds()) AskAbove(name, t, task);
}

void NarrowBy(const char* name, const v1::Task& task, const Tally& tally, DecileSearch& search) {
  const TaskSums sums(task, tally.shape().dimension);
  const auto first = static_cast<size_t>(sums.number(name));
  std::vector<double> above(search.thresholds().size());
  for (size_t i = 0; i < above.size(); ++i) above[i] = std::round(tally.number(first + i));
  search.Narrow(above);
}

}  // namespace

WhoPaysSearch::WhoPaysSearch(double loss, const RunContext& run)
    : largest_(LargestDifference(loss, run)), losses_(DecileSearch::OfAnySize(largest_)) {
  if (ClassesOf(run.config.model()) > 0) accuracies_ = DecileSearch::OfRange(1);
}

void WhoPaysSearch::Ask(const ModelPtr& local, const ModelPtr& other, RoundPlan& plan) const {
  plan.base = other;
  plan.others[kOtherModel] = local;
  plan.without_loss = true;
  AskForCounts(kLossDifferenceAbove, losses_, plan.task);
  if (accuracies_) AskForCounts(kAccuracyDifferenceAbove, *accuracies_, plan.task);
}

void WhoPaysSearch::Absorb(uint32_t h, const Tally& tally, RoundPlan& plan) {
  NarrowBy(kLossDifferenceAbove, plan.task, tally, losses_);
  if (accuracies_) NarrowBy(kAccuracyDifferenceAbove, plan.task, tally, *accuracies_);
  if (!done()) return;
  v1::WhoPays& out = *plan.record.mutable_who_pays();
  out.set_h(h);
  out.set_clients(losses_.clients());
  out.set_losers(losses_.above_zero());
  for (const double decile : losses_.deciles()) out.add_loss_deciles(decile);
  if (!accuracies_) return;
  out.set_test_clients(accuracies_->clients());
  out.set_accuracy_losers(accuracies_->below_zero());
  for (const double decile : accuracies_->deciles()) out.add_accuracy_deciles(decile);
}

std::vector<double> WhoPaysSearch::Save() const {
  std::vector<double> out = {largest_};
  const std::vector<double> losses = losses_.Save();
  out.insert(out.end(), losses.begin(), losses.end());
  if (!accuracies_) return out;
  const std::vector<double> accuracies = accuracies_->Save();
  out.insert(out.end(), accuracies.begin(), accuracies.end());
  return out;
}

absl::Status WhoPaysSearch::Restore(absl::Span<const double> state, const RunContext& run) {
  constexpr size_t kLosses = 1 + DecileSearch::kSavedSize;
  if (state.size() < kLosses) return absl::DataLossError("saved counts are cut short");
  *this = WhoPaysSearch(1, run);
  largest_ = state[0];
  losses_ = DecileSearch::OfAnySize(largest_);
  absl::Status restored = losses_.Restore(state.subspan(1, DecileSearch::kSavedSize));
  if (restored.ok() && accuracies_) restored = accuracies_->Restore(state.subspan(kLosses));
  return restored;
}

}  // namespace leeway
