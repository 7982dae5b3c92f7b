#include "cli/verify.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/credentials.h"
#include "common/digest.h"
#include "common/sampler.h"
#include "common/status.h"
#include "records/epochs.h"
#include "records/store.h"
#include "records/who_pays.h"

namespace leeway {
namespace {

// All of a run, read once.
struct Records {
  v1::RunConfig config;
  std::vector<StoredClient> roster;
  std::vector<v1::Epoch> epochs;
  std::vector<v1::RoundRecord> rounds;
  v1::ScriptState script;
  v1::RunState state = v1::RUN_STATE_UNSPECIFIED;
  std::map<std::string, std::string> names;
  bool quarantines = false;
};

class Verifier {
 public:
  Verifier(const Store& store, const std::string& directory, const std::string& chain_key)
      : store_(store), directory_(directory), chain_key_(chain_key) {}

  absl::StatusOr<Verification> Run() {
    // Everything that is stored, as it was written; then whether it follows.
    if (const absl::Status whole = store_.CheckWhole(chain_key_); !whole.ok()) {
      Problem(whole.message());
    }
    if (const absl::Status read = Read(); !read.ok()) {
      if (result_.problems.empty()) return read;
      Problem(read.message());
      return std::move(result_);
    }
    CheckRoster();
    Attendance attendance(records_.roster);
    for (size_t i = 0; i < records_.rounds.size(); ++i) {
      CheckNumber(i);
      CheckEpoch(records_.rounds[i], attendance);
      CheckAccepted(records_.rounds[i], attendance);
      CheckChain(records_.rounds[i]);
    }
    // Of those that have begun, the next one may have no round yet.
    while (next_epoch_ < records_.epochs.size()) BeginEpoch(attendance);
    CheckEnd();
    CheckModels();
    result_.rounds = records_.rounds.size();
    return std::move(result_);
  }

 private:
  template <typename... Parts>
  void Problem(const Parts&... parts) {
    result_.problems.push_back(absl::StrCat(parts...));
  }

  absl::Status Read() {
    LEEWAY_ASSIGN_OR_RETURN(records_.config, store_.Config());
    LEEWAY_ASSIGN_OR_RETURN(records_.roster, store_.Roster());
    LEEWAY_ASSIGN_OR_RETURN(records_.epochs, store_.Epochs());
    // Refused by name if a record does not match the chain of checksums.
    LEEWAY_ASSIGN_OR_RETURN(records_.rounds, store_.RoundsAfter(0));
    LEEWAY_ASSIGN_OR_RETURN(records_.script, store_.Script());
    LEEWAY_ASSIGN_OR_RETURN(records_.state, store_.State());
    LEEWAY_ASSIGN_OR_RETURN(const std::vector<NamedModel> names, store_.NamedModels());
    for (const NamedModel& named : names) records_.names[named.name] = named.sha256;
    LEEWAY_ASSIGN_OR_RETURN(const v1::Standings standings, store_.Standings());
    for (const v1::ClientStanding& one : standings.clients()) {
      if (one.quarantined()) records_.quarantines = true;
    }
    current_ = records_.names["initial"];
    return absl::OkStatus();
  }

  void CheckRoster() {
    const auto place = [](const StoredClient& c) {  // evaluators come last
      return std::make_pair(c.examples == 0, absl::string_view(c.id));
    };
    size_t begin = 0;  // newcomers of an epoch are in order
    for (const v1::Epoch& epoch : records_.epochs) {
      const size_t end = std::min<size_t>(epoch.roster(), records_.roster.size());
      for (size_t i = begin + 1; i < end; ++i) {
        if (place(records_.roster[i - 1]) >= place(records_.roster[i])) {
          Problem("roster: '", records_.roster[i].id, "' is out of order");
        }
      }
      begin = end;
    }
    if (begin != records_.roster.size()) {
      Problem("roster: '", records_.roster[begin].id, "' is in no epoch");
    }
    const uint32_t wanted = records_.config.cohort().clients();
    const uint32_t started = records_.epochs.empty() ? 0 : records_.epochs[0].population();
    if (started < wanted) {
      Problem("roster: the run started with ", started, " clients, but waited for ", wanted);
    }
  }

  void BeginEpoch(Attendance& attendance) {
    const absl::Status begun = attendance.Begin(records_.epochs[next_epoch_++]);
    if (!begun.ok()) Problem(begun.message());
    clients_ = attendance.Clients();
  }

  // The record names the epoch that was in force, and who was present in it.
  void CheckEpoch(const v1::RoundRecord& record, Attendance& attendance) {
    while (next_epoch_ < records_.epochs.size() &&
           records_.epochs[next_epoch_].first_round() <= record.round()) {
      BeginEpoch(attendance);
      if (attendance.epoch().first_round() == record.round() && record.round() > 1 &&
          record.kind() != v1::TRAIN_ROUND) {
        Problem("epoch ", attendance.epoch().number(), ": begins with round ", record.round(),
                ", which does not train");
      }
    }
    if (record.epoch() != attendance.epoch().number()) {
      Problem("round ", record.round(), ": says epoch ", record.epoch(), ", but was in epoch ",
              attendance.epoch().number());
    }
    if (record.population() != attendance.epoch().population()) {
      Problem("round ", record.round(), ": says ", record.population(), " clients, epoch ",
              attendance.epoch().number(), " has ", attendance.epoch().population());
    }
  }

  void CheckNumber(size_t i) {
    const v1::RoundRecord& record = records_.rounds[i];
    if (record.round() != i + 1) {
      Problem("round ", record.round(), ": expected round ", i + 1, " here");
    }
    if (record.phase() >= static_cast<uint32_t>(records_.config.phases_size())) {
      Problem("round ", record.round(), ": phase ", record.phase(), " is not in the config");
    }
    if (i > 0 && record.phase() < records_.rounds[i - 1].phase()) {
      Problem("round ", record.round(), ": phase ", record.phase(), " comes after phase ",
              records_.rounds[i - 1].phase());
    }
    if (record.attempts() < 1 || record.attempts() > records_.config.cohort().attempts()) {
      Problem("round ", record.round(), ": ", record.attempts(), " attempts, at most ",
              records_.config.cohort().attempts(), " are allowed");
    }
  }

  // The round that the cohort was drawn for: all rounds of a release test have that of its first,
  // and rounds aside do not count.
  uint64_t DrawnIn(const v1::RoundRecord& record) {
    const uint64_t number = record.round() - aside_;
    if (IsAside(record)) ++aside_;
    const bool release = record.kind() == v1::RELEASE_ROUND;
    const bool next = release && last_release_.round() + 1 == record.round() &&
                      last_release_.phase() == record.phase();
    if (!next) first_of_release_ = number;
    if (release) last_release_ = record;
    return release ? first_of_release_ : number;
  }

  void CheckAccepted(const v1::RoundRecord& record, const Attendance& attendance) {
    const uint64_t drawn = DrawnIn(record);
    absl::StatusOr<std::vector<uint32_t>> accepted = store_.Accepted(record.round());
    if (!accepted.ok()) return Problem(accepted.status().message());
    result_.reports += accepted->size();
    const std::string round = absl::StrCat("round ", record.round(), ": ");
    for (size_t i = 0; i < accepted->size(); ++i) {
      if ((*accepted)[i] >= records_.roster.size()) {
        Problem(round, "client ", (*accepted)[i], " is not on the roster");
      } else if (!attendance.present((*accepted)[i])) {
        Problem(round, "client ", (*accepted)[i], " was counted, but was not present");
      }
      if (i > 0 && (*accepted)[i] <= (*accepted)[i - 1]) {
        Problem(round, "client ", (*accepted)[i], " was counted twice or is out of order");
      }
    }
    // Evaluators are neither sampled nor counted.
    std::erase_if(*accepted, [&](uint32_t index) {
      return index < records_.roster.size() && records_.roster[index].examples == 0;
    });
    if (accepted->size() != record.reports()) {
      Problem(round, accepted->size(), " clients were accepted, the record counts ",
              record.reports());
    }
    if (accepted->empty()) Problem(round, "nobody's report was counted");
    if (accepted->size() > record.sampled()) {
      Problem(round, accepted->size(), " reports of ", record.sampled(), " sampled clients");
    }
    // Who was asked follows from the seed, unless somebody stepped in or was put out.
    if (record.replaced() > 0 || records_.quarantines) return;
    std::vector<uint32_t> cohort;
    for (const uint32_t i :
         SampleCohort(records_.config.seed(), drawn, record.attempts(),
                      static_cast<uint32_t>(clients_.size()), record.sampled())) {
      cohort.push_back(clients_[i]);
    }
    if (!std::includes(cohort.begin(), cohort.end(), accepted->begin(), accepted->end())) {
      Problem(round, "a client was counted that the seed does not sample");
    }
  }

  // Training goes from model to model without a gap; nothing else changes the model.
  void CheckChain(const v1::RoundRecord& record) {
    const std::string round = absl::StrCat("round ", record.round(), ": ");
    if (record.kind() == v1::OPTIMUM_ROUND) current_ = records_.names["optimum"];
    if (record.kind() != v1::TRAIN_ROUND) return;
    if (record.phase() != phase_) {
      phase_ = record.phase();
      if (phase_ < static_cast<uint32_t>(records_.config.phases_size())) {
        const v1::Probe::Point start =
            records_.config.phases(static_cast<int>(phase_)).train().start();
        if (start == v1::Probe::INITIAL) current_ = records_.names["initial"];
        if (start == v1::Probe::OPTIMUM) current_ = records_.names["optimum"];
      }
    }
    if (record.base_sha256() != current_) {
      Problem(round, "starts from model ", record.base_sha256(), ", but the round before left ",
              current_);
    }
    current_ = record.model_sha256();
  }

  void CheckEnd() {
    const uint64_t last = records_.rounds.empty() ? 0 : records_.rounds.back().round();
    if (records_.script.round() != last) {
      Problem("the run stands at round ", records_.script.round(), ", its last record is of round ",
              last);
    }
    const bool trained =
        std::any_of(records_.rounds.begin(), records_.rounds.end(),
                    [](const v1::RoundRecord& r) { return r.kind() == v1::TRAIN_ROUND; });
    if (trained && records_.script.phase() == phase_ &&
        records_.script.current_sha256() != current_) {
      Problem("the run goes on from model ", records_.script.current_sha256(),
              ", the last training round left ", current_);
    }
    if (records_.state != v1::DONE) return;
    if (records_.script.phase() < static_cast<uint32_t>(records_.config.phases_size())) {
      Problem("the run is done, but stands in phase ", records_.script.phase(), " of ",
              records_.config.phases_size());
    }
    if (records_.names.count("final") == 0) {
      Problem("the run is done, but has no final model");
    } else if (trained && records_.names["final"] != current_) {
      Problem("the final model is ", records_.names["final"], ", the last training round left ",
              current_);
    }
  }

  void CheckStored(const std::string& what, const std::string& sha256) {
    if (const auto stored = store_.LoadModel(sha256); !stored.ok()) {
      Problem(what, ": ", stored.status().message());
    }
  }

  // The bytes of every model in the store and, of those that have a name, in a file.
  void CheckModels() {
    if (const auto all = store_.Models(); all.ok()) {
      for (const std::string& sha256 : *all) CheckStored(absl::StrCat("model ", sha256), sha256);
    } else {
      Problem(all.status().message());
    }
    for (const std::string* sha256 :
         {&records_.script.initial_sha256(), &records_.script.current_sha256(),
          &records_.script.optimum_sha256()}) {
      if (!sha256->empty()) CheckStored("the model that a resumed run needs", *sha256);
    }
    for (const auto& [name, sha256] : records_.names) {
      ++result_.models;
      const std::string path = absl::StrCat(directory_, "/", Store::NamedModelPath(name));
      CheckStored(absl::StrCat("model '", name, "'"), sha256);
      const absl::StatusOr<std::string> file = ReadTextFile(path);
      if (!file.ok()) {
        Problem("model '", name, "': ", file.status().message());
      } else if (Sha256Hex(*file) != sha256) {
        Problem("model '", name, "': ", path, " has sha256 ", Sha256Hex(*file), ", expected ",
                sha256);
      }
    }
  }

  const Store& store_;
  const std::string directory_;
  const std::string chain_key_;
  Records records_;
  Verification result_;
  size_t next_epoch_ = 0;
  std::vector<uint32_t> clients_;  // present in the epoch before it
  std::string current_;            // the model that training has reached
  uint32_t phase_ = UINT32_MAX;    // of the last training round
  uint64_t first_of_release_ = 0;  // round of the release test under way
  uint64_t aside_ = 0;             // rounds so far that are (records/who_pays.h)
  v1::RoundRecord last_release_;   // its last
};

}  // namespace

absl::StatusOr<Verification> VerifyRun(const std::string& directory, const std::string& chain_key) {
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, Store::OpenReadOnly(directory));
  // A run whose log is gone is not one that has not begun.
  if (const absl::Status whole = store->CheckWhole(chain_key);
      !store->begun() && absl::IsDataLoss(whole)) {
    return whole;
  }
  if (!store->begun()) {
    return absl::NotFoundError(absl::StrCat(directory, ": the run has not begun"));
  }
  return Verifier(*store, directory, chain_key).Run();
}

}  // namespace leeway
