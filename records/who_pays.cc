#include "records/who_pays.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace leeway {
namespace {

constexpr int kMedian = 4;  // among nine deciles
constexpr int kLowest = 0;
constexpr int kHighest = 8;
constexpr int kDeciles = 9;

std::string Points(double share) { return absl::StrFormat("%.2g points", 100 * share); }

// "half of the clients lose less than 0.1, the worst tenth more than 0.3"
std::string LossText(const v1::WhoPays& who) {
  const double median = who.loss_deciles(kMedian);
  const double worst = who.loss_deciles(kHighest);
  if (worst <= 0) {
    return absl::StrFormat("nine of ten clients lose nothing (%d of %d lose)", who.losers(),
                           who.clients());
  }
  const std::string half =
      median > 0   ? absl::StrFormat("half of the clients lose less than %.3g", median)
      : median < 0 ? absl::StrFormat("half of the clients gain more than %.3g", -median)
                   : "half of the clients lose nothing";
  return absl::StrFormat("%s, the worst tenth %smore than %.3g; %d of %d lose", half,
                         median > 0 ? "" : "lose ", worst, who.losers(), who.clients());
}

std::string AccuracyText(const v1::WhoPays& who) {
  if (who.test_clients() == 0 || who.accuracy_deciles_size() != kDeciles) return "";
  const double worst = who.accuracy_deciles(kLowest);
  return absl::StrCat(
      absl::StrFormat("; %d of %d lose accuracy", who.accuracy_losers(), who.test_clients()),
      worst < 0 ? absl::StrCat(", the worst tenth more than ", Points(-worst)) : "");
}

}  // namespace

uint64_t RoundsAside(const v1::FixedPoint& config) {
  const uint64_t path = config.after_rounds() > 0 ? uint64_t{config.after_rounds()} + 1 : 0;
  const uint64_t counting = config.who_pays_off() ? 0 : kWhoPaysRounds;
  return static_cast<uint64_t>(config.steps_size()) * (path + counting);
}

uint64_t RoundsAside(const v1::ReleaseTest& config) {
  return config.who_pays_off() ? 0 : static_cast<uint64_t>(config.steps_size()) * kWhoPaysRounds;
}

uint64_t RoundsAside(const v1::Phase& phase) {
  return RoundsAside(phase.fixed_point()) + RoundsAside(phase.release()) +
         static_cast<uint64_t>(phase.train().release_at_size()) *
             RoundsAside(phase.train().release());
}

bool IsAside(const v1::RoundRecord& record) {
  // Both have no local steps; all other rounds without them measure the loss.
  const bool counts = record.local_steps() == 0 && std::isnan(record.loss());
  if (record.kind() == v1::RELEASE_ROUND) return counts;
  return record.kind() == v1::FIXED_POINT_ROUND && (counts || record.point() == v1::Probe::CURRENT);
}

std::string WhoPaysText(const v1::WhoPays& who) {
  if (who.loss_deciles_size() != kDeciles) return "";
  return absl::StrCat("Who pays at H = ", who.h(), ": ", LossText(who), AccuracyText(who), ".");
}

}  // namespace leeway
