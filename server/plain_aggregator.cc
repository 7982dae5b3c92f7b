#include "server/plain_aggregator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/reason.h"
#include "common/wire.h"

namespace leeway {

PlainAggregator::PlainAggregator(Spec spec, Tally memory, Workers* workers, Meter* meter)
    : spec_(std::move(spec)), workers_(workers), meter_(meter), tally_(std::move(memory)) {
  if (spec_.task.evaluate()) evaluation_.emplace(spec_.task);
  MutexLock lock(&mu_);
  tally_.Reset(spec_.shape, workers_);
}

absl::Status PlainAggregator::Admit(const v1::ReportHeader& header) const {
  if (header.base_sha256() != spec_.base_sha256) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "base_sha256 is ", header.base_sha256(), ", this round starts from ",
                          spec_.base_sha256, "; fetch that model")),
                      "wrong_base");
  }
  return CheckHeader(header, spec_.shape, spec_.encoding);
}

absl::Status PlainAggregator::Add(const v1::ReportHeader& header,
                                  absl::Span<const std::byte> payload,
                                  absl::Span<const GroupShare> shares) {
  MutexLock lock(&mu_);
  const absl::Time begun = meter_ ? absl::Now() : absl::Time();
  const absl::Status added =
      evaluation_
          ? FoldEvaluation(header, payload, shares, *evaluation_, spec_.targets_per_example, tally_)
          : FoldReport(header, payload, shares, spec_.task.max_norm(), tally_, workers_);
  if (meter_ && added.ok()) meter_->Folded(absl::Now() - begun, payload.size());
  return added;
}

Tally PlainAggregator::Close() {
  MutexLock lock(&mu_);
  return std::move(tally_);
}

}  // namespace leeway
