// MedianLimit: the largest norm of a displacement that a training round accepts, a multiple of the
// median norm of all clients'. No client's own norm is sent for it: a task asks for counts, how
// many displacements are longer than each of a few thresholds, and the median of a round sets the
// limit of the next. Fewer than half of the clients cannot move the median beyond the others'.
// A round with fewer than five reports sets no limit.
//
//   first round of a phase: many thresholds, a factor of 2 apart, and no limit
//   later ones: few, around the median of the round before; a factor of 2^(1/4) apart for a
//   multiple that was asked for, of 2 for the automatic one
//
// The automatic limit is wide, for nobody knows yet how much honest clients differ: as many
// medians as the round has reports, so that one client weighs at most as much as all together,
// and at least 30. After a round in which it has bitten it is half as wide, down to a fifth; after
// one in which it has not, twice as wide again. A client that stays just below it would drive the
// others' updates, and so the median, up without end: the automatic limit takes at most twice the
// lowest median so far, and while it is narrow the lowest itself. It is never below the median of
// the phase's first round: when most clients have come to rest and few are still under way, those
// are honest, and an update of that length is no attack.
//
// Pure. One object lives for one train phase. Not thread-safe.
#ifndef LEEWAY_SERVER_MEDIAN_LIMIT_H_
#define LEEWAY_SERVER_MEDIAN_LIMIT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/sums.h"
#include "common/tally.h"
#include "proto/federation.pb.h"

namespace leeway {

class MedianLimit {
 public:
  // `multiple` of the median, 0: automatic; `max_update` is the largest coordinate of a
  // displacement, beside which norms below 2^-40 of it are as good as 0.
  MedianLimit(double multiple, double max_update);

  // The limit of the next round; 0: none is known yet.
  double limit() const { return limit_; }
  // Adds the counts, and the limit if it is known, to a training task.
  void Ask(v1::Task& task) const;
  // The counts of a round with that task.
  void Absorb(const v1::Task& task, const Tally& tally);
  // After Absorb: was a displacement of that round, without a limit, longer than the limit is
  // now, or than the next threshold above it? By the counts, or by the largest norm of a
  // report. So it does not matter which clients' reports were merged.
  bool IsExceeded(const v1::Task& task, const Tally& tally, double largest_norm) const;
  // Clients whose displacement was at the limit of that round, or longer.
  static uint32_t Clipped(const v1::Task& task, const Tally& tally);

  // The last median says nothing any more: the next round is a first one.
  void Forget() { median_ = limit_ = lowest_ = first_ = 0, width_ = 1; }

  // State between two rounds.
  std::vector<double> Save() const { return {median_, limit_, lowest_, width_, first_}; }
  absl::Status Restore(absl::Span<const double> state);

 private:
  std::vector<double> Thresholds() const;

  bool automatic() const { return multiple_ == 0; }
  // How many medians the automatic limit is, after a round of so many reports.
  double Multiple(uint64_t reports) const;

  const double multiple_;
  const double smallest_;  // of norms that matter
  double median_ = 0;      // the threshold above it; 0: not known
  double limit_ = 0;
  double lowest_ = 0;  // of the medians so far
  double width_ = 1;   // of the automatic limit: 1, or less since it has bitten
  double first_ = 0;   // the first median of the phase
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_MEDIAN_LIMIT_H_
