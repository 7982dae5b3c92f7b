#include "records/release_config.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "records/who_pays.h"

namespace leeway {
namespace {

absl::Status Bad(const std::string& field, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, " ", problem));
}

void Complete(v1::ReleaseTest& release) {
  constexpr uint32_t kRounds = 5;
  constexpr uint32_t kRepeats = 3;  // with batches
  if (release.point() == v1::Probe::POINT_UNSPECIFIED) release.set_point(v1::Probe::CURRENT);
  if (release.rounds() == 0) release.set_rounds(kRounds);
  if (release.repeats() == 0) release.set_repeats(release.batch_size() > 0 ? kRepeats : 1);
}

}  // namespace

void CompleteRelease(v1::RunConfig& config) {
  if (config.harmless_lost() == 0) config.set_harmless_lost(0.01);
  if (config.conflict_lost() == 0) config.set_conflict_lost(0.03);
  for (v1::Phase& phase : *config.mutable_phases()) {
    if (phase.has_release()) Complete(*phase.mutable_release());
    if (phase.train().has_release()) Complete(*phase.mutable_train()->mutable_release());
  }
}

absl::Status CheckLost(const v1::RunConfig& config) {
  if (!(config.harmless_lost() > 0 && config.harmless_lost() < 1)) {
    return Bad("harmless_lost", absl::StrCat("is ", config.harmless_lost(),
                                             "; give a share between 0 and 1, such as 0.01"));
  }
  if (config.conflict_lost() >= config.harmless_lost() && config.conflict_lost() < 1) {
    return absl::OkStatus();
  }
  return Bad("conflict_lost",
             absl::StrCat("is ", config.conflict_lost(), "; give a share from harmless_lost, ",
                          config.harmless_lost(), ", up to 1, such as 0.03"));
}

absl::Status CheckRelease(const std::string& field, const v1::ReleaseTest& release, bool optimum) {
  if (release.point() == v1::Probe::OPTIMUM && !optimum) {
    return Bad(absl::StrCat(field, ".point"),
               "is OPTIMUM, but no optimum phase comes before it; add `phases { optimum {} }`");
  }
  if (release.repeats() > 1 && release.batch_size() == 0) {
    return Bad(absl::StrCat(field, ".repeats"), "needs batch_size: full-batch steps do not vary");
  }
  if (!(release.constant_loss() >= 0) || !std::isfinite(release.constant_loss())) {
    return Bad(absl::StrCat(field, ".constant_loss"),
               absl::StrCat("is ", release.constant_loss(),
                            "; give the loss of the best constant answer, or leave it out"));
  }
  return absl::OkStatus();
}

absl::Status CheckReleaseAt(const std::string& field, const v1::Train& train) {
  const std::string at = absl::StrCat(field, ".release_at");
  if (train.has_release() && train.release_at().empty()) {
    return Bad(absl::StrCat(field, ".release"),
               "is given without release_at; say after how many rounds: release_at: [50, 100]");
  }
  if (!train.has_release() && !train.release_at().empty()) {
    return Bad(at,
               "is given without release; say what to test, for instance "
               "`release { step_size: 0.1 steps: [1, 10] }`");
  }
  for (int i = 0; i < train.release_at_size(); ++i) {
    const uint32_t rounds = train.release_at(i);
    if (i > 0 && rounds <= train.release_at(i - 1)) {
      return Bad(at, absl::StrCat("has ", rounds, " after ", train.release_at(i - 1),
                                  "; list numbers of rounds, increasing"));
    }
    if (rounds > train.rounds()) {
      return Bad(at, absl::StrCat("has ", rounds, ", but the phase ends after ", train.rounds(),
                                  " rounds; give at most that, or raise rounds"));
    }
  }
  if (train.has_release() && train.release().point() != v1::Probe::CURRENT) {
    return Bad(absl::StrCat(field, ".release.point"),
               absl::StrCat("is ", v1::Probe::Point_Name(train.release().point()),
                            "; while training the test starts at CURRENT: leave point out"));
  }
  return absl::OkStatus();
}

absl::Status CheckReleaseClients(int number, const v1::Phase& phase, uint64_t clients) {
  const v1::ReleaseTest& release = phase.has_train() ? phase.train().release() : phase.release();
  if (release.clients() <= clients) return absl::OkStatus();
  return Bad(
      absl::StrCat("phases[", number, phase.has_train() ? "].train" : "]", ".release.clients"),
      absl::StrCat("is ", release.clients(), ", but only ", clients, " clients take part"));
}

uint64_t RoundsOf(const v1::ReleaseTest& config) {
  const auto count = static_cast<uint64_t>(config.steps_size());
  const uint64_t largest = *config.steps().rbegin();
  return 1 + config.repeats() * (config.rounds() * (count + largest) + count) + RoundsAside(config);
}

}  // namespace leeway
