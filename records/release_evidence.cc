#include "records/release_evidence.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/plural.h"
#include "records/record_fields.h"
#include "records/text_table.h"

namespace leeway {
namespace {

// Below this efficiency local steps make less than half of the progress that there is to make:
// what they lose is not only a little time.
constexpr double kHalf = 0.5;

// From the rounding of float32 losses.
constexpr double kRounding = 1e-7;

double Scale(const v1::ReleaseResult& result) {
  return result.constant_loss() - result.synchronised_loss();
}

// What rounds of local steps still gain, as a share.
double Progress(const v1::ReleaseResult& result) {
  return (result.start_loss() - result.local_loss()) / Scale(result);
}

std::string Percent(double share) { return absl::StrFormat("%.2g %%", 100 * share); }

std::string IntervalText(const v1::ReleaseResult& result) {
  return absl::StrFormat("%.3g (95 %% interval %.3g to %.3g)", result.difference(),
                         result.interval_low(), result.interval_high());
}

bool IsSampled(const RunSummary& run, const v1::ReleaseResult& result) {
  return result.clients() < run.clients;
}

// How far other batches could move the difference (95 %): 0 without batches, NaN if the branches
// were taken only once.
double BatchMargin(const v1::ReleaseResult& result) {
  if (result.batch_error() == 0) return 0;
  if (result.repeats() < 2) return std::numeric_limits<double>::quiet_NaN();
  const boost::math::students_t distribution(result.repeats() - 1);
  return boost::math::quantile(distribution, 0.975) * result.batch_error();
}

// Whether the difference is more than other batches, or another sample of clients like these,
// could undo (docs/measures.md, 8). Of a sample of clients the interval must exclude 0; where all
// took part their standard error is the yardstick.
bool IsCertain(const RunSummary& run, const v1::ReleaseResult& result) {
  if (IsSampled(run, result)) return result.interval_low() > 0;
  return result.difference() > result.standard_error() && result.difference() > BatchMargin(result);
}

// Whether the difference cannot be a conflict's. Of all clients it is known up to the batches, as
// that of a fixed point is.
bool IsSurelySmall(const RunSummary& run, const v1::ReleaseResult& result) {
  const double most =
      IsSampled(run, result) ? result.interval_high() : result.difference() + BatchMargin(result);
  return most < ConflictLost(run.config) * Scale(result);
}

// So small that even along the one direction between both models the optimum is not known
// better from these clients.
bool IsSamplingError(const v1::ReleaseResult& result) {
  return result.difference() <= result.standard_error() / 2;
}

Finding FindingOf(const RunSummary& run, const v1::ReleaseResult& result) {
  const v1::RunConfig& config = run.config;
  if (result.clients() < 2 || !(Scale(result) > 0)) return Finding::kUncertain;
  const bool rounding = std::abs(result.difference()) <= kRounding * std::abs(result.local_loss());
  const Finding finding =
      Decide(config, {.lost = rounding ? 0 : result.lost(),
                      .surely_small = rounding || IsSurelySmall(run, result),
                      .more_than_chance = IsCertain(run, result) && result.efficiency() < kHalf,
                      .within_sampling_error = IsSamplingError(result)});
  // On the way local steps keep up whether clients agree or not.
  const bool settled = Progress(result) <= HarmlessLost(config);
  return finding == Finding::kHarmless && !settled ? Finding::kUncertain : finding;
}

std::string DoubtOf(const RunSummary& run, const v1::ReleaseResult& result) {
  const v1::RunConfig& config = run.config;
  if (result.clients() < 2) return "a single client cannot disagree with itself";
  if (!(Scale(result) > 0)) {
    return absl::StrFormat(
        "the model is no better yet than the best constant answer (loss %.4g, constant %.4g); "
        "train longer, and test again",
        result.synchronised_loss(), result.constant_loss());
  }
  if (Progress(result) > HarmlessLost(config)) {
    return absl::StrFormat(
        "training has not settled: %d rounds of %d local steps still gain %s of what the model "
        "explains; train longer, and test again",
        result.rounds(), result.h(), Percent(Progress(result)));
  }
  if (result.lost() > HarmlessLost(config) && result.lost() <= ConflictLost(config)) {
    return absl::StrFormat("local steps lose %s; below %s is harmless, above %s a conflict",
                           Percent(result.lost()), Percent(HarmlessLost(config)),
                           Percent(ConflictLost(config)));
  }
  return absl::StrFormat(
      "local steps lose %s, a difference of %s, which another sample could undo; test with more "
      "clients%s",
      Percent(result.lost()), IntervalText(result),
      result.batch_error() > 0 ? ", or raise release.repeats" : "");
}

const ReleaseEvidence& FirstWith(const std::vector<ReleaseEvidence>& all, Finding finding) {
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const ReleaseEvidence& one) { return one.finding == finding; });
  return found == all.end() ? all.back() : *found;
}

std::string Cell(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.3g", value) : "-";
}

// The tests of a phase: its own, or those that a training takes.
const v1::ReleaseTest& TestOf(const v1::Phase& phase) {
  return phase.has_train() ? phase.train().release() : phase.release();
}

}  // namespace

std::vector<ReleaseEvidence> CollectReleases(const RunSummary& run) {
  std::vector<ReleaseEvidence> all;
  for (const v1::RoundRecord& record : run.records) {
    if (!record.has_release()) continue;
    ReleaseEvidence one;
    one.result = record.release();
    one.when = WhenText(run, record);
    one.who_pays = FindWhoPays(run, record, one.result.h());
    one.finding = FindingOf(run, one.result);
    if (one.finding == Finding::kUncertain) one.doubt = DoubtOf(run, one.result);
    const auto same = std::find_if(all.begin(), all.end(), [&](const ReleaseEvidence& other) {
      return other.result.h() == one.result.h() &&
             SameStepSize(other.result.step_size(), one.result.step_size());
    });
    if (same == all.end()) {
      all.push_back(std::move(one));
    } else {
      *same = std::move(one);
    }
  }
  std::sort(all.begin(), all.end(), [](const ReleaseEvidence& a, const ReleaseEvidence& b) {
    return std::tuple(a.result.h(), a.result.step_size()) <
           std::tuple(b.result.h(), b.result.step_size());
  });
  return all;
}

std::vector<uint32_t> MissingReleases(const RunSummary& run) {
  std::vector<uint32_t> missing;
  for (int phase = 0; phase < run.config.phases_size(); ++phase) {
    for (const uint32_t h : TestOf(run.config.phases(phase)).steps()) {
      const bool found =
          std::any_of(run.records.begin(), run.records.end(), [&](const v1::RoundRecord& record) {
            return static_cast<int>(record.phase()) == phase && record.release().h() == h;
          });
      if (!found) missing.push_back(h);
    }
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

std::string ReleaseSentence(const RunSummary& run, const std::vector<ReleaseEvidence>& all,
                            Finding finding) {
  if (finding == Finding::kHarmless) {
    const auto worst = std::max_element(all.begin(), all.end(),
                                        [](const ReleaseEvidence& a, const ReleaseEvidence& b) {
                                          return a.result.lost() < b.result.lost();
                                        });
    return absl::StrFormat(
        "Heterogeneity does not hurt here up to H = %d local steps of %.3g: %d rounds of them lose "
        "at most %s of what the model explains against as many synchronised steps (release test, "
        "%d clients).",
        all.back().result.h(), all.back().result.step_size(), worst->result.rounds(),
        Percent(std::max(0.0, worst->result.lost())), worst->result.clients());
  }
  const v1::ReleaseResult& first = FirstWith(all, finding).result;
  if (finding == Finding::kConflict) {
    return absl::StrFormat(
        "Clients conflict from H = %d: %d rounds of %d local steps of %.3g end with a loss that is "
        "%.3g above that of as many synchronised steps, %s of what the model explains, and %d of "
        "%d clients lose; consider fewer local steps or personalised models.",
        first.h(), first.rounds(), first.h(), first.step_size(), first.difference(),
        Percent(first.lost()), first.losers(), first.clients());
  }
  if (run.clients < 2) {
    return "A single client cannot disagree with itself: there is no verdict on heterogeneity.";
  }
  return absl::StrFormat("There is not enough evidence at H = %d: %s.", first.h(),
                         FirstWith(all, finding).doubt);
}

std::string ReleaseTable(const std::vector<ReleaseEvidence>& all) {
  if (all.empty()) return "";
  const v1::ReleaseResult& last = all.back().result;
  std::vector<std::vector<std::string>> rows;
  for (const ReleaseEvidence& one : all) {
    const v1::ReleaseResult& r = one.result;
    rows.push_back({absl::StrCat(r.h()), Cell(r.difference()),
                    absl::StrCat(Cell(r.interval_low()), " … ", Cell(r.interval_high())),
                    Cell(r.efficiency()), absl::StrFormat("%.3g %%", 100 * r.lost()),
                    absl::StrCat(r.losers()), std::string(FindingName(one.finding))});
  }
  return absl::StrCat(
      absl::StrFormat("Release test (%s): %s of H local steps of %.4g against as many\n"
                      "synchronised steps, %s\n\n",
                      all.back().when, Counted(last.rounds(), "round"), last.step_size(),
                      Counted(last.clients(), "client")),
      TextTable({"  H", "difference", "95 % interval", "efficiency", "lost", "losers", "verdict"},
                rows));
}

nlohmann::ordered_json ReleaseJson(const ReleaseEvidence& one) {
  nlohmann::ordered_json json = FieldsJson(one.result);
  json["when"] = one.when;
  json["verdict"] = std::string(FindingName(one.finding));
  json["doubt"] = one.doubt;
  json["who_pays"] = nullptr;
  if (one.who_pays) json["who_pays"] = FieldsJson(*one.who_pays);
  return json;
}

}  // namespace leeway
