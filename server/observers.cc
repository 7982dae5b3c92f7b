#include "server/observers.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/reason.h"
#include "common/status.h"

namespace leeway {
namespace {

// Observers see a round fill up this often.
constexpr absl::Duration kNowAndThen = absl::Milliseconds(250);

}  // namespace

template <typename Entry>
void Observers::RecentLog<Entry>::Add(Entry entry, uint64_t number) {
  const size_t bytes = entry.ByteSizeLong();
  entries_.push_back({number, bytes, std::move(entry)});
  bytes_ += bytes;
  while (bytes_ > kRecentBytes && entries_.size() > 1) {
    bytes_ -= entries_.front().bytes;
    dropped_ = entries_.front().number;
    entries_.pop_front();
  }
}

template <typename Entry>
bool Observers::RecentLog<Entry>::Copy(uint64_t number,
                                       google::protobuf::RepeatedPtrField<Entry>& out) const {
  auto next = std::partition_point(entries_.begin(), entries_.end(),
                                   [&](const Numbered& one) { return one.number <= number; });
  size_t bytes = 0;
  for (; next != entries_.end(); ++next) {
    bytes += next->bytes;
    if (bytes > kPieceBytes && !out.empty()) return false;
    *out.Add() = next->entry;
  }
  return true;
}

void Observers::SetStore(std::unique_ptr<Store> store, uint64_t rounds, uint64_t events) {
  {
    MutexLock lock(&mu_);
    rounds_.StartAfter(rounds);
    events_.StartAfter(events);
  }
  MutexLock lock(&store_mu_);
  store_ = std::move(store);
}

void Observers::AddRound(v1::RoundRecord record) {
  const uint64_t round = record.round();
  MutexLock lock(&mu_);
  rounds_.Add(std::move(record), round);
}

void Observers::AddEvent(const v1::Event& event) {
  MutexLock lock(&mu_);
  events_.Add(event, event.sequence());
}

absl::StatusOr<Observers::Piece> Observers::NewsAfter(uint64_t round, uint64_t event) const {
  Piece piece;
  {
    MutexLock lock(&mu_);
    if (rounds_.Reaches(round) && events_.Reaches(event)) {
      const bool all_rounds = rounds_.Copy(round, *piece.news.mutable_rounds());
      const bool all_events = events_.Copy(event, *piece.news.mutable_events());
      piece.last = all_rounds && all_events;
      return piece;
    }
  }
  LEEWAY_RETURN_IF_ERROR(ReadStore(round, event, piece));
  if (!piece.news.rounds().empty() || !piece.news.events().empty()) {
    piece.last = false;  // memory may have more
    return piece;
  }
  // An event that the store does not have yet: so much has happened since the last commit
  // that it is not in memory any more.
  MutexLock lock(&mu_);
  const bool all_rounds = rounds_.Copy(round, *piece.news.mutable_rounds());
  const bool all_events = events_.Copy(event, *piece.news.mutable_events());
  piece.last = all_rounds && all_events;
  return piece;
}

absl::Status Observers::ReadStore(uint64_t round, uint64_t event, Piece& piece) const {
  MutexLock lock(&store_mu_);
  if (store_ == nullptr) return absl::OkStatus();
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<v1::RoundRecord> rounds,
                          store_->RoundsAfter(round, kPieceBytes));
  piece.news.mutable_rounds()->Add(rounds.begin(), rounds.end());
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<v1::Event> events,
                          store_->EventsAfter(event, kPieceBytes));
  piece.news.mutable_events()->Add(events.begin(), events.end());
  return absl::OkStatus();
}

absl::StatusOr<std::function<void()>> Observers::Subscribe(std::function<void()> changed) {
  MutexLock lock(&subscribers_mu_);
  if (subscribers_.size() >= kMostObservers) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat(
            kMostObservers, " observers watch this run already; try again when one has gone")),
        "too_many_observers");
  }
  const uint64_t id = ++last_subscriber_;
  subscribers_[id] = std::move(changed);
  return [this, id] {
    MutexLock inner(&subscribers_mu_);
    subscribers_.erase(id);
  };
}

void Observers::Notify() {
  // Under the lock, so that one who has unsubscribed is not called.
  MutexLock lock(&subscribers_mu_);
  for (const auto& [id, changed] : subscribers_) changed();
}

void Observers::NotifyNowAndThen() {
  const int64_t now = absl::GetCurrentTimeNanos();
  int64_t last = notified_.load(std::memory_order_relaxed);
  if (now - last < absl::ToInt64Nanoseconds(kNowAndThen)) return;
  if (notified_.compare_exchange_strong(last, now)) Notify();
}

}  // namespace leeway
