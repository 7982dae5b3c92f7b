#include "client/report_upload.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "common/wire.h"

namespace leeway {
namespace {

constexpr char kSubmitMethod[] = "/leeway.v1.Federation/Submit";
constexpr int kResends = 3;  // of one report, when only its stream broke

}  // namespace

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsUnknown(status) ||
         absl::IsInternal(status) || absl::IsAborted(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

void ReportUpload::Send(const Answer& report) {
  resent_ = 0;
  refused_ = false;
  Write(report);
}

void ReportUpload::Write(const Answer& report) {
  if (state_ == State::kNoStream) {
    stream_ = std::make_unique<RawStream>(channel_, kSubmitMethod, queue_);
    stream_->BeginRead();
    state_ = State::kOneReport;
  } else {
    state_ = State::kMoreReports;
  }
  Failpoint("client.before_send");
  for (const grpc::ByteBuffer& message : EncodeReport(report.header, report.payload)) {
    if (!stream_->Write(message)) break;  // its read will say why
  }
  Failpoint("client.after_send");
}

void ReportUpload::AwaitReceipt() {
  if (stream_->TakeRead()) stream_->BeginRead();
}

absl::Status ReportUpload::HandleEnd(const Answer& last) {
  const absl::Status ended = stream_->Finish();
  const State before = std::exchange(state_, State::kNoStream);
  stream_.reset();
  if ((IsTransient(ended) || absl::IsDataLoss(ended)) && ++resent_ <= kResends) {
    Write(last);
    return absl::OkStatus();
  }
  if (absl::IsUnauthenticated(ended)) return ended;  // our certificate was revoked
  // Joining again brings the order again, when the server can.
  if (IsTransient(ended) && !absl::IsDeadlineExceeded(ended)) return ended;
  if (ended.ok()) return ended;
  // The run and this process go on.
  refused_ = true;
  log_.Write(LogLine::Level::kWarning, "refused",
             absl::StrCat("the report: ", ended.message(), "; the run goes on"),
             last.header.round());
  // Alone on a stream of its own the last report gets its own answer.
  if (before == State::kMoreReports) Write(last);
  return absl::OkStatus();
}

}  // namespace leeway
