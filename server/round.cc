#include "server/round.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/reason.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr size_t kMostLookedAt = 256;

std::vector<Assignment> Values(std::map<SessionId, Assignment> work) {
  std::vector<Assignment> all;
  all.reserve(work.size());
  for (auto& [session, assignment] : work) all.push_back(std::move(assignment));
  return all;
}

}  // namespace

Round::Round(RoundSpec spec, const Roster* roster, std::unique_ptr<Aggregator> aggregator)
    : open_(true),
      spec_(std::move(spec)),
      roster_(roster),
      aggregator_(std::move(aggregator)),
      sampled_(static_cast<uint32_t>(spec_.cohort.size()) - spec_.evaluators) {
  members_.reserve(spec_.cohort.size());
  for (size_t i = 0; i < spec_.cohort.size(); ++i) {
    members_[spec_.cohort[i]].group = spec_.groups.empty() ? 0 : spec_.groups[i];
  }
}

void Round::AddWork(ClientIndex index, uint32_t group,
                    std::map<SessionId, Assignment>& work) const {
  const Roster::Host& host = roster_->host(index);
  if (host.session == 0) return;
  Assignment& assignment = work[host.session];
  assignment.session = host.session;
  AddTo(assignment, index, host.position, group);
}

void Round::AddTo(Assignment& assignment, ClientIndex index, uint32_t position,
                  uint32_t group) const {
  assignment.clients.push_back(position);
  assignment.groups.push_back(group);
  if (spec_.states_since == 0) return;
  const uint64_t counted = roster_->last_counted(index);
  assignment.state_rounds.push_back(counted >= spec_.states_since ? counted : 0);
}

std::vector<Assignment> Round::Work() const {
  std::map<SessionId, Assignment> work;
  for (const ClientIndex index : spec_.cohort) {
    const Member& member = members_.at(index);
    if (member.state == MemberState::kWaiting) AddWork(index, member.group, work);
  }
  return Values(std::move(work));
}

Assignment Round::WorkFor(SessionId session) const {
  Assignment assignment;
  assignment.session = session;
  if (!open_) return assignment;
  const absl::Span<const ClientIndex> hosted = roster_->HostedBy(session);
  for (size_t i = 0; i < hosted.size(); ++i) {
    const auto member = members_.find(hosted[i]);
    if (member == members_.end()) continue;
    // A report that is being added may prove damaged, and only the stream that it came on hears
    // of that: ask again.
    const MemberState state = member->second.state;
    if (state != MemberState::kWaiting && state != MemberState::kAdding) continue;
    AddTo(assignment, hosted[i], static_cast<uint32_t>(i), member->second.group);
  }
  return assignment;
}

bool Round::IsAbsent(ClientIndex index) const {
  return !roster_->connected(index) && members_.at(index).state == MemberState::kWaiting;
}

absl::Time Round::ReplacedAt(ClientIndex index) const {
  return roster_->host(index).gone_since + spec_.replace_after;
}

absl::Time Round::GivenUpAt(ClientIndex index) const {
  return roster_->host(index).gone_since + spec_.return_time;
}

std::vector<Assignment> Round::Replace(absl::Time now) {
  std::map<SessionId, Assignment> work;
  if (!open_ || spec_.replace_after == absl::InfiniteDuration()) return {};
  const std::vector<ClientIndex> cohort = spec_.cohort;  // grows below
  for (const ClientIndex index : cohort) {
    if (!IsAbsent(index) || now < ReplacedAt(index)) continue;
    // One that is not connected now may be, the next time that somebody is replaced.
    const auto next =
        absl::c_find_if(spec_.reserves, [this](ClientIndex i) { return roster_->connected(i); });
    if (next == spec_.reserves.end()) break;
    const ClientIndex reserve = *next;
    spec_.reserves.erase(next);
    const uint32_t group = members_.at(index).group;
    members_.at(index).state = MemberState::kReplaced;
    members_[reserve].group = group;
    spec_.cohort.push_back(reserve);
    ++failed_;
    ++replaced_;
    AddWork(reserve, group, work);
  }
  return Values(std::move(work));
}

absl::Time Round::NextChange() const {
  absl::Time next = spec_.deadline;
  const bool replaces = spec_.replace_after < absl::InfiniteDuration() && !spec_.reserves.empty();
  // All of those who are gone are given up at the same moment: when the last of them is.
  absl::Time given_up = HasMinimum() ? absl::InfinitePast() : absl::InfiniteFuture();
  if (!replaces && !HasMinimum()) return next;
  for (const ClientIndex index : spec_.cohort) {
    const MemberState state = members_.at(index).state;
    if (state != MemberState::kWaiting) continue;
    const bool absent = !roster_->connected(index);
    if (absent && replaces) next = std::min(next, ReplacedAt(index));
    given_up = std::max(given_up, absent ? GivenUpAt(index) : absl::InfiniteFuture());
  }
  return std::min(next, std::max(given_up, spec_.opened));
}

std::vector<ClientIndex> Round::Absent() const {
  std::vector<ClientIndex> absent;
  uint32_t connected = 0;  // and waited for
  for (const ClientIndex index : spec_.cohort) {
    if (members_.at(index).state != MemberState::kWaiting) continue;
    if (roster_->connected(index)) {
      ++connected;
    } else {
      absent.push_back(index);
    }
  }
  if (reports() + adding_ + connected >= std::max<uint32_t>(spec_.minimum, 1)) return {};
  std::sort(absent.begin(), absent.end());
  return absent;
}

bool Round::HasMinimum() const { return reports() >= std::max<uint32_t>(spec_.minimum, 1); }

bool Round::AwaitsAny(absl::Time now) const {
  const size_t size = spec_.cohort.size();
  for (size_t looked = 0; looked < size; ++looked, awaited_ = (awaited_ + 1) % size) {
    const ClientIndex index = spec_.cohort[awaited_];
    if (members_.at(index).state != MemberState::kWaiting) continue;
    if (roster_->connected(index) || now < GivenUpAt(index)) return true;
  }
  return false;
}

bool Round::IsIdle(uint64_t round, uint32_t attempt, const std::string& client) const {
  if (roster_ == nullptr || spec_.round != round || spec_.attempt != attempt) return false;
  const std::optional<ClientIndex> index = roster_->Find(client);
  if (!index || !roster_->connected(*index)) return false;
  const SessionId session = roster_->host(*index).session;
  // Whichever are fewer: the clients of a process or those of the round.
  const absl::Span<const ClientIndex> hosted = roster_->HostedBy(session);
  const absl::Span<const ClientIndex> few =
      hosted.size() < spec_.cohort.size() ? hosted : absl::MakeConstSpan(spec_.cohort);
  if (few.size() > kMostLookedAt) return false;
  return absl::c_none_of(few, [&](ClientIndex i) {
    const auto member = members_.find(i);
    return member != members_.end() && roster_->host(i).session == session &&
           (member->second.state == MemberState::kWaiting ||
            member->second.state == MemberState::kAdding);
  });
}

absl::Status Round::CheckOpen(uint64_t round, uint32_t attempt) const {
  const auto asked = std::make_pair(round, attempt);
  const auto now = std::make_pair(spec_.round, spec_.attempt);
  if (open_ && asked == now) return absl::OkStatus();
#ifdef LEEWAY_MUTANT_ACCEPT_STALE  // a deliberate bug that tests must find
  if (open_ && asked < now) return absl::OkStatus();
#endif
  const std::string name = absl::StrCat("round ", round, " attempt ", attempt);
  if (asked > now) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(name, " is not open yet; wait for its order")),
        "future_round");
  }
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          name, " is over: the report is too late; drop it and wait for the next order")),
      "late");
}

Round::Members::const_iterator Round::FindMember(const std::string& client) const {
  const std::optional<ClientIndex> index = roster_->Find(client);
  return index ? members_.find(*index) : members_.end();
}

absl::Status Round::CheckMember(const std::string& client, const Member& member,
                                uint64_t digest) const {
  switch (member.state) {
    case MemberState::kWaiting:
    case MemberState::kAdding:
      return absl::OkStatus();
    case MemberState::kFailed:
    case MemberState::kReplaced:
      return WithReason(
          absl::FailedPreconditionError(absl::StrCat(
              "client '", client, "' has lost its place in round ", spec_.round,
              member.state == MemberState::kReplaced ? ": it was away too long and another took it"
                                                     : "",
              "; wait for the next order")),
          "lost_place");
    case MemberState::kReported:
      if (member.digest == digest) return absl::OkStatus();
      return WithReason(absl::AlreadyExistsError(
                            absl::StrCat("client '", client, "' has already reported in round ",
                                         spec_.round, " with other bytes; the first report stays")),
                        "other_bytes");
  }
  return absl::InternalError("unknown state of a member");
}

absl::Status Round::CheckTime(absl::Time now) const {
  if (spec_.enough > 0 && reports_ >= spec_.enough) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat("round ", spec_.round, " has its ", spec_.enough,
                                                   " reports: this one is too late; drop it")),
        "late");
  }
  // Else reports that cannot count, one after the other, would keep the round open.
  if (now >= spec_.deadline) {
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("round ", spec_.round,
                                       " is past its deadline: the report is too late; drop "
                                       "it and wait for the next order")),
                      "late");
  }
  return absl::OkStatus();
}

absl::StatusOr<Round::Admission> Round::CheckReport(const ReportKey& key, absl::Time now) const {
  LEEWAY_RETURN_IF_ERROR(CheckOpen(key.round, key.attempt));
  size_t counted = 0;
  size_t adding = 0;
  absl::flat_hash_set<ClientIndex> named;
  if (key.clients.size() > 1) named.reserve(key.clients.size());
  for (const std::string& client : key.clients) {
    const auto member = FindMember(client);
    if (member == members_.end()) {
      return WithReason(absl::PermissionDeniedError(absl::StrCat(
                            "client '", client, "' was not sampled in round ", key.round)),
                        "not_sampled");
    }
    if (key.clients.size() > 1 && !named.insert(member->first).second) {
      return WithReason(absl::InvalidArgumentError(absl::StrCat(
                            "client '", client, "' is named twice in one report; name it once")),
                        "named_twice");
    }
    LEEWAY_RETURN_IF_ERROR(CheckMember(client, member->second, key.digest));
    if (member->second.state == MemberState::kReported) ++counted;
    if (member->second.state == MemberState::kAdding) ++adding;
  }
#ifdef LEEWAY_MUTANT_ANSWER_EARLY  // a deliberate bug that tests must find
  counted += std::exchange(adding, 0);
#endif
  if (counted == key.clients.size()) return Admission{.replay = true, .shares = {}};
  if (counted > 0) {
    return WithReason(
        absl::AlreadyExistsError("some of the clients in this report were already counted"),
        "other_bytes");
  }
  LEEWAY_RETURN_IF_ERROR(CheckTime(now));
  // Another report of these clients may turn out to be damaged, and one of those that are
  // enough to be refused: neither is known before it has been added.
  const bool last_places_taken = spec_.enough > 0 && reports_ + adding_ >= spec_.enough;
#ifdef LEEWAY_MUTANT_DROP_SPARES  // a deliberate bug that tests must find
  if (last_places_taken) return absl::FailedPreconditionError("late");
#endif
  return Admission{.undecided = adding > 0 || last_places_taken, .shares = {}};
}

absl::StatusOr<Round::Admission> Round::BeginReport(const ReportKey& key, absl::Time now) {
  LEEWAY_ASSIGN_OR_RETURN(Admission admission, CheckReport(key, now));
#ifdef LEEWAY_MUTANT_COUNT_REPLAYS  // a deliberate bug that tests must find
  admission.replay = false;
#endif
  if (admission.undecided) undecided_ = true;
  if (admission.replay || admission.undecided) return admission;
  for (const std::string& client : key.clients) {
    Member& member = members_.at(*roster_->Find(client));
    member.state = MemberState::kAdding;
    member.digest = key.digest;
  }
  adding_ += static_cast<uint32_t>(key.clients.size());
  admission.shares = SharesOf(key.clients);
  return admission;
}

std::vector<GroupShare> Round::SharesOf(const std::vector<std::string>& clients) const {
  std::vector<GroupShare> shares(spec_.group_count);
  for (const std::string& client : clients) {
    const ClientIndex index = *roster_->Find(client);
    const Enrolment& enrolment = roster_->clients()[index];
    GroupShare& share = shares.at(members_.at(index).group);
    ++share.clients;
    share.weight += spec_.by_examples ? enrolment.examples : 1;
    share.test_examples += enrolment.test_examples;
  }
  return shares;
}

bool Round::EndReport(const ReportKey& key, bool counted) {
  for (const std::string& client : key.clients) {
    const ClientIndex index = *roster_->Find(client);
    if (counted && roster_->clients()[index].evaluator()) ++evaluations_;
    members_.at(index).state = counted ? MemberState::kReported : MemberState::kWaiting;
  }
  const auto n = static_cast<uint32_t>(key.clients.size());
  adding_ -= n;
  if (counted) reports_ += n;
  return std::exchange(undecided_, false);
}

bool Round::Fail(const std::string& client) {
  if (!open_) return false;
  const auto found = FindMember(client);
  if (found == members_.end() || found->second.state != MemberState::kWaiting) return false;
  members_.at(found->first).state = MemberState::kFailed;
  ++failed_;
  return true;
}

Round::State Round::StateAt(absl::Time now) const {
  if (adding_ > 0) return State::kCollecting;
  const bool enough = spec_.enough > 0 && reports_ >= spec_.enough;
  const bool all = reports_ + failed_ >= spec_.cohort.size();
  if (!enough && !all && now < spec_.deadline && (!HasMinimum() || AwaitsAny(now))) {
    return State::kCollecting;
  }
  if (!HasMinimum()) return State::kShort;
  return aggregator_->CanClose() ? State::kComplete : State::kCollecting;
}

Round::Result Round::Close() {
  Result result;
  for (const ClientIndex index : spec_.cohort) {
    const MemberState state = members_.at(index).state;
    if (state == MemberState::kReported) result.accepted.push_back(index);
    if (state == MemberState::kWaiting) result.missing.push_back(index);
  }
  std::sort(result.accepted.begin(), result.accepted.end());
  std::sort(result.missing.begin(), result.missing.end());
  result.sampled = sampled_;
  result.reports = reports();
  result.replaced = replaced_;
  result.largest_norm = aggregator_->largest_norm();
  result.tally = aggregator_->Close();
  open_ = false;
  return result;
}

}  // namespace leeway
