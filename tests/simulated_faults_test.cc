// Whole fault histories in one process, from a seed: the real coordinator, sampler
// and tally; clients, a server process with a disk, and a network that drops,
// duplicates, delays and reorders, with crashes, restarts and clock jumps. After
// every step:
//   - a committed model is exactly the sum of the accepted reports to its base, each
//     counted once;
//   - what was committed is still there after a crash, and the round never goes back;
//   - every round ends once faults do;
//   - where all sampled clients must report, the bits are those of a run without
//     faults.
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
#include <vector>

#include "common/digest.h"
#include "common/rng.h"
#include "common/sampler.h"
#include "common/tally.h"
#include "server/coordinator.h"

namespace leeway {
namespace {

constexpr uint32_t kClients = 6;
constexpr uint64_t kRounds = 6;
constexpr double kMaxUpdate = 256;
using Model = std::array<double, 2>;

// What the rules of a history are.
struct Rules {
  uint32_t size = kClients;
  uint32_t spare = 0;
  uint32_t minimum = 0;  // 0: all sampled
  absl::Duration deadline = absl::InfiniteDuration();
  absl::Duration replace_after = absl::InfiniteDuration();
  bool SameBits() const {  // nothing depends on time
    return spare == 0 && minimum == 0 && deadline == absl::InfiniteDuration() &&
           replace_after == absl::InfiniteDuration();
  }
};

struct Report {
  uint64_t round = 0;
  uint32_t attempt = 0;
  uint32_t client = 0;
  Model displacement{};
};

std::string NameOf(uint32_t client) { return "client_" + std::to_string(client); }

Model LocalUpdate(const Model& w, uint64_t round, uint32_t client) {
  const double c = 1.0 + client;
  return {0.1 * (w[0] - c), 0.05 * (w[1] + c * static_cast<double>(round))};
}

TallyShape Shape(uint64_t weight) {
  TallyShape shape;
  shape.dimension = 2;
  shape.vectors = {{"displacement", FractionBits(kMaxUpdate, weight), kMaxUpdate}};
  return shape;
}

void Fold(const Report& report, Tally& tally) {
  ASSERT_TRUE(tally.Add<double>(0, 1, {}, {report.displacement.data(), 2}).ok());
}

Model Step(const Model& base, const Tally& tally) {
  const Vector<double> sum = tally.vector(0);
  const auto n = static_cast<double>(tally.weight());
  return {base[0] - sum[0] / n, base[1] - sum[1] / n};
}

// What survives a crash.
struct Disk {
  uint64_t round = 0;
  Model model{1.0, -1.0};
};

class History {
 public:
  History(uint64_t seed, Rules rules, bool faults)
      : rng_(seed, 1, 0, Purpose::kBatchOrder), rules_(rules), faults_(faults) {
    for (uint32_t c = 0; c < kClients; ++c) roster_.push_back({NameOf(c), 10, 0});
    // Some processes host two clients.
    for (uint32_t c = 0; c < kClients; ++c) {
      if (c > 0 && rng_.Below(3) == 0) {
        processes_.back().clients.push_back(c);
      } else {
        processes_.push_back({});
        processes_.back().clients.push_back(c);
      }
    }
    if (faults_) quiet_after_ = now_ + absl::Seconds(30);
    StartServer();
    for (size_t p = 0; p < processes_.size(); ++p) After(Pause(), [this, p] { Connect(p); });
    if (faults_) After(Pause(), [this] { Strike(); });
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

  const Model& model() const { return disk_.model; }
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
    switch (rng_.Below(6)) {
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
      default:
        break;
    }
    After(Pause(), [this] { Strike(); });
  }

  void CrashServer() {
    alive_ = false;
    ++server_life_;
    coordinator_.reset();
    tally_ = Tally();
    After(Pause(), [this] { StartServer(); });
    for (size_t p = 0; p < processes_.size(); ++p) {
      if (processes_[p].session == 0) continue;  // on its way back already
      processes_[p].session = 0;
      After(Pause(), [this, p] { Connect(p); });
    }
  }

  // ---- the server, as server/engine.cc
  void StartServer() {
    alive_ = true;
    coordinator_.emplace(roster_);
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
    if (!coordinator_->round_open()) {
      OpenRound();
      return;
    }
    for (const Assignment& work : coordinator_->Replace(now_)) Order(work);
    const Coordinator::RoundState state = coordinator_->State(now_);
    if (state == Coordinator::RoundState::kCollecting) return;
    const std::vector<ClientIndex> accepted = coordinator_->CloseRound();
    if (state == Coordinator::RoundState::kShort) return;  // tried again with a new cohort
    Commit(accepted);
  }

  void OpenRound() {
    RoundSpec spec;
    spec.round = committed_ + 1;
    spec.attempt = ++attempt_;
    spec.opened = now_;
    spec.deadline = now_ + rules_.deadline;
    spec.replace_after = rules_.replace_after;
    const uint32_t asked = std::min(kClients, rules_.size + rules_.spare);
    spec.cohort = SampleCohort(7, spec.round, spec.attempt, kClients, asked);
    spec.reserves = DrawReserves(7, spec.round, spec.attempt, kClients, asked);
    if (asked > rules_.size) spec.enough = rules_.size;
    spec.minimum = rules_.minimum == 0 ? rules_.size : rules_.minimum;
    tally_ = Tally(Shape(asked));
    for (const Assignment& work : coordinator_->OpenRound(spec)) Order(work);
  }

  void Order(const Assignment& work) {
    for (size_t p = 0; p < processes_.size(); ++p) {
      if (processes_[p].session != work.session) continue;
      std::vector<uint32_t> clients;
      for (const uint32_t position : work.clients)
        clients.push_back(processes_[p].clients[position]);
      const uint64_t round = coordinator_->spec().round;
      const uint32_t attempt = coordinator_->spec().attempt;
      const Model base = disk_.model;
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

  void Receive(const Report& report) {
    if (!alive_ || !coordinator_->round_open()) return;
    const std::vector<std::string> names = {NameOf(report.client)};
    const uint64_t digest =
        Xxh3({reinterpret_cast<const char*>(report.displacement.data()), sizeof(Model)});
    const auto state = coordinator_->BeginReport(report.round, report.attempt, names, digest, now_);
    if (!state.ok() || *state == Coordinator::ReportState::kReplay) return;
    Fold(report, tally_);
    coordinator_->EndReport(names, true);
  }

  void Commit(const std::vector<ClientIndex>& accepted) {
    // Independently: each accepted client's own update to the base, once.
    Tally expected(tally_.shape());
    for (const ClientIndex c : accepted) {
      Fold({committed_ + 1, attempt_, c, LocalUpdate(disk_.model, committed_ + 1, c)}, expected);
    }
    if (tally_.clients() != accepted.size()) {
      Broken("a report was counted that is not in the accepted set, or twice");
      return;
    }
    if (tally_.flat() != expected.flat()) {
      Broken("the sum is not that of the accepted reports to this round's model");
      return;
    }
    const uint32_t minimum = rules_.minimum == 0 ? rules_.size : rules_.minimum;
    if (accepted.size() < minimum) {
      Broken("a round was committed with too few reports");
      return;
    }
    if (std::set<ClientIndex>(accepted.begin(), accepted.end()).size() != accepted.size()) {
      Broken("a client is accepted twice");
      return;
    }
    const Disk before = disk_;
    if (Bad(10)) {  // the crash comes before the one durable step: nothing has changed
      CrashServer();
      return;
    }
    disk_ = {committed_ + 1, Step(before.model, tally_)};
    if (Bad(10)) {  // or just after it, before anybody was told
      CrashServer();
      return;
    }
    committed_ = disk_.round;
    attempt_ = 0;
  }

  // ---- client processes
  void Connect(size_t p) {
    if (processes_[p].session != 0) return;
    if (!alive_) {
      After(Pause(), [this, p] { Connect(p); });
      return;
    }
    std::vector<Enrolment> hosted;
    for (const uint32_t c : processes_[p].clients) hosted.push_back(roster_[c]);
    const SessionId session = next_session_++;
    const uint64_t instance = 1000 * (p + 1) + processes_[p].life;
    if (!coordinator_->Join(session, instance, hosted).ok()) {
      After(Pause(), [this, p] { Connect(p); });
      return;
    }
    processes_[p].session = session;
    if (coordinator_->round_open()) {
      const Assignment work = coordinator_->WorkFor(session);
      if (!work.clients.empty()) Order(work);
    }
  }

  void Disconnect(size_t p) {
    if (processes_[p].session != 0 && alive_) coordinator_->Leave(processes_[p].session, now_);
    processes_[p].session = 0;
  }

  void Work(size_t p, uint64_t round, uint32_t attempt, const Model& base,
            const std::vector<uint32_t>& clients) {
    for (const uint32_t c : clients) {
      Report& kept = processes_[p].kept[c];
      if (kept.round != round || kept.attempt != attempt) {
        kept = {round, attempt, c, LocalUpdate(base, round, c)};
      }
      Deliver(p, processes_[p].session, kept);
    }
  }

  // Sends until the stream ends or another report takes this one's place: what is
  // lost is sent again, what has arrived is a replay.
  void Deliver(size_t p, SessionId session, const Report& report) {
    const Report& kept = processes_[p].kept[report.client];
    if (processes_[p].session != session || kept.round != report.round ||
        kept.attempt != report.attempt) {
      return;
    }
    Send([this, report] { Receive(report); });
    After(absl::Seconds(2), [this, p, session, report] { Deliver(p, session, report); });
  }

  Rng rng_;
  const Rules rules_;
  const bool faults_;
  std::vector<Enrolment> roster_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  absl::Time quiet_after_ = absl::InfinitePast();
  std::priority_queue<Event> events_;
  uint64_t next_event_ = 0;

  Disk disk_;
  uint64_t seen_round_ = 0;

  bool alive_ = false;
  uint64_t server_life_ = 0;
  std::optional<Coordinator> coordinator_;
  Tally tally_;
  uint64_t committed_ = 0;
  uint32_t attempt_ = 0;
  SessionId next_session_ = 1;

  std::vector<Process> processes_;
};

Rules RulesOf(uint64_t history) {
  Rules rules;
  switch (history % 4) {
    case 0:
      rules.size = kClients;
      break;
    case 1:
      rules.size = 4;
      break;
    case 2:
      rules.size = 4;
      rules.minimum = 2;
      rules.deadline = absl::Seconds(4);
      rules.replace_after = absl::Seconds(1);
      break;
    default:
      rules.size = 3;
      rules.spare = 2;
      rules.minimum = 2;
      rules.deadline = absl::Seconds(5);
      break;
  }
  return rules;
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(SimulatedFaults, NoHistoryBreaksAnInvariant) {
  std::map<uint64_t, Model> calm;
  for (uint64_t kind = 0; kind < 4; ++kind) {
    History history(kind, RulesOf(kind), false);
    ASSERT_TRUE(history.Run()) << history.failure;
    calm[kind] = history.model();
  }
  const uint64_t first = FromEnvironment("LEEWAY_HISTORY", 0);
  const uint64_t last = first > 0 ? first + 1 : FromEnvironment("LEEWAY_HISTORIES", 3000);
  for (uint64_t seed = first; seed < last; ++seed) {
    History history(seed, RulesOf(seed), true);
    ASSERT_TRUE(history.Run()) << "history " << seed << ": " << history.failure;
    if (RulesOf(seed).SameBits()) {
      ASSERT_EQ(history.model(), calm[seed % 4]) << "history " << seed << ": other bits";
    }
  }
}

}  // namespace
}  // namespace leeway
