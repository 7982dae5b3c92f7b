// The runs that `leeway remedies` makes of a finished one: FedAvg again, and what may serve its
// clients better, each from the same start with the same step size, local steps and rounds. Pure
// functions of values.
#ifndef LEEWAY_CLI_REMEDY_CONFIGS_H_
#define LEEWAY_CLI_REMEDY_CONFIGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model_layout.h"
#include "proto/run.pb.h"
#include "records/show.h"

namespace leeway {

inline constexpr char kFedAvg[] = "fedavg";
// Personalisation: clients evaluate models of their own, which start from FedAvg's final model.
inline constexpr char kFineTune[] = "fine_tune";
inline constexpr char kFineTuneHead[] = "fine_tune_head";
inline constexpr char kDitto[] = "ditto";
bool IsPersonal(absl::string_view name);

struct Remedy {
  const char* name;
  const char* what;  // in a sentence: "Use ..."
};
// Those that --try knows, without FedAvg.
const std::vector<Remedy>& Remedies();
// Null if there is none of this name.
const Remedy* FindRemedy(absl::string_view name);

// What all these runs share.
struct RemedyBasis {
  v1::RunConfig config;           // without phases
  v1::Train fedavg;               // plain averaging, with the step size that the run has used
  double local_steps = 1;         // of a client in a round, on average
  bool same_steps = true;         // all clients take the same number
  bool clients_test = false;      // clients have test parts
  bool central_test = false;      // there is an evaluator
  std::vector<std::string> head;  // tensors of a network's last layer; else empty
  // Server step of the adaptive optimizers: a coordinate that moves with it in one direction
  // gets in a quarter of the rounds as far as FedAvg's did, in the root mean square.
  double adaptive_rate = 0.01;
};

// An error, with the remedy, if the run has no training that could be repeated here. `moved` is the
// root mean square over parameters of what its training has changed.
absl::StatusOr<RemedyBasis> BasisOf(const RunSummary& run, const ModelLayout& layout, double moved);

// Those worth trying where the user names none.
std::vector<std::string> DefaultRemedies(const RemedyBasis& basis);
// All that can be tried with these data and this model.
std::vector<std::string> AllRemedies(const RemedyBasis& basis);

// The config of one: kFedAvg, or one of Remedies(). The others than FedAvg compare with the model
// file `baseline`, which is FedAvg's; personalisation starts from it.
v1::RunConfig RemedyConfig(const RemedyBasis& basis, absl::string_view name,
                           const std::string& baseline);

}  // namespace leeway

#endif  // LEEWAY_CLI_REMEDY_CONFIGS_H_
