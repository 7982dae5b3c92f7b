#include "server/release_measures.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/sums.h"
#include "server/measures.h"
#include "server/test_measures.h"

namespace leeway {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The mean of half the squared distance from the mean.
double RegressionLoss(const TaskSums& sums, const Tally& tally) {
  const auto weight = static_cast<double>(tally.weight());
  const double square = tally.number(static_cast<size_t>(sums.number(kSquaredTarget))) / weight;
  const double mean = tally.number(static_cast<size_t>(sums.number(kTarget))) / weight;
  return square > 0 ? std::max(0.0, square - mean * mean) / 2 : kNaN;
}

double Entropy(uint32_t classes, const TaskSums& sums, const Tally& tally) {
  const auto first = static_cast<size_t>(sums.number(kLabelAbove));
  const double all = tally.number(first);  // above -1
  // Less than all of the weight: some clients do not know their labels.
  if (all < 0.999 * static_cast<double>(tally.weight())) return kNaN;
  double entropy = 0;
  for (uint32_t label = 0; label < classes; ++label) {
    const double above = label + 1 < classes ? tally.number(first + label + 1) : 0;
    const double share = (tally.number(first + label) - above) / all;
    if (share > 0) entropy -= share * std::log(share);
  }
  return entropy;
}

}  // namespace

void AskForTargets(const v1::Model& model, v1::Task& task) {
  if (model.has_linear_regression()) {
    Ask(kTarget, task);
    Ask(kSquaredTarget, task);
  }
  const uint32_t classes = ClassesOf(model);
  for (uint32_t label = 0; label < classes; ++label) {
    AskAbove(kLabelAbove, static_cast<double>(label) - 1, task);
  }
}

double ConstantLoss(const v1::Model& model, const v1::Task& task, const Tally& tally) {
  const TaskSums sums(task, tally.shape().dimension);
  if (tally.weight() == 0) return kNaN;
  if (sums.number(kSquaredTarget) != TaskSums::kNone) return RegressionLoss(sums, tally);
  if (sums.number(kLabelAbove) != TaskSums::kNone) return Entropy(ClassesOf(model), sums, tally);
  return kNaN;
}

double ConstantOrInitialLoss(const v1::Model& model, const RoundPlan& plan, const Tally& tally) {
  const double constant = ConstantLoss(model, plan.task, tally);
  return std::isfinite(constant) ? constant : plan.record.loss();
}

Comparison ReadComparison(const v1::Task& task, const Tally& tally, const v1::RoundRecord& record) {
  const TaskSums sums(task, tally.shape().dimension);
  const auto number = [&](const char* name) {
    return tally.number(static_cast<size_t>(sums.number(name)));
  };
  const auto weight = static_cast<double>(tally.weight());
  const auto clients = static_cast<double>(tally.clients());
  Comparison out;
  out.synchronised_loss = record.loss();
  out.loss_standard_error = record.loss_standard_error();
  out.clients = static_cast<uint32_t>(tally.clients());
  const double mean = number(kLossDifference) / weight;
  out.difference = mean;
  // sum p_c^2 (D_c - D)^2, as for the loss (docs/measures.md, 2).
  double spread = (number(kLossDifferenceSquared) / weight - mean * mean) / clients;
  if (sums.number(kWeightedLossDifference) != TaskSums::kNone) {
    spread = (number(kWeightedLossDifferenceSquared) - 2 * mean * number(kWeightedLossDifference) +
              mean * mean * number(kWeight)) /
             (weight * weight);
  }
  out.standard_error =
      clients > 1 ? std::sqrt(std::max(spread, 0.0) * clients / (clients - 1)) : kNaN;
  out.losers = static_cast<uint32_t>(std::lround(number(kLossDifferenceAbove)));
  return out;
}

v1::ReleaseResult Conclude(const std::vector<Comparison>& repeats, double start_loss,
                           double constant_loss, bool batches) {
  const auto n = static_cast<double>(repeats.size());
  Comparison mean;
  std::vector<double> differences;
  double losers = 0;
  for (const Comparison& one : repeats) {
    mean.synchronised_loss += one.synchronised_loss / n;
    mean.loss_standard_error += one.loss_standard_error / n;
    mean.difference += one.difference / n;
    mean.standard_error += one.standard_error * one.standard_error / n;
    losers += one.losers / n;
    mean.clients = one.clients;
    differences.push_back(one.difference);
  }
  v1::ReleaseResult result;
  result.set_repeats(static_cast<uint32_t>(repeats.size()));
  result.set_clients(mean.clients);
  result.set_start_loss(start_loss);
  result.set_local_loss(mean.synchronised_loss + mean.difference);
  result.set_synchronised_loss(mean.synchronised_loss);
  result.set_difference(mean.difference);
  result.set_standard_error(std::sqrt(mean.standard_error));
  double half =
      mean.clients > 1 ? StudentQuantile(mean.clients - 1) * result.standard_error() : kNaN;
  result.set_batch_error(batches ? kNaN : 0);
  if (repeats.size() > 1) {
    result.set_batch_error(ErrorOfMean(differences, mean.difference));
    half = std::hypot(half, StudentQuantile(repeats.size() - 1) * result.batch_error());
  }
  result.set_interval_low(mean.difference - half);
  result.set_interval_high(mean.difference + half);
  result.set_difference_in_standard_errors(
      mean.loss_standard_error > 0 ? mean.difference / mean.loss_standard_error : kNaN);
  const double progress = start_loss - result.synchronised_loss();
  result.set_efficiency(progress != 0 ? (start_loss - result.local_loss()) / progress : kNaN);
  result.set_constant_loss(constant_loss);
  const double scale = constant_loss - result.synchronised_loss();
  result.set_lost(scale > 0 ? mean.difference / scale : kNaN);
  result.set_losers(static_cast<uint32_t>(std::lround(losers)));
  return result;
}

}  // namespace leeway
