#include "server/attempts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

// Of one round, because of what its sums have shown: without its limit, and with another.
constexpr uint32_t kMostRepeats = 2;

}  // namespace

void Attempts::Begin(absl::Time now) {
  if (++number_ == 1) began_ = now;
  failures_.clear();
}

void Attempts::AddFailure(std::string client, std::string why, Fault fault) {
  last_failure_ = absl::StrCat("client '", client, "': ", why);
  failures_.push_back({std::move(client), std::move(why), fault});
}

std::vector<Attempts::Quarantined> Attempts::Judge(const Round& round, Roster& roster) {
  const std::vector<Failure> failures = std::exchange(failures_, {});
  // Where most clients fail, the fault is the model's, the configuration's or the server's.
  if (round.failures() > round.reports()) return {};
  // Out before the last attempt, which would else fail like those before it.
  const uint32_t most = std::min(quarantine_after_, std::max(most_, 2u) - 1);
  std::vector<Quarantined> out;
  for (const Failure& failure : failures) {
    if (failure.fault == Fault::kShared) {
      if (const auto index = roster.Find(failure.client)) set_aside_.insert(*index);
      continue;
    }
    const uint32_t refused = roster.CountRefused(failure.client);
    if (refused < most || !roster.Quarantine(failure.client)) continue;
    last_quarantine_ = absl::StrCat("client '", failure.client, "': ", failure.why);
    out.push_back(
        {failure.client, absl::StrCat("failed, or was refused, ", refused,
                                      " times in a row: out of the run. The last: ", failure.why)});
  }
  return out;
}

bool Attempts::may_repeat() const { return repeats_ < kMostRepeats; }

void Attempts::EndRound() {
  number_ = 0;
  repeats_ = 0;
  set_aside_.clear();
  last_failure_.clear();
}

}  // namespace leeway
