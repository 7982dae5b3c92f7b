#include "dashboard/feed.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "records/json_text.h"
#include "records/record_fields.h"
#include "records/verdict_text.h"

namespace leeway {
namespace {

using nlohmann::ordered_json;

constexpr absl::Duration kRest = absl::Milliseconds(100);  // between two readings
constexpr uint64_t kMostEvents = 500;                      // of the past that a page is sent
constexpr int kRecentRounds = 20;                          // that the time left is judged by

// A reading may change the verdict only if one of these is in it.
bool Weighs(const v1::RoundRecord& record) {
  return record.has_fixed_point() || record.has_release() || record.has_constants() ||
         record.has_who_pays() || record.kind() == v1::PROBE_ROUND ||
         record.kind() == v1::FINAL_LOSS_ROUND;
}

// Why a client is away, until its event comes: that is written with the next round.
constexpr char kGone[] = "its connection ended";

// An event and what the server says now are of the same departure, in seconds.
constexpr double kSameTime = 10;

// Of a process with many clients the event names a few.
bool IsDepartureOf(const v1::Event& event, const std::string& client) {
  return event.kind() == v1::Event::LEFT && (absl::StrContains(event.text(), client) ||
                                             absl::StrContains(event.text(), " more ended"));
}

// What the page may draw beside its own charts.
ordered_json MeasuresJson() {
  ordered_json list = ordered_json::array();
  for (const Measure& measure : Measures()) {
    list.push_back({{"name", measure.name}, {"title", measure.title}, {"about", measure.about}});
  }
  return list;
}

}  // namespace

std::string Cursor::Id() const { return absl::StrCat(run_id, "/", round, "/", event); }

Cursor Cursor::Parse(const std::string& id) {
  const std::vector<std::string> parts = absl::StrSplit(id, '/');
  Cursor cursor;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &cursor.round) ||
      !absl::SimpleAtoi(parts[2], &cursor.event)) {
    return {};
  }
  cursor.run_id = parts[0];
  return cursor;
}

Feed::Feed(Options options)
    : options_(std::move(options)), verdict_(absl::NotFoundError("nothing is measured yet")) {
  run_.directory = options_.directory;
  run_.config = options_.config;
  thread_ = std::thread([this] { Follow(); });
}

Feed::~Feed() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
  }
  thread_.join();
}

void Feed::Changed() {
  MutexLock lock(&mu_);
  changed_ = true;
}

void Feed::Close() {
  if (absl::Status status = Refresh(); !status.ok()) {
    MutexLock lock(&mu_);
    progress_.set_message(std::string(status.message()));
  }
  MutexLock lock(&mu_);
  closed_ = true;
  ++version_;
}

void Feed::Follow() {
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return changed_ || stopped_; };
  while (true) {
    {
      MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&woken));
      if (stopped_) return;
    }
    // A store that cannot be read now is read at the next change.
    Refresh().IgnoreError();
    MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&stopped_), kRest);
  }
}

absl::Status Feed::Refresh() {
  MutexLock reading(&reading_mu_);
  {
    MutexLock lock(&mu_);
    changed_ = false;
  }
  // First what the store has, so that the server's word is never older than it.
  const absl::Status stored = ReadStore();
  if (!stored.ok() && !(absl::IsNotFound(stored) && options_.live)) return stored;
  const LiveStatus live = options_.live ? options_.live() : LiveStatus{};
  MutexLock lock(&mu_);
  if (options_.live) {
    progress_ = live.progress;
    for (const ClientPresence& one : live.clients) {
      Client& client = Named(one.id);
      if (client.connected == one.connected && client.present == one.present &&
          client.examples == one.examples) {
        continue;
      }
      if (client.connected && !one.connected) {
        client.away_since = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
        client.reason = DepartureOf(client);
      } else if (one.connected && client.away_since > 0) {
        client.away_since = 0;
        client.reason.clear();
      }
      client.connected = one.connected;
      client.present = one.present;
      client.examples = one.examples;
      Touch(client);
    }
  } else {
    run_.served = Store::InUse(options_.directory);
    progress_.set_state(run_.state);
    progress_.set_message(run_.message);
    progress_.set_expected(static_cast<uint32_t>(run_.clients));
    if (!run_.records.empty()) {
      const v1::RoundRecord& last = run_.records.back();
      progress_.set_phase(last.phase());
      progress_.set_round(last.round());
      progress_.set_round_in_phase(last.round_in_phase());
      progress_.set_reports(last.reports());
      progress_.set_sampled(last.sampled());
    }
  }
  ++version_;
  return absl::OkStatus();
}

// Opens the store and reads what does not change. Opened before its run began it would stay
// empty: then it is tried again next time.
absl::Status Feed::OpenStore() {
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::OpenReadOnly(options_.directory));
  if (!store->begun()) return absl::OkStatus();
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<StoredClient> roster, store->Roster());
  LEEWAY_ASSIGN_OR_RETURN(RunSummary head, ReadHead(*store, options_.directory));
  MutexLock lock(&mu_);
  run_ = std::move(head);
  clients_.clear();
  index_.clear();
  for (const StoredClient& one : roster) Named(one.id).examples = one.examples;
  store_ = std::move(store);
  return absl::OkStatus();
}

absl::Status Feed::ReadStore() {
  if (store_ == nullptr) LEEWAY_RETURN_IF_ERROR(OpenStore());
  if (store_ == nullptr) return absl::OkStatus();
  uint64_t round = 0, event = 0;
  {
    MutexLock lock(&mu_);
    if (!run_.records.empty()) round = run_.records.back().round();
    if (!run_.events.empty()) event = run_.events.back().sequence();
  }
  LEEWAY_ASSIGN_OR_RETURN(std::vector<v1::RoundRecord> records, store_->RoundsAfter(round));
  LEEWAY_ASSIGN_OR_RETURN(std::vector<v1::Event> events, store_->EventsAfter(event));
  std::vector<std::vector<uint32_t>> accepted;
  accepted.reserve(records.size());
  for (const v1::RoundRecord& record : records) {
    LEEWAY_ASSIGN_OR_RETURN(accepted.emplace_back(), store_->Accepted(record.round()));
  }
  // Others may have come since.
  std::optional<RunSummary> head;
  if (!records.empty() && records.back().epoch() > EpochsRead()) {
    LEEWAY_ASSIGN_OR_RETURN(head, ReadHead(*store_, options_.directory));
  }
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunState state, store_->State());
  LEEWAY_ASSIGN_OR_RETURN(const std::string message, store_->Message());
  LEEWAY_ASSIGN_OR_RETURN(std::vector<NamedModel> names, store_->NamedModels());
  MutexLock lock(&mu_);
  const bool other_state = state != run_.state;  // a verdict says what a failed run lacks
  if (head) {
    run_.roster = std::move(head->roster);
    run_.epochs = std::move(head->epochs);
    run_.clients = head->clients;
    for (const StoredClient& one : run_.roster) Named(one.id).examples = one.examples;
  }
  run_.state = state;
  run_.message = message;
  run_.names = std::move(names);
  for (size_t i = 0; i < records.size(); ++i) {
    for (const uint32_t index : accepted[i]) {
      if (index >= run_.roster.size()) continue;
      Client& client = Named(run_.roster[index].id);
      client.last_report = records[i].round();
      Touch(client);
    }
  }
  for (const v1::Event& one : events) Count(one);
  const bool weighs = std::any_of(records.begin(), records.end(), Weighs);
  run_.records.insert(run_.records.end(), records.begin(), records.end());
  run_.events.insert(run_.events.end(), events.begin(), events.end());
  if (weighs || other_state || run_.records.size() == records.size()) verdict_ = Judge(run_);
  return absl::OkStatus();
}

Feed::Client& Feed::Named(const std::string& id) {
  const auto [found, fresh] = index_.try_emplace(id, clients_.size());
  if (fresh) {
    Client client;
    client.id = id;
    clients_.push_back(client);
    Touch(clients_.back());
  }
  return clients_[found->second];
}

std::string Feed::DepartureOf(const Client& client) const {
  for (auto event = run_.events.rbegin(); event != run_.events.rend(); ++event) {
    if (event->time() < client.away_since - kSameTime) break;
    if (IsDepartureOf(*event, client.id)) return event->text();
  }
  return kGone;
}

void Feed::Count(const v1::Event& event) {
  if (event.kind() == v1::Event::LEFT) {  // it may come after the server has said so
    for (Client& client : clients_) {
      if (client.away_since == 0 || client.reason != kGone) continue;
      if (!IsDepartureOf(event, client.id)) continue;
      client.reason = event.text();
      Touch(client);
    }
  }
  const auto found = index_.find(event.subject());
  if (found == index_.end()) return;
  Client& client = clients_[found->second];
  if (event.kind() == v1::Event::REFUSED) {
    ++client.refusals;
    client.reason = event.text();
  } else if (event.kind() == v1::Event::QUARANTINED) {
    client.quarantined = true;
    client.reason = event.text();
  }
  Touch(client);
}

std::optional<std::string> Feed::Next(Cursor& cursor, absl::Duration limit) {
  MutexLock lock(&mu_);
  const auto news = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return version_ > cursor.version || stopped_;
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&news), limit) || stopped_) return std::nullopt;
  // Another run than the one the watcher knew: it starts over.
  if (cursor.run_id != run_.run_id) cursor = {.run_id = run_.run_id};
  std::string text = News(cursor);
  if (!run_.records.empty()) cursor.round = run_.records.back().round();
  if (!run_.events.empty()) cursor.event = run_.events.back().sequence();
  cursor.version = version_;
  return text;
}

bool Feed::Ended(const Cursor& cursor) const {
  MutexLock lock(&mu_);
  return stopped_ || (closed_ && cursor.version == version_);
}

bool Feed::Over() const {
  MutexLock lock(&mu_);
  return progress_.state() == v1::DONE || progress_.state() == v1::FAILED;
}

std::string Feed::Json() const {
  MutexLock lock(&mu_);
  return RunJson(run_);
}

RunSummary Feed::Summary() const {
  MutexLock lock(&mu_);
  return run_;
}

// One message to a watcher. Lists hold what is new since its cursor.
std::string Feed::News(const Cursor& since) const {
  ordered_json phases = ordered_json::array();
  for (const v1::Phase& phase : run_.config.phases()) phases.push_back(PhaseText(phase));
  ordered_json progress = FieldsJson(progress_);
  if (options_.live == nullptr) progress["state"] = StateName(run_);  // it may have stopped
  progress["seconds_left"] = SecondsLeft();
  ordered_json json = {
      {"run_id", run_.run_id},
      {"name", run_.config.name().empty() ? run_.directory : run_.config.name()},
      {"directory", run_.directory},
      {"model", ModelKind(run_.config.model())},
      {"after_round", since.round},
      {"live", options_.live != nullptr && !closed_},
      {"phases", std::move(phases)},
      {"progress", std::move(progress)},
      {"clients_total", clients_.size()},
      {"clients", ClientsJson(since.version)},
      {"events", EventsJson(since.event)},
      {"verdict", verdict_.ok() ? VerdictObject(*verdict_) : ordered_json(nullptr)}};
  if (!verdict_.ok()) json["no_verdict"] = std::string(verdict_.status().message());
  if (since.version == 0) json["measures"] = MeasuresJson();  // they do not change
  json["run"] = MeasuredJson(run_, since.round);
  return JsonLine(json);
}

// Of the current phase, from its last rounds; NaN if not known.
double Feed::SecondsLeft() const {
  if (progress_.state() != v1::RUNNING || progress_.rounds_in_phase() == 0) return NAN;
  double seconds = 0;
  int rounds = 0;
  for (auto one = run_.records.rbegin(); one != run_.records.rend() && rounds < kRecentRounds;
       ++one) {
    if (one->phase() != progress_.phase()) break;
    seconds += one->seconds();
    ++rounds;
  }
  if (rounds == 0) return NAN;
  const uint64_t done = run_.records.back().round_in_phase();
  const uint64_t left = progress_.rounds_in_phase() - std::min(progress_.rounds_in_phase(), done);
  return seconds / rounds * static_cast<double>(left);
}

ordered_json Feed::EventsJson(uint64_t since) const {
  ordered_json events = ordered_json::array();
  const uint64_t total = run_.events.size();
  for (const v1::Event& event : run_.events) {
    if (event.sequence() <= since || event.sequence() + kMostEvents <= total) continue;
    events.push_back(EventJson(event));
  }
  return events;
}

std::string Feed::StateOf(const Client& client) {
  if (client.quarantined) return "quarantined";
  if (client.present) return client.connected ? "connected" : "away";
  return client.connected ? "waiting" : "left";
}

ordered_json Feed::ClientsJson(uint64_t since) const {
  ordered_json clients = ordered_json::array();
  for (size_t i = 0; i < std::min(clients_.size(), kMostClientsShown); ++i) {
    const Client& client = clients_[i];
    if (client.version <= since) continue;
    clients.push_back({{"index", i},
                       {"id", client.id},
                       {"examples", client.examples},
                       {"state", StateOf(client)},
                       {"away_since", client.away_since > 0 ? ordered_json(client.away_since)
                                                            : ordered_json(nullptr)},
                       {"last_report", client.last_report},
                       {"refusals", client.refusals},
                       {"reason", client.reason}});
  }
  return clients;
}

}  // namespace leeway
