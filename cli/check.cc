#include "cli/check.h"

#include <algorithm>
#include <thread>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/estimate.h"
#include "cli/run.h"
#include "client/objective.h"
#include "common/status.h"
#include "records/config.h"
#include "records/show.h"

namespace leeway {
namespace {

// Spent at most on measuring how fast gradients are, but for the first client's.
constexpr absl::Duration kMeasureFor = absl::Milliseconds(300);

absl::Status CheckTestData(const v1::RunConfig& config, const DataFacts& facts) {
  if (facts.clients_with_test > 0 || facts.evaluator) return absl::OkStatus();
  for (int i = 0; i < config.phases_size(); ++i) {
    const v1::Phase& phase = config.phases(i);
    if (!phase.has_evaluate() && phase.train().evaluate_every() == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "phases[", i, phase.has_evaluate() ? "].evaluate" : "].train.evaluate_every",
        " needs test data, but no client in ", facts.directory,
        " has test_x.npy and test_y.npy, and there is no directory evaluator with them; leave it "
        "out, or import with a test part (--test-fraction, --test)"));
  }
  return absl::OkStatus();
}

// Measures gradients at the initial model, for a short time.
class Stopwatch {
 public:
  explicit Stopwatch(const v1::RunConfig& config) : config_(config) {}

  template <typename T>
  void Measure(Objective<T>& objective, const ModelLayout& layout) {
    if (clients_ > 0 && spent_ > kMeasureFor) return;
    const Parameters initial = InitialModel(layout, config_.seed());
    const Vector<T>& w = std::get<Vector<T>>(initial);
    Vector<T> gradient(w.size());
    objective.FullGradient(w, gradient);  // what is computed once comes before
    const absl::Time start = absl::Now();
    objective.FullGradient(w, gradient);
    const absl::Time middle = absl::Now();
    objective.Evaluate(w, {}, gradient);
    const absl::Time end = absl::Now();
    full_ += absl::ToDoubleSeconds(middle - start);
    batch_ += absl::ToDoubleSeconds(end - middle);
    spent_ += end - start;
    ++clients_;
    examples_ += objective.examples();
  }

  GradientSpeed speed() const {
    if (clients_ == 0) return {};
    return {full_ / static_cast<double>(clients_), batch_ / static_cast<double>(examples_)};
  }

 private:
  const v1::RunConfig& config_;
  absl::Duration spent_;
  double full_ = 0;
  double batch_ = 0;
  uint64_t clients_ = 0;
  uint64_t examples_ = 0;
};

// Builds the objective of every client, as the clients of the run will.
absl::StatusOr<DataFacts> CheckData(const v1::RunConfig& config, const std::string& data,
                                    Stopwatch& stopwatch) {
  return ReadFacts(data, [&](const Dataset& client) -> absl::Status {
    LEEWAY_ASSIGN_OR_RETURN(const ModelLayout layout, LayoutOf(config.model(), client.Schema()));
    LEEWAY_ASSIGN_OR_RETURN(AnyObjective objective, MakeObjective(config.model(), client));
    std::visit([&](auto& one) { stopwatch.Measure(*one, layout); }, objective);
    return absl::OkStatus();
  });
}

std::string TimeText(const v1::RunConfig& config, const DataFacts& facts,
                     const GradientSpeed& speed) {
  const double examples = static_cast<double>(facts.examples) /
                          static_cast<double>(std::max<uint64_t>(1, facts.clients));
  const uint64_t cores =
      std::min<uint64_t>(std::max(1u, std::thread::hardware_concurrency()), facts.clients);
  double seconds = 0;
  for (const v1::Phase& phase : config.phases()) {
    if (!phase.has_train()) continue;
    seconds += TrainingSeconds(config, phase.train(), facts.clients, examples, speed);
  }
  if (seconds == 0) return "";
  return absl::StrCat("training: about ", SpanText(seconds / static_cast<double>(cores)),
                      " of computing on this machine's ", cores, cores == 1 ? " core" : " cores",
                      ", by the time of a gradient now; messages and disk come on top\n");
}

absl::Status Check(const std::string& path, const std::string& data) {
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, LoadConfig(path));
  if (data.empty()) {
    absl::PrintF("%s is in order:\n", path);
    for (int i = 0; i < config.phases_size(); ++i) {
      absl::PrintF("  phase %d: %s (%s)\n", i + 1, PhaseText(config.phases(i)),
                   RoundsText(RoundsOf(config.phases(i), 0)));
    }
    absl::PrintF("rounds: %s\nGive --data to check it against the data.\n",
                 RoundsText(RoundsOf(config, 0)));
    return absl::OkStatus();
  }
  Stopwatch stopwatch(config);
  LEEWAY_ASSIGN_OR_RETURN(const DataFacts facts, CheckData(config, data, stopwatch));
  const absl::StatusOr<ModelLayout> layout = CheckAgainst(config, facts);
  LEEWAY_RETURN_IF_ERROR(Annotate(layout.status(), path));
  absl::PrintF("%s is in order:\n", path);
  for (int i = 0; i < config.phases_size(); ++i) {
    absl::PrintF("  phase %d: %s (%s)\n", i + 1, PhaseText(config.phases(i)),
                 RoundsText(RoundsOf(config.phases(i), layout->size())));
  }
  absl::PrintF("%s fits it: %d clients, %d training examples; the model has %d parameters\n", data,
               facts.clients, facts.examples, layout->size());
  absl::PrintF("%s%s", EstimateText(config, *layout), TimeText(config, facts, stopwatch.speed()));
  for (const std::string& note : facts.notes) absl::PrintF("Note: %s\n", note);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelLayout> CheckAgainst(const v1::RunConfig& config, const DataFacts& facts) {
  LEEWAY_RETURN_IF_ERROR(CheckClients(config, facts.clients));
  LEEWAY_RETURN_IF_ERROR(CheckTestData(config, facts));
  if (facts.sequences && !config.model().has_lstm()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model needs one target per example, but in ", facts.directory,
                     " there is one for every step of a sequence; use model { lstm { ... } }"));
  }
  return LayoutOf(config.model(), facts.Schema());
}

std::string EstimateText(const v1::RunConfig& config, const ModelLayout& layout) {
  std::string text = absl::StrCat("rounds: ", RoundsText(RoundsOf(config, layout.size())), "\n");
  for (const v1::Phase& phase : config.phases()) {
    if (!phase.has_train()) continue;
    const RoundBytes bytes = TrainingBytes(config, phase.train(), layout);
    absl::StrAppend(&text, "a training round: ", BytesText(bytes.down), " to each client, ",
                    BytesText(bytes.up), " back (clients in one process share them)\n");
    break;
  }
  return text;
}

int CheckCommand(const std::string& config, const std::string& data) {
  const absl::Status status = Check(config, data);
  if (status.ok()) return kExitOk;
  absl::FPrintF(stderr, "leeway: %s\n", status.message());
  return kExitUsage;
}

}  // namespace leeway
