#include "cli/progress.h"

#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/plural.h"
#include "records/events.h"
#include "records/search_bounds.h"
#include "records/show.h"
#include "records/who_pays.h"

namespace leeway {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(80);
constexpr absl::Duration kPlainLine = absl::Seconds(5);
constexpr absl::Duration kReconnect = absl::Milliseconds(200);
constexpr int kMostNotes = 20;

constexpr char kDim[] = "\x1b[2m";
constexpr char kGreen[] = "\x1b[32m";
constexpr char kYellow[] = "\x1b[33m";
constexpr char kReset[] = "\x1b[0m";

size_t TerminalWidth(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// A search for a fixed point takes about as many rounds.
constexpr double kUsualRounds = 10;

std::string Bar(double share) {
  constexpr int kWidth = 10;
  const int full = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
  return absl::StrCat("[", std::string(static_cast<size_t>(full), '#'),
                      std::string(static_cast<size_t>(kWidth - full), '.'), "]");
}

std::string ShortTime(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d min", whole / 3600, whole / 60 % 60);
}

std::string OptimumResult(const v1::RoundRecord& record, const v1::Optimum& optimum) {
  const double tolerance = optimum.tolerance() > 0 ? optimum.tolerance() : kOptimumTolerance;
  const bool near_enough =
      optimum.tolerance() == 0 && record.round_in_phase() < optimum.max_rounds();
  if (record.gradient_norm() <= tolerance || near_enough) {
    return absl::StrFormat("optimum found in %s, |grad F| = %.2g",
                           Counted(record.round_in_phase(), "round"), record.gradient_norm());
  }
  return absl::StrFormat(
      "optimum only approached in %s: |grad F| = %.2g is above the tolerance %.2g",
      Counted(record.round_in_phase(), "round"), record.gradient_norm(), tolerance);
}

std::string EvaluationResult(const v1::RoundRecord& record) {
  return absl::StrCat("evaluated: ", EvaluationText(record));
}

std::string ConstantsText(const v1::ConstantsResult& constants) {
  std::string text = absl::StrFormat("measured L = %.4g, mu = %.4g", constants.smoothness(),
                                     constants.convexity());
  if (std::isfinite(constants.largest_client_smoothness())) {
    absl::StrAppendFormat(&text, "; over clients L up to %.4g, mu from %.4g",
                          constants.largest_client_smoothness(),
                          constants.smallest_client_convexity());
  }
  if (const double mean = constants.mean_hessian_dissimilarity(); mean > 0) {
    absl::StrAppendFormat(&text, "; Hessians differ by %.4g in the mean square", mean);
  }
  return text;
}

}  // namespace

OutputStyle OutputStyle::Of(std::FILE* out) {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool terminal =
      isatty(fileno(out)) != 0 && term != nullptr && absl::string_view(term) != "dumb";
  return {.terminal = terminal, .color = terminal && (no_color == nullptr || no_color[0] == '\0')};
}

ProgressView::ProgressView(v1::RunConfig config, std::FILE* out, OutputStyle style)
    : config_(std::move(config)), out_(out), style_(style) {}

void ProgressView::Clear() {
  if (line_shown_) std::fputs("\r\x1b[K", out_);
  line_shown_ = false;
  std::fflush(out_);
}

void ProgressView::Note(absl::string_view line) {
  Clear();
  absl::FPrintF(out_, "%s\n", line);
  std::fflush(out_);
}

void ProgressView::Update(const v1::Observation& observation, absl::Time now) {
  for (const v1::RoundRecord& record : observation.rounds()) AddRecord(record, now);
  for (const v1::Event& event : observation.events()) {
    if (!IsTrouble(event.kind()) || notes_ > kMostNotes) continue;
    const std::string text = ++notes_ > kMostNotes
                                 ? "more events follow; see the table events in run.db"
                                 : absl::StrCat(EventKindName(event.kind()), ": ", event.subject(),
                                                event.subject().empty() ? "" : ": ", event.text());
    Note(style_.color ? absl::StrCat(kYellow, text, kReset) : text);
  }
  if (observation.has_progress()) progress_ = observation.progress();
  if (progress_.state() == v1::DONE) EndPhase();
  if (progress_.state() == v1::DONE || progress_.state() == v1::FAILED) return Clear();
  if (now - last_shown_ < (style_.terminal ? kRedraw : kPlainLine)) return;
  last_shown_ = now;
  std::string line = Line(now);
  if (!style_.terminal) {
    Note(line);
    return;
  }
  // A line that wraps could not be rewritten.
  line.resize(std::min(line.size(), TerminalWidth(out_) - 1));
  absl::FPrintF(out_, "\r%s%s%s\x1b[K", style_.color ? kDim : "", line, style_.color ? kReset : "");
  line_shown_ = true;
  std::fflush(out_);
}

void ProgressView::AddRecord(const v1::RoundRecord& record, absl::Time now) {
  if (record.round() <= last_round_) return;
  if (record_.has_value() && record_->phase() != record.phase()) EndPhase();
  if (!record_.has_value()) {
    first_loss_ = record.loss();
    phase_seconds_ = 0;
    settled_.clear();
    aside_ = 0;
    rate_since_ = now;
    rate_first_round_ = record.round_in_phase();
  }
  phase_seconds_ += record.seconds();
  if (record.has_fixed_point()) settled_.push_back(record.fixed_point().rounds());
  if (IsAside(record)) ++aside_;
  last_round_ = record.round();
  if (record.kind() == v1::FINAL_LOSS_ROUND) {
    final_loss_ = record.loss();
    return;
  }
  // Measures while training do not stand for the training.
  if (record_.has_value() && record_->kind() == v1::TRAIN_ROUND &&
      record.kind() != v1::TRAIN_ROUND) {
    return;
  }
  // Rounds that come at once are those before we looked: no rate from them.
  if (rate_since_ == now) rate_first_round_ = record.round_in_phase();
  record_ = record;
}

void ProgressView::EndPhase() {
  if (!record_.has_value()) return;
  const std::string result = PhaseResult();
  Note(style_.color ? absl::StrCat(kGreen, "✓ ", kReset, result) : result);
  record_.reset();
}

std::string ProgressView::PhaseResult() const {
  const v1::RoundRecord& record = *record_;
  switch (record.kind()) {
    case v1::OPTIMUM_ROUND:
      return OptimumResult(record, config_.phases(static_cast<int>(record.phase())).optimum());
    case v1::PROBE_ROUND:
      return absl::StrFormat("drift at %s measured with %s in %s", PointName(record.point()),
                             Counted(record.reports(), "client"), ShortTime(phase_seconds_));
    case v1::TRAIN_ROUND:
      return absl::StrCat(
          "trained ", Counted(record.round_in_phase(), "round"), " in ", ShortTime(phase_seconds_),
          std::isnan(record.loss()) && !final_loss_  // not measured in this round
              ? ""
              : absl::StrFormat(": loss %.6g at the start, %.6g %s", first_loss_,
                                final_loss_.value_or(record.loss()),
                                final_loss_ ? "at the end" : "before the last round"));
    case v1::EVALUATE_ROUND:
      return EvaluationResult(record);
    case v1::CONSTANTS_ROUND:
      return ConstantsText(record.constants());
    case v1::FIXED_POINT_ROUND:
      return absl::StrFormat("FedAvg's fixed points found in %s, %s",
                             Counted(record.round_in_phase(), "round"), ShortTime(phase_seconds_));
    case v1::RELEASE_ROUND:
      return absl::StrFormat("release tested in %s, %s", Counted(record.round_in_phase(), "round"),
                             ShortTime(phase_seconds_));
    default:
      return absl::StrCat(PhaseName(record.phase()), " done");
  }
}

std::string ProgressView::PhaseName(uint32_t phase) const {
  if (phase >= static_cast<uint32_t>(config_.phases_size())) return "run";
  switch (config_.phases(static_cast<int>(phase)).kind_case()) {
    case v1::Phase::kOptimum:
      return "optimum";
    case v1::Phase::kProbe:
      return "probe";
    case v1::Phase::kTrain:
      return "train";
    case v1::Phase::kEvaluate:
      return "evaluate";
    case v1::Phase::kConstants:
      return "constants";
    case v1::Phase::kFixedPoint:
      return "fixed point";
    case v1::Phase::kRelease:
      return "release test";
    default:
      return "phase";
  }
}

std::string ProgressView::Line(absl::Time now) const {
  const v1::Progress& p = progress_;
  if (p.state() == v1::GATHERING || p.state() == v1::RUN_STATE_UNSPECIFIED) {
    return absl::StrCat("waiting for clients: ", p.joined(), "/", p.expected(), " joined");
  }
  std::string line = absl::StrCat(PhaseName(p.phase()), " ", p.round_in_phase());
  if (p.rounds_in_phase() > 0) absl::StrAppend(&line, "/", p.rounds_in_phase());
  if (!record_.has_value() || record_->phase() != p.phase()) {
    return absl::StrCat(line, "  reports ", p.reports(), "/", p.sampled());
  }
  if (record_->kind() == v1::FIXED_POINT_ROUND) return FixedPointLine();
  if (p.rounds_in_phase() > 0) {
    absl::StrAppend(&line, "  ",
                    Bar(static_cast<double>(record_->round_in_phase()) /
                        static_cast<double>(p.rounds_in_phase())));
  }
  if (!std::isnan(record_->loss())) absl::StrAppendFormat(&line, "  loss %.5g", record_->loss());
  if (record_->kind() == v1::OPTIMUM_ROUND) {
    absl::StrAppendFormat(&line, "  |grad F| %.2g", record_->gradient_norm());
  }
  if (record_->drift_size() > 0) {
    absl::StrAppendFormat(&line, "  drift^2 %.2g", record_->drift(0).average_drift_squared());
  }
  // Before the open round's first report, what the last round got says more.
  const bool open = p.reports() > 0;
  absl::StrAppend(&line, "  reports ", open ? p.reports() : record_->reports(), "/",
                  open ? p.sampled() : record_->sampled(), RateText(now));
  return line;
}

std::string ProgressView::FixedPointLine() const {
  const auto& steps = config_.phases(static_cast<int>(record_->phase())).fixed_point().steps();
  if (steps.empty()) return "fixed point";
  const size_t at = std::min(settled_.size(), static_cast<size_t>(steps.size()) - 1);
  double settled = 0;  // rounds
  double done = 0;     // local steps of a client, as is what is left
  for (size_t i = 0; i < settled_.size() && i <= at; ++i) {
    settled += settled_[i];
    done += static_cast<double>(settled_[i]) * steps[static_cast<int>(i)];
  }
  const double here =
      std::max(0.0, static_cast<double>(record_->round_in_phase() - aside_) - settled);  // rounds
  const double usual =
      settled_.empty() ? kUsualRounds : settled / static_cast<double>(settled_.size());
  done += here * steps[static_cast<int>(at)];
  double left = std::max(1.0, usual - here) * steps[static_cast<int>(at)];
  for (auto i = static_cast<int>(at) + 1; i < steps.size(); ++i) left += usual * steps[i];
  std::string line =
      absl::StrFormat("fixed point H = %d, %d of %d  %s", steps[static_cast<int>(at)], at + 1,
                      steps.size(), Bar(done / (done + left)));
  if (done > 0) {
    absl::StrAppend(&line, "  about ", ShortTime(phase_seconds_ / done * left), " left");
  }
  absl::StrAppend(&line, "  round ", record_->round_in_phase());
  if (!std::isnan(record_->loss())) absl::StrAppendFormat(&line, "  loss %.5g", record_->loss());
  return line;
}

std::string ProgressView::RateText(absl::Time now) const {
  const double elapsed = absl::ToDoubleSeconds(now - rate_since_);
  const uint64_t round = record_->round_in_phase();
  if (round <= rate_first_round_ || elapsed <= 0) return "";
  const double rate = static_cast<double>(round - rate_first_round_) / elapsed;
  std::string text = absl::StrFormat("  %.3g/s", rate);
  if (progress_.rounds_in_phase() > round) {
    const auto left = static_cast<double>(progress_.rounds_in_phase() - round);
    absl::StrAppend(&text, "  ", ShortTime(left / rate), " left");
  }
  return text;
}

namespace {

std::unique_ptr<v1::Federation::Stub> MakeStub(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // all records so far may come at once
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return v1::Federation::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
}

}  // namespace

Observer::Observer(const std::string& address,
                   const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : stub_(MakeStub(address, credentials)),
      fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

Observer::~Observer() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    stop_.SignalAll();
    if (call_ != nullptr) call_->TryCancel();
  }
  thread_.join();
  close(fd_);
}

std::vector<v1::Observation> Observer::Take() {
  eventfd_t count = 0;
  eventfd_read(fd_, &count);
  MutexLock lock(&mu_);
  return std::exchange(news_, {});
}

void Observer::Run() {
  while (true) {
    Follow();
    const absl::Time again = absl::Now() + kReconnect;
    MutexLock lock(&mu_);
    while (!stopped_ && absl::Now() < again) stop_.WaitWithDeadline(&mu_, again);
    if (stopped_) return;
  }
}

void Observer::Follow() {
  // Without a deadline: the stream lasts as long as the run, and the launcher
  // watches the server process itself.
  grpc::ClientContext call;
  {
    MutexLock lock(&mu_);
    if (stopped_) return;
    call_ = &call;
  }
  v1::ObserveRequest request;
  request.set_after_round(last_round_);
  const auto stream = stub_->Observe(&call, request);
  v1::Observation observation;
  while (stream->Read(&observation)) {
    for (const v1::RoundRecord& record : observation.rounds()) {
      last_round_ = std::max<uint64_t>(last_round_, record.round());
    }
    MutexLock lock(&mu_);
    news_.push_back(std::move(observation));
    eventfd_write(fd_, 1);
  }
  {
    MutexLock lock(&mu_);
    call_ = nullptr;
  }
  stream->Finish();
}

}  // namespace leeway
