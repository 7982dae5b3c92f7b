#include "cli/remedy_configs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "records/network_config.h"

namespace leeway {
namespace {

constexpr double kWorstTenth = 10;  // percent of clients

const v1::Train* LastTraining(const v1::RunConfig& config, uint32_t& phase) {
  for (int i = config.phases_size(); i > 0; --i) {
    if (!config.phases(i - 1).has_train()) continue;
    phase = static_cast<uint32_t>(i - 1);
    return &config.phases(i - 1).train();
  }
  return nullptr;
}

// Of every client that trains, the local steps of a round.
std::vector<double> StepsOfClients(const v1::LocalRule& rule, const RunSummary& run) {
  std::vector<double> steps;
  for (const StoredClient& client : run.roster) {
    if (client.examples == 0) continue;
    const uint64_t batch = rule.batch_size() == 0 ? client.examples : rule.batch_size();
    const uint64_t passes = (client.examples + batch - 1) / batch;
    steps.push_back(static_cast<double>(rule.steps() > 0 ? rule.steps() : rule.epochs() * passes));
  }
  return steps;
}

void AddEvaluation(const RemedyBasis& basis, v1::RunConfig& config) {
  v1::Evaluate& evaluate = *config.add_phases()->mutable_evaluate();
  if (basis.clients_test) evaluate.add_percentiles(kWorstTenth);
}

// The mu of FedProx and Ditto. Strong enough to matter: its pull undoes what is older than
// 1/(eta mu) = H steps.
double Pull(const RemedyBasis& basis) {
  return 1 / (basis.fedavg.local().step_size() * std::max(1.0, basis.local_steps));
}

// The tensors of the layer that the last one belongs to: "dense2.weight", "dense2.bias".
std::vector<std::string> LastLayer(const ModelLayout& layout) {
  const auto layer = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  std::vector<std::string> names;
  for (const TensorSpec& tensor : layout.tensors) {
    if (layer(tensor.name) == layer(layout.tensors.back().name)) names.push_back(tensor.name);
  }
  return names;
}

}  // namespace

bool IsPersonal(absl::string_view name) {
  return name == kFineTune || name == kFineTuneHead || name == kDitto;
}

const std::vector<Remedy>& Remedies() {
  static const auto* const all = new std::vector<Remedy>{
      {"scaffold", "SCAFFOLD (local { scaffold {} })"},
      {"fedprox", "FedProx (local { fedprox { ... } })"},
      {"fednova", "FedNova (local { fednova {} })"},
      {"few_steps", "FedAvg with one local step per round in the second half of the rounds"},
      {"adam", "FedAdam (server { adam {} })"},
      {"adagrad", "FedAdagrad (server { adagrad {} })"},
      {"yogi", "FedYogi (server { yogi {} })"},
      {"nesterov", "Nesterov's momentum at the server (server { nesterov: true })"},
      {kFineTune,
       "FedAvg's model with fine-tuning at each client (evaluate { fine_tune { ... } })"},
      {kFineTuneHead,
       "FedAvg's model with its last layer fine-tuned at each client (evaluate { fine_tune { ... } "
       "fine_tune_tensors: ... })"},
      {kDitto,
       "Ditto: beside FedAvg's model one of its own for each client, pulled to it (evaluate { "
       "fine_tune { fedprox { ... } } })"}};
  return *all;
}

const Remedy* FindRemedy(absl::string_view name) {
  for (const Remedy& remedy : Remedies()) {
    if (name == remedy.name) return &remedy;
  }
  return nullptr;
}

absl::StatusOr<RemedyBasis> BasisOf(const RunSummary& run, const ModelLayout& layout,
                                    double moved) {
  if (run.config.model().has_file()) {
    return absl::InvalidArgumentError(absl::StrCat(
        run.directory, " trains a model of its own (model.file), for which this command has no ",
        "worker program; put the algorithms into configs and use `leeway run`"));
  }
  uint32_t phase = 0;
  const v1::Train* train = LastTraining(run.config, phase);
  if (train == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(run.directory, " has no train phase whose result could be improved; add one"));
  }
  RemedyBasis basis;
  basis.config = run.config;
  basis.config.clear_phases();
  basis.config.clear_baseline();
  basis.config.mutable_cohort()->clear_clients();
  basis.fedavg.set_rounds(train->rounds());
  basis.fedavg.set_drift_off(true);
  v1::LocalRule& rule = *basis.fedavg.mutable_local();
  rule = train->local();
  rule.clear_algorithm();
  if (rule.has_auto_steps()) rule.set_steps(rule.auto_steps().largest());
  rule.clear_auto_steps();
  for (const v1::RoundRecord& record : RecordsOf(run, v1::TRAIN_ROUND)) {
    if (record.phase() == phase) rule.set_step_size(record.step_size());
  }
  if (!(rule.step_size() > 0)) {
    return absl::FailedPreconditionError(absl::StrCat(
        run.directory, " has not begun its training; finish it with `leeway run` first"));
  }
  const std::vector<double> steps = StepsOfClients(rule, run);
  for (const double one : steps) {
    basis.local_steps += (one - 1) / static_cast<double>(steps.size());
    basis.same_steps = basis.same_steps && one == steps[0];
  }
  for (const StoredClient& client : run.roster) {
    if (client.test_examples == 0) continue;
    (client.examples > 0 ? basis.clients_test : basis.central_test) = true;
  }
  if (IsNetwork(run.config.model())) basis.head = LastLayer(layout);
  if (moved > 0 && std::isfinite(moved)) basis.adaptive_rate = 4 * moved / train->rounds();
  return basis;
}

std::vector<std::string> DefaultRemedies(const RemedyBasis& basis) {
  std::vector<std::string> names = {"scaffold", "fedprox"};
  if (!basis.same_steps) names.push_back("fednova");  // else it is FedAvg
  if (basis.local_steps > 1) names.push_back("few_steps");
  names.push_back("adam");
  if (!basis.clients_test) return names;
  names.push_back(kFineTune);
  if (!basis.head.empty()) names.push_back(kFineTuneHead);
  names.push_back(kDitto);
  return names;
}

std::vector<std::string> AllRemedies(const RemedyBasis& basis) {
  std::vector<std::string> names;
  for (const Remedy& remedy : Remedies()) {
    if (IsPersonal(remedy.name) && !basis.clients_test) continue;
    if (remedy.name == absl::string_view(kFineTuneHead) && basis.head.empty()) continue;
    names.push_back(remedy.name);
  }
  return names;
}

namespace {

// No training: the clients start from FedAvg's model, and evaluate what they make of it.
v1::RunConfig PersonalConfig(const RemedyBasis& basis, absl::string_view name,
                             const std::string& baseline) {
  v1::RunConfig config = basis.config;
  config.set_name(std::string(name));
  config.set_baseline(baseline);
  config.mutable_initial()->Clear();
  config.mutable_initial()->set_file(baseline);
  AddEvaluation(basis, config);
  v1::Evaluate& evaluate = *config.mutable_phases(0)->mutable_evaluate();
  v1::LocalRule& rule = *evaluate.mutable_fine_tune();
  rule = basis.fedavg.local();
  if (name == kFineTuneHead)
    evaluate.mutable_fine_tune_tensors()->Assign(basis.head.begin(), basis.head.end());
  if (name == kDitto) {
    // Near to where its objective is least: the pull forgets what is older than H steps.
    constexpr uint32_t kTimes = 5;
    rule.mutable_fedprox()->set_mu(Pull(basis));
    if (rule.steps() > 0) rule.set_steps(kTimes * rule.steps());
    if (rule.epochs() > 0) rule.set_epochs(kTimes * rule.epochs());
  }
  return config;
}

}  // namespace

v1::RunConfig RemedyConfig(const RemedyBasis& basis, absl::string_view name,
                           const std::string& baseline) {
  if (IsPersonal(name)) return PersonalConfig(basis, name, baseline);
  v1::RunConfig config = basis.config;
  config.set_name(std::string(name));
  v1::Train& train = *config.add_phases()->mutable_train();
  train = basis.fedavg;
  const double eta = train.local().step_size();
  const double rate = basis.adaptive_rate;
  v1::ServerOptimizer& server = *train.mutable_server();
  if (name == "scaffold") {
    train.mutable_local()->mutable_scaffold();
    config.set_durability(v1::FULL);
    config.set_encoding(v1::EXACT);
  } else if (name == "fedprox") {
    train.mutable_local()->mutable_fedprox()->set_mu(Pull(basis));
  } else if (name == "fednova") {
    train.mutable_local()->mutable_fednova();
  } else if (name == "few_steps" && train.rounds() > 1) {
    v1::Train& rest = *config.add_phases()->mutable_train();
    rest = basis.fedavg;
    rest.set_start(v1::Probe::CURRENT);
    rest.set_rounds(basis.fedavg.rounds() / 2);
    rest.mutable_local()->clear_epochs();
    rest.mutable_local()->set_steps(1);
    train.set_rounds(basis.fedavg.rounds() - rest.rounds());
  } else if (name == "adam") {
    server.set_rate(rate);
    server.mutable_adam()->set_epsilon(rate / 10);
  } else if (name == "adagrad") {
    server.set_rate(rate);
    server.mutable_adagrad()->set_epsilon(rate / 10);
  } else if (name == "yogi") {
    server.set_rate(rate);
    server.mutable_yogi()->set_epsilon(rate / 10);
  } else if (name == "nesterov") {
    server.set_momentum(0.9);
    server.set_rate(0.1);
    server.set_nesterov(true);
  }
  // The training loss of the final model, of all clients.
  v1::Probe& probe = *config.add_phases()->mutable_probe();
  probe.set_point(v1::Probe::CURRENT);
  probe.set_step_size(eta);
  probe.add_steps(1);
  const bool tests = basis.clients_test || basis.central_test;
  if (name != kFedAvg) config.set_baseline(baseline);
  if (name != kFedAvg || tests) AddEvaluation(basis, config);
  return config;
}

}  // namespace leeway
