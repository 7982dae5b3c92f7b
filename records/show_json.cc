// The JSON of `leeway show --json`. What a round, probe or evaluation has comes from the
// fields of its record (records/record_fields.h).
#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "records/epochs.h"
#include "records/events.h"
#include "records/final_loss.h"
#include "records/json_text.h"
#include "records/measured_constants.h"
#include "records/record_fields.h"
#include "records/show.h"
#include "records/verdict.h"

namespace leeway {
namespace {

using nlohmann::ordered_json;

ordered_json OrNull(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

// By protobuf's own rules for JSON, so that they read it back.
ordered_json ConfigJson(const v1::RunConfig& config) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(config, &text, options).ok()) return nullptr;
  return ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

ordered_json ModelsJson(const RunSummary& run) {
  ordered_json models = ordered_json::object();
  for (const NamedModel& model : run.names) {
    models[model.name] = {{"path", run.ModelPath(model.name)}, {"sha256", model.sha256}};
  }
  return models;
}

ordered_json ClientsJson(const RunSummary& run) {
  ordered_json clients = ordered_json::array();
  for (const StoredClient& client : run.roster) {
    clients.push_back({{"id", client.id},
                       {"examples", client.examples},
                       {"test_examples", client.test_examples}});
  }
  return clients;
}

ordered_json EpochJson(const EpochNames& epoch) {
  return {{"number", epoch.number},      {"first_round", epoch.first_round},
          {"clients", epoch.population}, {"entered", epoch.entered},
          {"returned", epoch.returned},  {"left", epoch.left}};
}

ordered_json OptimumJson(const RunSummary& run) {
  const v1::RoundRecord* optimum = FindOptimum(run);
  const std::string model = run.ModelPath("optimum");
  if (optimum == nullptr || model.empty()) return nullptr;
  return {{"gradient_norm", optimum->gradient_norm()},
          {"rounds", RoundsOfPhase(run, optimum->phase())},
          {"model", model}};
}

ordered_json ConstantsJson(const RunSummary& run) {
  const v1::ConstantsResult* constants = FindMeasuredConstants(run);
  return constants == nullptr ? ordered_json(nullptr) : FieldsJson(*constants);
}

ordered_json FixedPointsJson(const RunSummary& run, uint64_t after_round) {
  ordered_json points = ordered_json::array();
  for (const v1::RoundRecord& record : run.records) {
    if (!record.has_fixed_point() || record.round() <= after_round) continue;
    points.push_back(FieldsJson(record.fixed_point()));
  }
  return points;
}

ordered_json ReleasesJson(const RunSummary& run, uint64_t after_round) {
  ordered_json tests = ordered_json::array();
  for (const v1::RoundRecord& record : run.records) {
    if (!record.has_release() || record.round() <= after_round) continue;
    ordered_json test = FieldsJson(record.release());
    test["when"] = WhenText(run, record);
    tests.push_back(std::move(test));
  }
  return tests;
}

ordered_json WhoPaysJson(const RunSummary& run, uint64_t after_round) {
  ordered_json all = ordered_json::array();
  for (const v1::RoundRecord& record : run.records) {
    if (!record.has_who_pays() || record.round() <= after_round) continue;
    ordered_json one = FieldsJson(record.who_pays());
    one["when"] = WhenText(run, record);
    one["compared_with"] = record.kind() == v1::RELEASE_ROUND ? "synchronised steps" : "optimum";
    all.push_back(std::move(one));
  }
  return all;
}

// The drift at each h is called "steps" here, and who reported "clients".
ordered_json ProbeJson(const v1::RoundRecord& probe) {
  ordered_json json = FieldsJson(probe);
  json["clients"] = probe.reports();
  json["steps"] = ordered_json::array();
  if (json.contains("drift")) json["steps"] = json["drift"];
  json.erase("drift");
  return json;
}

// The training loss of the model that the last training phase ended with.
ordered_json FinalLossJson(const RunSummary& run) {
  const v1::RoundRecord* round = FinalLoss(run);
  if (round == nullptr) return nullptr;
  return {{"loss", round->loss()},
          {"loss_standard_error", round->loss_standard_error()},
          {"rounds", TrainingOf(run, *round)->rounds},
          {"clients", round->reports()},
          {"distance_squared", round->distance_squared()}};
}

ordered_json EvaluationJson(const RunSummary& run, const v1::RoundRecord& round) {
  ordered_json json = FieldsJson(round);
  const std::optional<Training> training = TrainingOf(run, round);
  json["trained_in_phase"] = training ? ordered_json(training->phase) : ordered_json(nullptr);
  json["trained_rounds"] = training ? ordered_json(training->rounds) : ordered_json(nullptr);
  if (!json.contains("percentiles")) json["percentiles"] = ordered_json::array();
  return json;
}

template <typename Element, typename MakeJson>
ordered_json ListJson(const std::vector<Element>& elements, const MakeJson& make_json) {
  ordered_json list = ordered_json::array();
  for (const Element& element : elements) list.push_back(make_json(element));
  return list;
}

}  // namespace

ordered_json MeasuredJson(const RunSummary& run, uint64_t after_round) {
  ordered_json json = {{"status", StateName(run)}};
  if (!run.message.empty()) json["message"] = run.message;
  json["seed"] = run.begun ? ordered_json(run.config.seed()) : ordered_json(nullptr);
  json["optimum"] = OptimumJson(run);
  json["constants"] = ConstantsJson(run);
  json["fixed_points"] = FixedPointsJson(run, after_round);
  json["releases"] = ReleasesJson(run, after_round);
  json["who_pays"] = WhoPaysJson(run, after_round);
  json["probes"] = ListJson(RecordsOf(run, v1::PROBE_ROUND, after_round), ProbeJson);
  json["rounds"] = ListJson(RecordsOf(run, v1::TRAIN_ROUND, after_round), RoundJson);
  json["final_loss"] = FinalLossJson(run);
  json["evaluations"] =
      ListJson(EvaluationsOf(run, after_round),
               [&](const v1::RoundRecord& round) { return EvaluationJson(run, round); });
  json["troubles"] = run.Troubles();
  json["final_model"] = OrNull(run.ModelPath("final"));
  return json;
}

ordered_json EventJson(const v1::Event& event) {
  ordered_json json = FieldsJson(event);
  json["trouble"] = IsTrouble(event.kind());
  return json;
}

std::string RunJson(const RunSummary& run) {
  ordered_json json = MeasuredJson(run, 0);
  json["run_id"] = OrNull(run.run_id);
  json["config"] = run.begun ? ConfigJson(run.config) : ordered_json(nullptr);
  json["models"] = ModelsJson(run);
  json["clients"] = ClientsJson(run);
  json["epochs"] = ListJson(NamesOf(run.epochs, run.roster), EpochJson);
  json["events"] = ListJson(run.events, EventJson);
  return JsonText(json) + "\n";
}

}  // namespace leeway
