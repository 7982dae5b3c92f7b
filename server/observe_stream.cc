#include "server/observe_stream.h"

#include <functional>
#include <memory>
#include <utility>

#include "common/mutex.h"
#include "common/status.h"
#include "common/wire.h"

namespace leeway {
namespace {

class ObserveStream : public grpc::ServerWriteReactor<v1::Observation> {
 public:
  ObserveStream(Engine& engine, Visit visit, uint64_t after_round)
      : engine_(engine), visit_(std::move(visit)), round_(after_round) {}

  absl::Status Start() {
    LEEWAY_ASSIGN_OR_RETURN(unsubscribe_, engine_.Subscribe([this] { OnNews(); }));
    OnNews();
    return absl::OkStatus();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    if (state_ == State::kLastWrite && ok) return End(grpc::Status::OK);
    // A stream that was cancelled while this was written has nobody else to end it.
    if (state_ == State::kCancelled || !ok) return End(grpc::Status::CANCELLED);
    state_ = State::kIdle;
    WriteNext();
  }
  void OnCancel() override {
    MutexLock lock(&mu_);
    if (state_ == State::kIdle) return End(grpc::Status::CANCELLED);
    if (state_ != State::kEnded) state_ = State::kCancelled;
  }
  void OnDone() override {
    TakeOver(this);
    { MutexLock lock(&mu_); }  // the last callback has let go of it
    unsubscribe_();
    delete this;
  }

 private:
  // kIdle --there is news--> kWriting --written--> kIdle
  // kIdle --the last of a run that is over--> kLastWrite --written--> kEnded
  // kIdle --cancelled--> kEnded
  // kWriting, kLastWrite --cancelled--> kCancelled --written or not--> kEnded
  enum class State { kIdle, kWriting, kLastWrite, kCancelled, kEnded };

  void OnNews() {
    MutexLock lock(&mu_);
    news_ = true;
    if (state_ == State::kIdle) WriteNext();
  }

  // Writes the next piece, if there is news.
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!news_) return;
    if (const absl::Status welcome = visit_.StillWelcome(); !welcome.ok()) {
      return End(ToGrpc(welcome));
    }
    absl::StatusOr<v1::Observation> piece = engine_.Observe(round_, event_);
    if (!piece.ok()) return End(ToGrpc(piece.status()));
    out_ = *std::move(piece);
    if (!out_.rounds().empty()) round_ = out_.rounds().rbegin()->round();
    if (!out_.events().empty()) event_ = out_.events().rbegin()->sequence();
    const bool last_piece = out_.has_progress();
    news_ = !last_piece;
    const v1::RunState run = out_.progress().state();
    state_ =
        last_piece && (run == v1::DONE || run == v1::FAILED) ? State::kLastWrite : State::kWriting;
    StartWrite(&out_);
  }

  void End(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (state_ == State::kEnded) return;
    state_ = State::kEnded;
    HandOver(this);
    Finish(status);
  }

  Engine& engine_;
  const Visit visit_;
  std::function<void()> unsubscribe_;
  Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  bool news_ ABSL_GUARDED_BY(mu_) = false;  // that no piece has been made of
  uint64_t round_ ABSL_GUARDED_BY(mu_);     // the last that was sent
  uint64_t event_ ABSL_GUARDED_BY(mu_) = 0;
  v1::Observation out_;
};

}  // namespace

absl::StatusOr<grpc::ServerWriteReactor<v1::Observation>*> StartObserve(Engine& engine, Visit visit,
                                                                        uint64_t after_round) {
  auto stream = std::make_unique<ObserveStream>(engine, std::move(visit), after_round);
  LEEWAY_RETURN_IF_ERROR(stream->Start());
  return stream.release();
}

}  // namespace leeway
