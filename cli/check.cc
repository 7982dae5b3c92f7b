#include "cli/check.h"

#include <time.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <thread>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/estimate.h"
#include "cli/run.h"
#include "client/objective.h"
#include "common/fit_model.h"
#include "common/status.h"
#include "common/synthetic.h"
#include "records/config.h"
#include "records/evaluate_config.h"
#include "records/show.h"

namespace leeway {
namespace {

// Examples that the speed of gradients is measured with.
constexpr uint64_t kMeasureExamples = 32;

absl::Status CheckTestData(const v1::RunConfig& config, const DataFacts& facts) {
  if (facts.clients_with_test > 0 || facts.evaluator) return absl::OkStatus();
  for (int i = 0; i < config.phases_size(); ++i) {
    const v1::Phase& phase = config.phases(i);
    if (!phase.has_evaluate() && phase.train().evaluate_every() == 0) continue;
    // Without test parts clients compare with the baseline on their training parts.
    if (!config.baseline().empty() && !phase.evaluate().has_fine_tune()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "phases[", i, phase.has_evaluate() ? "].evaluate" : "].train.evaluate_every",
        " needs test data, but no client in ", facts.directory,
        " has test_x.npy and test_y.npy, and there is no directory evaluator with them; leave it "
        "out, or import with a test part (--test-fraction, --test)"));
  }
  return absl::OkStatus();
}

// Of this thread: what other programs take of the machine does not count.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The fastest of a few: the first ones also pay for memory that is touched for the first time.
template <typename Work>
double FastestSeconds(const Work& work) {
  constexpr int kRepeats = 4;
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const double start = CpuSeconds();
    work();
    fastest = std::min(fastest, CpuSeconds() - start);
  }
  return fastest;
}

// Measures gradients at the initial model, of some examples: those of a network take long.
template <typename T>
GradientSpeed Measure(Objective<T>& objective, const ModelLayout& layout, uint64_t seed) {
  const Parameters initial = InitialModel(layout, seed);
  const Vector<T>& w = std::get<Vector<T>>(initial);
  Vector<T> gradient(w.size());
  std::vector<uint32_t> rows(std::min<uint64_t>(objective.examples(), kMeasureExamples));
  std::iota(rows.begin(), rows.end(), 0u);
  GradientSpeed speed;
  speed.example_seconds = FastestSeconds([&] { objective.Evaluate(w, rows, gradient); }) /
                          static_cast<double>(rows.size());
  speed.full_batch_seconds = speed.example_seconds * static_cast<double>(objective.examples());
  if constexpr (std::is_same_v<T, double>) {  // may be cheaper than by examples
    speed.full_batch_seconds = FastestSeconds([&] { objective.FullGradient(w, gradient); });
  }
  return speed;
}

absl::StatusOr<Dataset> FirstClient(const std::string& data) {
  const std::filesystem::path synthetic = std::filesystem::path(data) / kSyntheticFile;
  if (std::filesystem::exists(synthetic)) {
    LEEWAY_ASSIGN_OR_RETURN(const SyntheticProblem problem, ReadSynthetic(synthetic));
    return Dataset::Make(SyntheticClients(problem), 0);
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<std::string> clients, ClientDirectories(data));
  return Dataset::Load(clients[0]);
}

// From the first client, as if all were like it.
absl::StatusOr<Workload> MeasureFirst(const v1::RunConfig& config, const std::string& data,
                                      uint64_t clients) {
  LEEWAY_ASSIGN_OR_RETURN(const Dataset client, FirstClient(data));
  LEEWAY_ASSIGN_OR_RETURN(const ModelLayout layout, LayoutOf(config.model(), client.Schema()));
  LEEWAY_ASSIGN_OR_RETURN(AnyObjective objective, MakeObjective(config.model(), client));
  Workload work;
  work.clients = clients;
  work.parameters = layout.size();
  work.examples = static_cast<double>(client.train.examples());
  work.speed =
      std::visit([&](auto& one) { return Measure(*one, layout, config.seed()); }, objective);
  return work;
}

// Builds the objective of every client, as the clients of the run will. A model in a file
// is computed with by workers, which know themselves what data it takes.
absl::StatusOr<DataFacts> CheckData(const v1::RunConfig& config, const std::string& data) {
  if (config.model().has_file()) return ReadFacts(data);
  return ReadFacts(
      data, [&](const Dataset& client) { return MakeObjective(config.model(), client).status(); });
}

absl::Status Check(const std::string& path, const std::string& data) {
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, LoadConfig(path));
  if (data.empty()) {
    absl::PrintF("%s is in order:\n", path);
    for (int i = 0; i < config.phases_size(); ++i) {
      absl::PrintF("  phase %d: %s (%s)\n", i + 1, PhaseText(config.phases(i)),
                   RoundsText(RoundsOf(config, i, 0)));
    }
    absl::PrintF("rounds: %s\nGive --data to check it against the data.\n",
                 RoundsText(RoundsOf(config, 0)));
    return absl::OkStatus();
  }
  LEEWAY_ASSIGN_OR_RETURN(const DataFacts facts, CheckData(config, data));
  const absl::StatusOr<ModelLayout> layout = CheckAgainst(config, facts);
  LEEWAY_RETURN_IF_ERROR(Annotate(layout.status(), path));
  if (config.has_initial()) {
    LEEWAY_ASSIGN_OR_RETURN(const ModelPtr initial, LoadInitialModel(path, config));
    LEEWAY_RETURN_IF_ERROR(FitModel(initial->file.view(), layout->tensors, layout->float64,
                                    absl::StrCat(path, ": initial.file ", config.initial().file()))
                               .status());
  }
  absl::PrintF("%s is in order:\n", path);
  for (int i = 0; i < config.phases_size(); ++i) {
    absl::PrintF("  phase %d: %s (%s)\n", i + 1, PhaseText(config.phases(i)),
                 RoundsText(RoundsOf(config, i, layout->size())));
  }
  absl::PrintF("%s fits it: %d clients, %d training examples; the model has %d parameters\n", data,
               facts.clients, facts.examples, layout->size());
  absl::PrintF("%s", EstimateText(config, *layout, facts));
  for (const std::string& note : facts.notes) absl::PrintF("Note: %s\n", note);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelLayout> CheckAgainst(const v1::RunConfig& config, const DataFacts& facts) {
  LEEWAY_RETURN_IF_ERROR(CheckClients(config, facts.clients));
  LEEWAY_RETURN_IF_ERROR(CheckTestData(config, facts));
  if (facts.sequences && !config.model().has_lstm() && !config.model().has_file()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model needs one target per example, but in ", facts.directory,
                     " there is one for every step of a sequence; use model { lstm { ... } }"));
  }
  LEEWAY_ASSIGN_OR_RETURN(ModelLayout layout, LayoutOf(config.model(), facts.Schema()));
  LEEWAY_RETURN_IF_ERROR(CheckFineTuneTensors(config, layout));
  return layout;
}

std::string CostText(const v1::RunConfig& config, const std::string& data, uint64_t clients) {
  const absl::StatusOr<Workload> work = MeasureFirst(config, data, clients);
  if (!work.ok()) return RoundsText(RoundsOf(config, 0));
  const uint64_t cores =
      std::min<uint64_t>(std::max(1u, std::thread::hardware_concurrency()), clients);
  return absl::StrCat(RoundsText(RoundsOf(config, work->parameters)), ", ",
                      SpanText(RunSeconds(config, *work) / static_cast<double>(cores)),
                      " of computing on ", cores, cores == 1 ? " core" : " cores");
}

std::string EstimateText(const v1::RunConfig& config, const ModelLayout& layout,
                         const DataFacts& facts) {
  std::string text =
      absl::StrCat("cost: ", CostText(config, facts.directory, facts.clients),
                   ", if searches take as long as usual and all clients are like the first; "
                   "messages and disk come on top\n");
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
