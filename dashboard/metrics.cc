#include "dashboard/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "records/events.h"

namespace leeway {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kFoldSeconds = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10};
const Histogram::BucketBoundaries kCommitSeconds = {1e-4, 3e-4, 1e-3, 3e-3, 1e-2,
                                                    3e-2, 0.1,  0.3,  1};
const Histogram::BucketBoundaries kRoundSeconds = {1e-3, 1e-2, 0.1, 1, 10, 60, 600};

// "TRAIN_ROUND" is "train".
std::string KindName(v1::RoundKind kind) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(v1::RoundKind_Name(kind), {{"_ROUND", ""}}));
}

double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

class PrometheusMetrics : public Metrics {
 public:
  void Folded(absl::Duration took, size_t payload_bytes) override {
    fold_seconds_.Observe(absl::ToDoubleSeconds(took));
    received_.Increment(static_cast<double>(payload_bytes));
  }
  void Refused(absl::string_view reason) override {
    refusals_.Add({{"reason", std::string(reason)}}).Increment();
  }
  void Ordered(size_t bytes) override { ordered_.Increment(static_cast<double>(bytes)); }
  void Fetched(size_t bytes) override { fetched_.Increment(static_cast<double>(bytes)); }

  void Happened(EventKind kind) override {
    events_.Add({{"kind", EventKindName(kind)}, {"trouble", IsTrouble(kind) ? "yes" : "no"}})
        .Increment();
  }

  void Committed(absl::Duration took, const v1::RoundRecord& record) override {
    commit_seconds_.Observe(absl::ToDoubleSeconds(took));
    const std::string kind = KindName(record.kind());
    rounds_.Add({{"kind", kind}}).Increment();
    reports_.Add({{"kind", kind}}).Increment(record.reports());
    retries_.Increment(record.attempts() > 0 ? record.attempts() - 1 : 0);
    round_seconds_.Observe(record.seconds());
    if (std::isfinite(record.loss()) && record.kind() == v1::TRAIN_ROUND) {
      loss_.Add({}).Set(record.loss());
    }
    if (std::isfinite(record.accuracy()) && record.test_examples() > 0) {
      accuracy_.Add({}).Set(record.accuracy());
    }
    // Of several numbers of steps the largest: the drift of the round's whole work.
    if (record.drift_size() > 0) {
      const v1::DriftAtSteps& drift = record.drift(record.drift_size() - 1);
      drift_.Add({{"kind", kind}}).Set(drift.average_drift_squared());
      bound_.Add({{"kind", kind}}).Set(drift.drift_bound());
    }
  }

  std::string Text(const v1::Progress& progress) override {
    resident_.Set(ResidentBytes());
    joined_.Set(progress.joined());
    expected_.Set(progress.expected());
    for (const v1::RunState state : {v1::GATHERING, v1::RUNNING, v1::DONE, v1::FAILED}) {
      state_.Add({{"state", absl::AsciiStrToLower(v1::RunState_Name(state))}})
          .Set(progress.state() == state ? 1 : 0);
    }
    round_.Set(static_cast<double>(progress.round()));
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, registry_.Collect());
    return out.str();
  }

 private:
  Family<Counter>& Count(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
  }
  Family<Gauge>& Measure(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry_);
  }
  Histogram& Time(const char* name, const char* help, const Histogram::BucketBoundaries& bounds) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add({}, bounds);
  }

  prometheus::Registry registry_;
  Family<Counter>& rounds_ = Count("leeway_rounds_total", "Rounds committed, by kind.");
  Family<Counter>& reports_ = Count("leeway_reports_total", "Clients' reports counted, by kind.");
  Family<Counter>& refusals_ = Count("leeway_refusals_total", "Reports refused, by reason.");
  Family<Counter>& events_ =
      Count("leeway_events_total", "Events recorded, by kind, and whether they are trouble.");
  Counter& retries_ =
      Count("leeway_round_retries_total", "Attempts at a round that got too few reports.").Add({});
  Family<Counter>& bytes_ = Count("leeway_bytes_total",
                                  "Bytes of report payloads received, of orders sent, of models "
                                  "fetched.");
  Counter& received_ = bytes_.Add({{"what", "reports"}});
  Counter& ordered_ = bytes_.Add({{"what", "orders"}});
  Counter& fetched_ = bytes_.Add({{"what", "models"}});
  Histogram& fold_seconds_ =
      Time("leeway_fold_seconds", "Time to check a report and add it to the sums.", kFoldSeconds);
  Histogram& commit_seconds_ =
      Time("leeway_commit_seconds", "Time to make a round durable.", kCommitSeconds);
  Histogram& round_seconds_ =
      Time("leeway_round_seconds", "Time from opening a round to its commit.", kRoundSeconds);
  Family<Gauge>& drift_ = Measure("leeway_average_drift_squared",
                                  "Average drift squared in the last round that measured it.");
  Family<Gauge>& bound_ = Measure("leeway_drift_bound", "Its bound in the same round.");
  Family<Gauge>& loss_ = Measure("leeway_loss", "Global loss in the last training round.");
  Family<Gauge>& accuracy_ = Measure("leeway_accuracy", "Test accuracy in the last evaluation.");
  Family<Gauge>& state_ = Measure("leeway_run_state", "1 for the state the run is in.");
  Gauge& joined_ = Measure("leeway_clients_joined", "Clients connected now.").Add({});
  Gauge& expected_ = Measure("leeway_clients_expected", "Clients of the run.").Add({});
  Gauge& round_ = Measure("leeway_round", "The open round, or the last.").Add({});
  Gauge& resident_ =
      Measure("leeway_resident_bytes", "Resident memory of the server process.").Add({});
};

}  // namespace

std::unique_ptr<Metrics> Metrics::Make() { return std::make_unique<PrometheusMetrics>(); }

}  // namespace leeway
