// Whole fault histories in one process, from a seed: the server's own roster, draw, round
// and aggregator; clients, a server process with a disk, and a network that drops,
// duplicates, delays and reorders, with crashes, restarts and clock jumps; in half of the
// histories clients also come late, leave for long and return. After every step:
//   - a committed model is exactly the sum of the accepted reports to its base, each
//     counted once;
//   - what was committed is still there after a crash, and the round never goes back;
//   - every round ends once faults do, also without a process that never comes back, if its
//     clients' reports are not needed: a client whose report was answered does not send it again,
//     and reports that are damaged are found out after others have come;
//   - a round that has its minimum of reports does not wait for clients whose processes have
//     gone, but for the time that they may take to come back;
//   - who is present changes only between rounds, is on the disk before anybody is drawn, and
//     moves nobody's index; who is not present is not drawn;
//   - where all sampled clients must report, the bits are those of a run without
//     faults and with the same epochs.
// LEEWAY_HISTORIES=n checks n histories (default 3000); LEEWAY_HISTORY=k only the k-th.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "common/rng.h"
#include "common/tally.h"
#include "server/draw.h"
#include "server/plain_aggregator.h"
#include "server/roster.h"
#include "server/round.h"

namespace leeway {
namespace {

constexpr uint32_t kClients = 6;
constexpr uint32_t kLate = 3;  // further clients, where they come late
constexpr uint64_t kRounds = 6;
constexpr double kMaxUpdate = 256;
using Point = std::array<double, 2>;

// What the rules of a history are.
struct Rules {
  uint32_t size = kClients;
  uint32_t spare = 0;
  uint32_t minimum = 0;  // 0: all sampled
  absl::Duration deadline = absl::InfiniteDuration();
  absl::Duration replace_after = absl::InfiniteDuration();
  bool open = false;  // clients come late, leave and return
  absl::Duration absent_after() const { return open ? absl::Seconds(2) : absl::InfiniteDuration(); }
  absl::Duration return_time = absl::Seconds(20);
  bool mortal = false;  // a process dies for good
  v1::RunConfig Config() const {
    v1::RunConfig config;
    config.set_seed(7);
    v1::Cohort& cohort = *config.mutable_cohort();
    cohort.set_clients(kClients);
    cohort.set_size(size);
    cohort.set_spare(spare);
    cohort.set_minimum_reports(minimum);
    cohort.set_deadline_seconds(absl::ToDoubleSeconds(deadline));
    cohort.set_return_seconds(absl::ToDoubleSeconds(return_time));
    if (replace_after < absl::InfiniteDuration()) {
      cohort.set_replace_after_seconds(absl::ToDoubleSeconds(replace_after));
    }
    return config;
  }
  bool SameBits() const {  // nothing depends on time
    return spare == 0 && minimum == 0 && deadline == absl::InfiniteDuration() &&
           replace_after == absl::InfiniteDuration();
  }
};

struct Report {
  uint64_t round = 0;
  uint32_t attempt = 0;
  uint32_t client = 0;
  Point displacement{};
  SessionId session = 0;  // that it was sent in
  bool answered = false;  // as far as its client knows: it counts, or is not needed
};

// Those that come late would be first if indices followed names.
std::string NameOf(uint32_t client) {
  return (client < kClients ? "client_" : "a_late_") + std::to_string(client);
}

Point LocalUpdate(const Point& w, uint64_t round, uint32_t client) {
  const double c = 1.0 + client;
  return {0.1 * (w[0] - c), 0.05 * (w[1] + c * static_cast<double>(round))};
}

absl::string_view BytesOf(const Point& values) {
  return {reinterpret_cast<const char*>(values.data()), sizeof(Point)};
}

// As a client sends it.
v1::ReportHeader HeaderOf(const Report& report) {
  v1::ReportHeader header;
  header.set_round(report.round);
  header.set_attempt(report.attempt);
  header.add_clients(NameOf(report.client));
  header.set_base_sha256("base");
  header.set_encoding(v1::FLOAT64);
  header.set_weight(1);
  header.set_payload_size(sizeof(Point));
  header.set_payload_hash(Xxh3(BytesOf(report.displacement)));
  return header;
}

Point Step(const Point& base, const Tally& tally) {
  const Vector<double> sum = tally.vector(0);
  const auto n = static_cast<double>(tally.weight());
  return {base[0] - sum[0] / n, base[1] - sum[1] / n};
}

// What survives a crash.
struct Disk {
  uint64_t round = 0;
  Point model{1.0, -1.0};
  std::vector<uint32_t> roster;      // the client with each index
  std::vector<PlannedEpoch> epochs;  // as a later run repeats them
  std::set<ClientIndex> present;     // in the last of them
};

class History {
 public:
  // With a plan, it repeats these epochs.
  History(uint64_t seed, Rules rules, bool faults, std::vector<PlannedEpoch> plan = {})
      : rng_(seed, 1, 0, Purpose::kBatchOrder),
        rules_(rules),
        config_(rules.Config()),
        faults_(faults),
        plan_(std::move(plan)) {
    const uint32_t clients = kClients + (rules_.open ? kLate : 0);
    for (uint32_t c = 0; c < clients; ++c) enrolled_.push_back({NameOf(c), 10, 0});
    disk_.epochs.push_back({1, {}, {}});
    for (uint32_t c = 0; c < kClients; ++c) {
      disk_.roster.push_back(c);
      disk_.present.insert(c);
      disk_.epochs[0].entered.push_back(NameOf(c));
    }
    // Some processes host two clients.
    for (uint32_t c = 0; c < clients; ++c) {
      if (c > 0 && c != kClients && rng_.Below(3) == 0) {
        processes_.back().clients.push_back(c);
      } else {
        processes_.push_back({});
        processes_.back().clients.push_back(c);
      }
    }
    if (faults_) quiet_after_ = now_ + absl::Seconds(30);
    StartServer();
    for (size_t p = 0; p < processes_.size(); ++p) {
      const bool late = plan_.empty() && processes_[p].clients[0] >= kClients;
      After(Pause() * (late ? 12 : 1), [this, p] { Connect(p); });
    }
    if (faults_) After(Pause(), [this] { Strike(); });
    if (faults_ && rules_.mortal) After(Pause() * 10, [this] { Die(); });
  }

  // False if an invariant was broken; then `failure` says which.
  bool Run() {
    for (int steps = 0; disk_.round < kRounds && failure.empty(); ++steps) {
      if (steps > 200'000) return Broken("the run is stuck");
      if (events_.empty()) return Broken("nothing happens any more");
      const Event event = events_.top();
      events_.pop();
      now_ = std::max(now_, event.time);
      event.work();
      if (alive_) Advance();
      if (disk_.round < seen_round_) return Broken("the round went back");
      seen_round_ = disk_.round;
    }
    return failure.empty();
  }

  const Point& model() const { return disk_.model; }
  const std::vector<PlannedEpoch>& epochs() const { return disk_.epochs; }
  std::string failure;

 private:
  struct Event {
    absl::Time time;
    uint64_t sequence;
    std::function<void()> work;
    bool operator<(const Event& other) const {
      return std::tie(time, sequence) > std::tie(other.time, other.sequence);
    }
  };
  struct Process {
    std::vector<uint32_t> clients;
    SessionId session = 0;
    bool dead = false;
    absl::Time gone_since = absl::InfinitePast();  // without a session, as the server sees it
    absl::Time last_order = absl::InfinitePast();
    uint64_t life = 1;                // a new one after each crash: its instance
    std::map<uint32_t, Report> kept;  // the last report of each client
  };

  bool Broken(const std::string& what) {
    if (failure.empty()) failure = what;
    return false;
  }
  void After(absl::Duration delay, std::function<void()> work) {
    events_.push({now_ + delay, next_event_++, std::move(work)});
  }
  absl::Duration Pause() { return absl::Milliseconds(1 + static_cast<int64_t>(rng_.Below(800))); }
  bool Bad(uint64_t percent) { return faults_ && now_ < quiet_after_ && rng_.Below(100) < percent; }

  // ---- the network: `work` is the arrival
  void Send(std::function<void()> work) {
    const int copies = Bad(15) ? 0 : Bad(20) ? 2 : 1;
    for (int i = 0; i < copies; ++i) After(Pause(), work);
  }

  // ---- faults
  void Strike() {
    if (now_ > quiet_after_) return;
    switch (rng_.Below(rules_.open ? 7 : 6)) {
      case 0:
        if (alive_) CrashServer();
        break;
      case 1: {  // a client process dies and is started again
        const size_t p = rng_.Below(processes_.size());
        Disconnect(p);
        ++processes_[p].life;
        processes_[p].kept.clear();
        After(Pause() * 3, [this, p] { Connect(p); });
        break;
      }
      case 2: {  // a stream breaks
        const size_t p = rng_.Below(processes_.size());
        Disconnect(p);
        After(Pause(), [this, p] { Connect(p); });
        break;
      }
      case 3:  // the clock jumps ahead
        now_ += absl::Seconds(static_cast<int64_t>(rng_.Below(5)));
        break;
      case 6: {  // a process is away for so long that its clients leave, and returns
        const size_t p = rng_.Below(processes_.size());
        Disconnect(p);
        After(rules_.absent_after() + Pause() * 4, [this, p] { Connect(p); });
        break;
      }
      default:
        break;
    }
    After(Pause(), [this] { Strike(); });
  }

  void Die() {
    Process* fewest = &processes_[0];
    for (Process& process : processes_) {
      if (process.clients.size() < fewest->clients.size()) fewest = &process;
    }
    if (fewest->clients.size() + Minimum() > kClients) return;  // it is needed
    Disconnect(static_cast<size_t>(fewest - processes_.data()));
    fewest->dead = true;
  }

  void CrashServer() {
    alive_ = false;
    ++server_life_;
    round_.reset();
    roster_.reset();
    undecided_.clear();
    After(Pause(), [this] { StartServer(); });
    for (size_t p = 0; p < processes_.size(); ++p) {
      if (processes_[p].session == 0) continue;  // on its way back already
      processes_[p].session = 0;
      After(Pause(), [this, p] { Connect(p); });
    }
  }

  // ---- the server: the steps of Engine::RunRounds
  void StartServer() {
    alive_ = true;
    std::vector<Enrolment> roster;
    std::vector<ClientIndex> away;
    for (const uint32_t client : disk_.roster) {
      const auto index = static_cast<ClientIndex>(roster.size());
      if (!disk_.present.contains(index)) away.push_back(index);
      roster.push_back(enrolled_[client]);
    }
    roster_.emplace(roster, now_, static_cast<uint32_t>(disk_.epochs.size()), away);
    for (Process& process : processes_) process.gone_since = now_;
    round_.emplace();
    committed_ = disk_.round;
    attempt_ = 0;
    Tick(server_life_);
  }

  void Tick(uint64_t life) {  // deadlines
    if (!alive_ || life != server_life_) return;
    After(absl::Milliseconds(200), [this, life] { Tick(life); });
  }

  void Advance() {
    if (committed_ >= kRounds) return;
    if (!round_->open()) {
      OpenRound();
      return;
    }
    const std::vector<ClientIndex> cohort = round_->spec().cohort;
    const uint32_t replaced = round_->replaced();
    for (const Assignment& work : round_->Replace(now_)) Order(work);
    NoteReplaced(cohort, round_->replaced() - replaced);
    const Round::State state = round_->StateAt(now_);
    if (state == Round::State::kCollecting) {
      if (counted_.size() >= Minimum() && adding_.empty() && !Awaits())
        Broken("a round waits in vain");
      return;
    }
    const bool late = now_ >= round_->spec().deadline;
    const bool enough = rules_.spare > 0 && counted_.size() >= rules_.size;
    if (state == Round::State::kComplete && !late && !enough && Awaits()) {
      Broken("a round has not waited for a client that was there, or may have come back");
      return;
    }
    const Round::Result result = round_->Close();
    if (state == Round::State::kShort) return;  // tried again with a new cohort
    Commit(result);
  }

  // Engine::PlanRound: clients come and go. False if nothing more can be done now.
  bool BeginEpochs() {
    while (true) {
      EpochChange change;
      const size_t begun = disk_.epochs.size();
      if (plan_.empty()) {
        change = roster_->NextEpoch(now_, rules_.absent_after(), rules_.minimum);
      } else if (begun < plan_.size() && plan_[begun].first_round == committed_ + 1) {
        absl::StatusOr<EpochChange> planned = roster_->FollowPlan(plan_[begun]);
        if (!planned.ok()) return false;  // somebody has not joined yet
        change = *std::move(planned);
      }
      if (change.empty()) return true;
      roster_->BeginEpoch(change);
      if (Bad(10)) {  // the crash comes before the epoch is durable
        CrashServer();
        return false;
      }
      StoreEpoch(change);
      for (size_t i = 0; i < disk_.roster.size(); ++i) {
        if (roster_->clients()[i].id != NameOf(disk_.roster[i])) return Broken("an index moved");
      }
      if (plan_.empty() && roster_->waiting() > 0) return Broken("a client that came was left out");
      if (Bad(10)) {  // or after it, before anybody was asked
        CrashServer();
        return false;
      }
    }
  }

  void StoreEpoch(const EpochChange& change) {
    PlannedEpoch epoch = {committed_ + 1, {}, {}};
    for (const Enrolment& client : change.entered) {
      disk_.present.insert(static_cast<ClientIndex>(disk_.roster.size()));
      for (uint32_t c = 0; c < enrolled_.size(); ++c) {
        if (NameOf(c) == client.id) disk_.roster.push_back(c);
      }
      epoch.entered.push_back(client.id);
    }
    for (const ClientIndex index : change.returned) {
      disk_.present.insert(index);
      epoch.entered.push_back(NameOf(disk_.roster[index]));
    }
    for (const ClientIndex index : change.left) {
      disk_.present.erase(index);
      epoch.left.push_back(NameOf(disk_.roster[index]));
    }
    disk_.epochs.push_back(std::move(epoch));
  }

  bool ArePresent(const std::vector<ClientIndex>& clients) const {
    return std::all_of(clients.begin(), clients.end(),
                       [this](ClientIndex c) { return disk_.present.contains(c); });
  }

  // Of the open round, or of the one that would be opened now.
  uint32_t Minimum() const {
    const auto population = static_cast<uint32_t>(disk_.present.size());
    const uint32_t wanted = rules_.size == 0 ? population : std::min(rules_.size, population);
    return rules_.minimum == 0 ? wanted : std::min(rules_.minimum, wanted);
  }
  bool IsAsked(uint32_t client) const {
    const std::vector<ClientIndex>& cohort = round_->spec().cohort;
    return std::any_of(cohort.begin(), cohort.end(),
                       [&](ClientIndex index) { return disk_.roster[index] == client; });
  }

  // Is a report of the round still to be expected? Those who are replaced have gone, too.
  bool Awaits() const {
    for (const Process& process : processes_) {
      const bool gone =
          process.session == 0 &&
          now_ >= process.gone_since + std::min(rules_.return_time, rules_.replace_after);
      if (gone) continue;
      for (const uint32_t client : process.clients) {
        if (IsAsked(client) && !counted_.contains(client) && !replaced_.contains(client)) {
          return true;
        }
      }
    }
    return false;
  }

  void OpenRound() {
    if (!BeginEpochs()) return;
    RoundPlan plan;
    plan.record.set_round(committed_ + 1);
    plan.record.set_kind(v1::TRAIN_ROUND);
    plan.sample = rules_.size;
    plan.task.set_groups(1);
    Ask(kDisplacement, plan.task).set_largest(kMaxUpdate);
    const absl::StatusOr<RoundSpec> spec = DrawRound(config_, *roster_, plan, ++attempt_, now_);
    if (!spec.ok()) {
      Broken(std::string(spec.status().message()));
      return;
    }
    if (!ArePresent(spec->cohort) || !ArePresent(spec->reserves)) {
      Broken("a client was drawn that is not present");
      return;
    }
    PlainAggregator::Spec sums;
    sums.sums = TaskSums(CompleteTask(config_, *roster_, plan, *spec), 2);
    sums.base_sha256 = "base";
    round_.emplace(*spec, &*roster_,
                   std::make_unique<PlainAggregator>(sums, Tally(), nullptr, nullptr));
    counted_.clear();
    replaced_.clear();
    adding_.clear();
    for (const Assignment& work : round_->Work()) Order(work);
  }

  // So many of the cohort, in its order, have given their places to others: they had been gone
  // for long enough.
  void NoteReplaced(const std::vector<ClientIndex>& cohort, uint32_t count) {
    for (const ClientIndex index : cohort) {
      if (count == 0) return;
      const uint32_t client = disk_.roster[index];
      if (counted_.contains(client) || adding_.contains(client) || replaced_.contains(client)) {
        continue;
      }
      const auto host = std::find_if(processes_.begin(), processes_.end(), [&](const Process& p) {
        return std::find(p.clients.begin(), p.clients.end(), client) != p.clients.end();
      });
      if (host->session != 0 || now_ < host->gone_since + rules_.replace_after) continue;
      replaced_.insert(client);
      --count;
    }
  }

  void Order(const Assignment& work) {
    for (size_t p = 0; p < processes_.size(); ++p) {
      if (processes_[p].session != work.session) continue;
      std::vector<uint32_t> clients;
      for (const uint32_t position : work.clients)
        clients.push_back(processes_[p].clients[position]);
      const uint64_t round = round_->spec().round;
      const uint32_t attempt = round_->spec().attempt;
      const Point base = disk_.model;
      if (Bad(10)) {  // an order that is lost is a stream that broke
        Disconnect(p);
        After(Pause(), [this, p] { Connect(p); });
        return;
      }
      const SessionId session = work.session;
      // A stream keeps the order of what it carries.
      absl::Time& arrival = processes_[p].last_order;
      arrival = std::max(now_ + Pause(), arrival + absl::Milliseconds(1));
      After(arrival - now_, [this, p, session, round, attempt, base, clients] {
        if (processes_[p].session == session) Work(p, round, attempt, base, clients);
      });
    }
  }

  void Receive(size_t p, const Report& report) {
    if (!alive_) return;
    if (!round_->open()) return Answer(p, report);  // too late
    const v1::ReportHeader header = HeaderOf(report);
    const ReportKey key = {
        report.round, report.attempt, {NameOf(report.client)}, Xxh3(header.SerializeAsString())};
    if (!round_->aggregator().Admit(header).ok()) {
      Broken("an honest report is not admitted");
      return;
    }
    const auto admission = round_->BeginReport(key, now_);
    if (!admission.ok() || admission->replay) return Answer(p, report);
    if (admission->undecided) {  // its thread waits
      undecided_.emplace_back(p, report);
      return;
    }
    adding_.insert(report.client);
    const absl::Duration takes = Bad(50) ? Pause() : absl::ZeroDuration();
    Bytes bytes = Bad(20) ? Bytes::kDamaged : Bytes::kWhole;
    if (rules_.spare > 0 && Bad(20)) bytes = Bytes::kBad;
    After(takes,
          [this, p, report, header, key, shares = admission->shares, bytes, life = server_life_] {
            if (alive_ && life == server_life_) Add(p, report, header, key, shares, bytes);
          });
  }

  // What of a report has arrived.
  enum class Bytes {
    kWhole,
    kDamaged,  // on their way: its client sends it again
    kBad,      // for good: its client loses its place in the round
  };
  void Add(size_t p, const Report& report, const v1::ReportHeader& header, const ReportKey& key,
           const std::vector<GroupShare>& shares, Bytes what) {
    std::string bytes(BytesOf(report.displacement));
    if (what != Bytes::kWhole) bytes[0] = static_cast<char>(bytes[0] ^ 1);
    const absl::Status added = round_->aggregator().Add(
        header, {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, shares);
    const bool awaited = round_->EndReport(key, added.ok());
    adding_.erase(report.client);
    if (added.ok() != (what == Bytes::kWhole)) Broken("a report is not judged by its bytes");
    if (added.ok()) counted_.insert(report.client);
    if (what == Bytes::kBad && round_->Fail(NameOf(report.client))) replaced_.insert(report.client);
    if (what == Bytes::kDamaged) {
      Send([this, p, report] { Receive(p, report); });
    } else {
      Answer(p, report);
    }
    if (awaited == undecided_.empty()) Broken("it is not known that a report is undecided");
    for (const auto& [from, one] : std::exchange(undecided_, {})) Receive(from, one);
  }

  // The client hears that its report is at its end, unless its stream has ended.
  void Answer(size_t p, const Report& report) {
    Send([this, p, report] {
      if (processes_[p].session != report.session) return;
      Report& kept = processes_[p].kept[report.client];
      if (kept.round == report.round && kept.attempt == report.attempt) kept.answered = true;
    });
  }

  void Commit(const Round::Result& result) {
    const std::vector<ClientIndex>& accepted = result.accepted;
    const Tally& tally = result.tally;
    // Independently: each accepted client's own update to the base, once.
    Tally expected(tally.shape());
    if (roster_->epoch() != disk_.epochs.size() || !ArePresent(accepted)) {
      Broken("who is present changed while a round was open");
      return;
    }
    for (const ClientIndex c : accepted) {
      const Point update = LocalUpdate(disk_.model, committed_ + 1, disk_.roster[c]);
      ASSERT_TRUE(expected.Add<double>(0, 1, {}, {update.data(), 2}).ok());
    }
    if (tally.clients() != accepted.size() || result.reports != accepted.size()) {
      Broken("a report was counted that is not in the accepted set, or twice");
      return;
    }
    if (tally.flat() != expected.flat()) {
      Broken("the sum is not that of the accepted reports to this round's model");
      return;
    }
    if (accepted.size() < Minimum()) {
      Broken("a round was committed with too few reports");
      return;
    }
    if (std::set<ClientIndex>(accepted.begin(), accepted.end()).size() != accepted.size()) {
      Broken("a client is accepted twice");
      return;
    }
    if (Bad(10)) {  // the crash comes before the one durable step: nothing has changed
      CrashServer();
      return;
    }
    disk_.model = Step(disk_.model, tally);
    disk_.round = committed_ + 1;
    if (Bad(10)) {  // or just after it, before anybody was told
      CrashServer();
      return;
    }
    committed_ = disk_.round;
    attempt_ = 0;
  }

  // ---- client processes
  void Connect(size_t p) {
    if (processes_[p].session != 0 || processes_[p].dead) return;
    if (!alive_) {
      After(Pause(), [this, p] { Connect(p); });
      return;
    }
    std::vector<Enrolment> hosted;
    for (const uint32_t c : processes_[p].clients) hosted.push_back(enrolled_[c]);
    const SessionId session = next_session_++;
    const uint64_t instance = 1000 * (p + 1) + processes_[p].life;
    if (!roster_->Join(session, instance, hosted, now_).ok()) {
      After(Pause(), [this, p] { Connect(p); });
      return;
    }
    processes_[p].session = session;
    const Assignment work = round_->WorkFor(session);
    if (!work.clients.empty()) Order(work);
  }

  void Disconnect(size_t p) {
    if (processes_[p].session != 0 && alive_) {
      roster_->Leave(processes_[p].session, now_);
      processes_[p].gone_since = now_;
    }
    processes_[p].session = 0;
  }

  void Work(size_t p, uint64_t round, uint32_t attempt, const Point& base,
            const std::vector<uint32_t>& clients) {
    for (const uint32_t c : clients) {
      Report& kept = processes_[p].kept[c];
      if (kept.round != round || kept.attempt != attempt) {
        kept = {round, attempt, c, LocalUpdate(base, round, c)};
      }
      kept.session = processes_[p].session;
      kept.answered = false;  // the server asks for it, so that does not hold any more
      Deliver(p, processes_[p].session, kept);
    }
  }

  // Sends until it is answered, the stream ends or another report takes this one's place: what is
  // lost is sent again, what has arrived is a replay.
  void Deliver(size_t p, SessionId session, const Report& report) {
    const Report& kept = processes_[p].kept[report.client];
    if (processes_[p].session != session || kept.round != report.round ||
        kept.attempt != report.attempt || kept.answered) {
      return;
    }
    Send([this, p, report] { Receive(p, report); });
    After(absl::Seconds(2), [this, p, session, report] { Deliver(p, session, report); });
  }

  Rng rng_;
  const Rules rules_;
  const v1::RunConfig config_;
  const bool faults_;
  const std::vector<PlannedEpoch> plan_;
  std::vector<Enrolment> enrolled_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  absl::Time quiet_after_ = absl::InfinitePast();
  std::priority_queue<Event> events_;
  uint64_t next_event_ = 0;

  Disk disk_;
  uint64_t seen_round_ = 0;

  bool alive_ = false;
  uint64_t server_life_ = 0;
  std::optional<Roster> roster_;
  std::optional<Round> round_;
  uint64_t committed_ = 0;
  uint32_t attempt_ = 0;
  std::set<uint32_t> counted_;                        // whose reports the open round has
  std::set<uint32_t> replaced_;                       // who has lost its place in it
  std::set<uint32_t> adding_;                         // whose reports are being added to it
  std::vector<std::pair<size_t, Report>> undecided_;  // that wait for these, and whence
  SessionId next_session_ = 1;

  std::vector<Process> processes_;
};

constexpr uint64_t kKinds = 5;

Rules RulesOf(uint64_t history) {
  Rules rules;
  rules.open = history / kKinds % 2 == 1;
  switch (history % kKinds) {
    case 0:
      rules.size = rules.open ? 0 : kClients;
      break;
    case 1:
      rules.size = 4;
      break;
    case 2:
      rules.size = 4;
      rules.minimum = 2;
      rules.deadline = absl::Seconds(4);
      rules.replace_after = absl::Seconds(1);
      rules.return_time = absl::Seconds(1);
      break;
    case 3:
      rules.minimum = 3;  // of all
      rules.deadline = absl::Hours(24);
      rules.return_time = absl::Seconds(2);
      rules.mortal = !rules.open;
      break;
    default:
      rules.size = 3;
      rules.spare = 2;
      rules.minimum = rules.open ? 2 : 0;
      rules.deadline = rules.open ? absl::Seconds(5) : absl::Hours(24);
      rules.return_time = absl::Seconds(1);
      break;
  }
  return rules;
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(SimulatedFaults, NoHistoryBreaksAnInvariant) {
  std::map<uint64_t, Point> calm;
  for (uint64_t kind = 0; kind < kKinds; ++kind) {
    History history(kind, RulesOf(kind), false);
    ASSERT_TRUE(history.Run()) << history.failure;
    calm[kind] = history.model();
  }
  const uint64_t first = FromEnvironment("LEEWAY_HISTORY", 0);
  const uint64_t last = first > 0 ? first + 1 : FromEnvironment("LEEWAY_HISTORIES", 3000);
  size_t epochs = 0;  // after the first of a history
  for (uint64_t seed = first; seed < last; ++seed) {
    History history(seed, RulesOf(seed), true);
    ASSERT_TRUE(history.Run()) << "history " << seed << ": " << history.failure;
    if (!RulesOf(seed).SameBits()) continue;
    if (RulesOf(seed).open) {
      History again(seed, RulesOf(seed), false, history.epochs());
      ASSERT_TRUE(again.Run()) << "history " << seed << ", repeated: " << again.failure;
      ASSERT_EQ(history.model(), again.model()) << "history " << seed << ": other bits";
      epochs += history.epochs().size() - 1;
    } else {
      ASSERT_EQ(history.model(), calm[seed % kKinds]) << "history " << seed << ": other bits";
    }
  }
  // Clients do come and go, or nothing of this was tested.
  if (first == 0) {
    EXPECT_GT(epochs, last / 8);
  }
}

}  // namespace
}  // namespace leeway
