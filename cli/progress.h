// A run's progress, from the server to the user's eyes: Observer follows the
// server's stream, ProgressView shows it.
#ifndef LEEWAY_CLI_PROGRESS_H_
#define LEEWAY_CLI_PROGRESS_H_

#include <grpcpp/security/credentials.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "proto/federation.grpc.pb.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"

namespace leeway {

// How to write to a stream.
struct OutputStyle {
  bool terminal = false;  // one line may be rewritten in place
  bool color = false;

  // A terminal that understands it; colours unless NO_COLOR is set.
  static OutputStyle Of(std::FILE* out);
};

// Shows a run: on a terminal one line that is rewritten in place, elsewhere plain
// lines, not too many; the end of a phase always gets a line of its own. Time is an
// argument. Not thread-safe.
class ProgressView {
 public:
  ProgressView(v1::RunConfig config, std::FILE* out, OutputStyle style);

  void Update(const v1::Observation& observation, absl::Time now);
  // A line of its own, above the moving one.
  void Note(absl::string_view line);
  // Takes the moving line away.
  void Clear();
  // The last round that was shown.
  uint64_t last_round() const { return last_round_; }

 private:
  void AddRecord(const v1::RoundRecord& record, absl::Time now);
  void EndPhase();
  std::string PhaseResult() const;
  std::string Line(absl::Time now) const;
  // Of the search for fixed points, which has no known number of rounds: which number of
  // local steps it is at, and the time left if the rest takes as many rounds each.
  std::string FixedPointLine() const;
  std::string RateText(absl::Time now) const;  // rounds per second, time left
  std::string PhaseName(uint32_t phase) const;

  const v1::RunConfig config_;
  std::FILE* const out_;
  const OutputStyle style_;

  v1::Progress progress_;
  uint64_t last_round_ = 0;
  int notes_ = 0;            // events shown so far
  bool line_shown_ = false;  // the moving line is on the screen
  absl::Time last_shown_ = absl::InfinitePast();

  // The phase of the last record.
  std::optional<v1::RoundRecord> record_;
  double first_loss_ = 0;
  std::optional<double> final_loss_;  // of the final model, once it is measured
  double phase_seconds_ = 0;
  std::vector<uint32_t> settled_;  // rounds of each fixed point found in this phase
  uint64_t aside_ = 0;             // rounds of this phase that are (records/who_pays.h)
  absl::Time rate_since_;          // for the rate of rounds: from when,
  uint64_t rate_first_round_ = 0;  // and from which round
};

// Follows Observe on a thread of its own, and connects again when the stream
// breaks. Thread-safe.
class Observer {
 public:
  explicit Observer(const std::string& address,
                    const std::shared_ptr<grpc::ChannelCredentials>& credentials =
                        grpc::InsecureChannelCredentials());
  ~Observer();
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // Readable when there is something to take.
  int fd() const { return fd_; }
  std::vector<v1::Observation> Take();

 private:
  void Run();
  void Follow();  // one stream, to its end

  const std::unique_ptr<v1::Federation::Stub> stub_;
  const int fd_;             // an eventfd
  uint64_t last_round_ = 0;  // only the thread's

  Mutex mu_;
  CondVar stop_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::vector<v1::Observation> news_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // last: uses all of the above
};

}  // namespace leeway

#endif  // LEEWAY_CLI_PROGRESS_H_
