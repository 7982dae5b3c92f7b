// ReportUpload: the stream that reports go out on, opened for the first one and used until
// it ends. Receipts are waited for where they are asked for, so whatever else comes back is
// the end, and says why. For one thread.
#ifndef LEEWAY_CLIENT_REPORT_UPLOAD_H_
#define LEEWAY_CLIENT_REPORT_UPLOAD_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "client/answer.h"
#include "client/client_log.h"
#include "client/raw_stream.h"

namespace leeway {

// The server, or the way to it, was not there; another attempt may find it.
bool IsTransient(const absl::Status& status);

class ReportUpload {
 public:
  // The queue and the log outlive this.
  ReportUpload(std::shared_ptr<grpc::Channel> channel, CallQueue& queue, const ClientLog& log)
      : channel_(std::move(channel)), queue_(queue), log_(log) {}

  // Sends a new report.
  void Send(const Answer& report);
  // Waits until the server has counted the last report, which must have asked for a receipt,
  // or the stream has ended.
  void AwaitReceipt();
  // The stream has ended, and HandleEnd is to be called.
  bool ended() const { return stream_ && stream_->read_done(); }
  // Sends `last`, the newest report, again if that may help. An error means that this
  // process has to join again, or cannot take part any more; a report that the server has
  // refused is none, and is told by refused().
  absl::Status HandleEnd(const Answer& last);
  // The server has refused the last report.
  bool refused() const { return refused_; }

 private:
  //   kNoStream -> kOneReport    a report is sent
  //   kOneReport -> kMoreReports  another one follows it
  //   kOneReport, kMoreReports -> kNoStream  the stream has ended; with a report that is sent
  //                                          again, kOneReport comes next
  enum class State {
    kNoStream,
    kOneReport,   // what the server says at the end is about this one
    kMoreReports  // it may be about an earlier one, and the last is lost with the stream
  };

  void Write(const Answer& report);

  const std::shared_ptr<grpc::Channel> channel_;
  CallQueue& queue_;
  const ClientLog& log_;
  State state_ = State::kNoStream;
  std::unique_ptr<RawStream> stream_;
  int resent_ = 0;  // times that the newest report was sent again
  bool refused_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_REPORT_UPLOAD_H_
