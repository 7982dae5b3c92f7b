// What a run has left behind, for people and for programs: `leeway show`, and the
// results at the end of `leeway run`. Functions of values; no state.
#ifndef LEEWAY_RECORDS_SHOW_H_
#define LEEWAY_RECORDS_SHOW_H_

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/store.h"

namespace leeway {

// A run's store, read in full.
struct RunSummary {
  std::string directory;  // as the user gave it
  bool begun = false;     // false: it still waits for its clients; the rest is empty
  std::string run_id;
  v1::RunState state = v1::GATHERING;
  bool served = true;   // false: no server works on it now
  std::string message;  // why it failed
  v1::RunConfig config;
  uint64_t clients = 0;              // present now, or at the end; without evaluators
  uint64_t evaluators = 0;           // central test sets
  std::vector<StoredClient> roster;  // of all epochs
  std::vector<v1::Epoch> epochs;
  std::vector<v1::RoundRecord> records;
  std::vector<NamedModel> names;
  std::vector<v1::Event> events;

  // Events that somebody should look at (records/events.h).
  uint64_t Troubles() const;
  // Path of the model with this name; empty if there is none.
  std::string ModelPath(absl::string_view name) const;
};

// Clients that were present in this round.
uint64_t PopulationOf(const RunSummary& run, const v1::RoundRecord& record);

// Works while a server writes. NotFound, with the remedy, if there is no run.
absl::StatusOr<RunSummary> LoadRun(const std::string& directory);
// The same without records and events.
absl::StatusOr<RunSummary> ReadHead(const Store& store, const std::string& directory);

// "done", "running", ...
std::string StateName(v1::RunState state);
// The same, but "stopped" of a run that no server works on and that is not over.
std::string StateName(const RunSummary& run);
// "w*", "the initial model", ...
std::string PointName(v1::Probe::Point point);

// "linear regression", ...
std::string ModelKind(const v1::Model& model);
// "find the optimum w*", ...
std::string PhaseText(const v1::Phase& phase);

// Records of one kind, of rounds after `after_round`.
std::vector<v1::RoundRecord> RecordsOf(const RunSummary& run, v1::RoundKind kind,
                                       uint64_t after_round = 0);

// The round at w*: of the last optimum phase with rounds before `before_round`, the
// one with the smallest gradient. Null if there is none.
const v1::RoundRecord* FindOptimum(const RunSummary& run,
                                   uint64_t before_round = std::numeric_limits<uint64_t>::max());
// Rounds that this phase took.
uint64_t RoundsOfPhase(const RunSummary& run, uint32_t phase);

// The evaluations, of those that took several rounds (percentiles) the last.
std::vector<v1::RoundRecord> EvaluationsOf(const RunSummary& run, uint64_t after_round = 0);
// "after 50 rounds of phase 2", "phase 3".
std::string WhenText(const RunSummary& run, const v1::RoundRecord& record);
// "test loss 0.5, accuracy 81.2 % (most frequent class: 40 %) on 400 examples of 9 of 12
// clients; ...", with what was measured.
std::string EvaluationText(const v1::RoundRecord& round);

// A loss as people read it: with six digits, because losses are compared with one another;
// other numbers have four.
std::string LossText(double loss);

// "0.501112 after 100 rounds": the training loss of the model that the run's last training
// phase ended with. Empty if it is not measured yet.
std::string FinalLossText(const RunSummary& run);

// False if what was measured is rounding: with one full-batch step there is no
// drift at all.
bool Drifts(const v1::RoundRecord& probe, const v1::DriftAtSteps& drift);

// The JSON of `leeway show --json`.
std::string RunJson(const RunSummary& run);
// An event with its fields, and whether it is trouble.
nlohmann::ordered_json EventJson(const v1::Event& event);
// What of it was measured: all but config, models, clients and events. Its lists hold
// only what came after `after_round`, so that a watcher can be sent what is new.
nlohmann::ordered_json MeasuredJson(const RunSummary& run, uint64_t after_round);
// The text of `leeway show`.
std::string RunText(const RunSummary& run);
// What to read after a run: probe tables, the verdict, where the files are.
std::string ResultsText(const RunSummary& run);

// rho^2 as far as it is known: of a sample of clients the upper end of its 95 %
// interval; NaN if they were too few to tell.
double LargestDrift(const v1::DriftAtSteps& drift);

// One sentence on what a probe found.
std::string Conclusion(const v1::RoundRecord& probe);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_SHOW_H_
