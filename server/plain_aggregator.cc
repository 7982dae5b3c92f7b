#include "server/plain_aggregator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/reason.h"

namespace leeway {

PlainAggregator::PlainAggregator(Spec spec, Tally memory, Workers* workers, Meter* meter)
    : spec_(std::move(spec)),
      workers_(workers),
      meter_(meter),
      wants_norms_(spec_.limits.max_norm == 0 &&
                   spec_.sums.number(kDisplacementAbove) != TaskSums::kNone),
      tally_(std::move(memory)) {
  MutexLock lock(&mu_);
  tally_.Reset(spec_.sums.shape(), workers_);
}

absl::Status PlainAggregator::Admit(const v1::ReportHeader& header) const {
  if (header.base_sha256() != spec_.base_sha256) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "base_sha256 is ", header.base_sha256(), ", this round starts from ",
                          spec_.base_sha256, "; fetch that model")),
                      "wrong_base");
  }
  return CheckHeader(header, spec_.sums, spec_.encoding);
}

absl::Status PlainAggregator::Add(const v1::ReportHeader& header,
                                  absl::Span<const std::byte> payload,
                                  absl::Span<const GroupShare> shares) {
  MutexLock lock(&mu_);
  const absl::Time begun = meter_ ? absl::Now() : absl::Time();
  double norm = 0;
  const absl::Status added = FoldReport(header, payload, shares, spec_.sums, spec_.limits, tally_,
                                        workers_, wants_norms_ ? &norm : nullptr);
  if (added.ok()) largest_norm_ = std::max(largest_norm_, norm);
  if (meter_ && added.ok()) meter_->Folded(absl::Now() - begun, payload.size());
  return added;
}

double PlainAggregator::largest_norm() const {
  MutexLock lock(&mu_);
  return largest_norm_;
}

Tally PlainAggregator::Close() {
  MutexLock lock(&mu_);
  return std::move(tally_);
}

}  // namespace leeway
