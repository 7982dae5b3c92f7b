// The JSON of `leeway show --json`.
#include <cmath>

#include "absl/strings/ascii.h"
#include "records/json.h"
#include "records/show.h"
#include "records/verdict.h"

namespace leeway {
namespace {

std::string PointKey(v1::Probe::Point point) {
  return absl::AsciiStrToLower(v1::Probe::Point_Name(point));
}

void WriteOptimum(const RunSummary& run, JsonWriter& json) {
  const v1::RoundRecord* optimum = FindOptimum(run);
  const std::string model = run.ModelPath("optimum");
  if (optimum == nullptr || model.empty()) {
    json.NullField("optimum");
    return;
  }
  json.Key("optimum").BeginObject();
  json.Field("gradient_norm", optimum->gradient_norm());
  json.Field("rounds", RoundsOfPhase(run, optimum->phase()));
  json.Field("model", model);
  json.EndObject();
}

void WriteProbe(const v1::RoundRecord& probe, JsonWriter& json) {
  json.BeginObject();
  json.Field("point", PointKey(probe.point()));
  json.Field("round", probe.round());
  json.Field("phase", probe.phase());
  json.Field("round_in_phase", probe.round_in_phase());
  json.Field("batch_size", probe.batch_size());
  json.Field("step_size", probe.step_size());
  json.Field("clients", probe.reports());
  json.Field("gradient_norm", probe.gradient_norm());
  json.Field("dissimilarity", probe.dissimilarity());
  json.Field("gradient_diversity", probe.gradient_diversity());
  json.Key("steps").BeginArray();
  for (const v1::DriftAtSteps& drift : probe.drift()) {
    json.BeginObject();
    json.Field("h", drift.h());
    json.Field("average_drift_squared", drift.average_drift_squared());
    json.Field("drift_bound", drift.drift_bound());
    json.Field("unbiased_drift_squared", drift.unbiased_drift_squared());
    json.Field("interval_low", drift.interval_low());
    json.Field("interval_high", drift.interval_high());
    json.Field("classic_bound", drift.classic_bound());
    json.Field("iterate_bias_squared", drift.iterate_bias_squared());
    json.Field("pseudo_gradient_variance", drift.pseudo_gradient_variance());
    json.EndObject();
  }
  json.EndArray().EndObject();
}

void WriteRound(const v1::RoundRecord& round, JsonWriter& json) {
  const double nan = std::nan("");
  const bool measured = round.drift_size() > 0;
  json.BeginObject();
  json.Field("round", round.round_in_phase());
  json.Field("loss", round.loss());
  json.Field("local_steps", round.local_steps());
  json.Field("step_size", round.step_size());
  json.Field("batch_size", round.batch_size());
  json.Field("server_rate", round.server_rate());
  json.Field("average_drift_squared", measured ? round.drift(0).average_drift_squared() : nan);
  json.Field("drift_bound", measured ? round.drift(0).drift_bound() : nan);
  json.Field("unbiased_drift_squared", measured ? round.drift(0).unbiased_drift_squared() : nan);
  json.Field("encoding_variance", measured ? round.drift(0).encoding_variance() : nan);
  json.Field("consensus_error", round.consensus_error());
  json.Field("pairwise_cosine", round.pairwise_cosine());
  json.Field("distance_squared", round.distance_squared());
  json.Field("encoding_error_squared", round.encoding_error_squared());
  json.Field("attempts", round.attempts());
  json.Field("sampled", round.sampled());
  json.Field("replaced", round.replaced());
  json.Field("reports", round.reports());
  json.Field("seconds", round.seconds());
  json.Field("opened", round.opened());
  json.Field("model_sha256", round.model_sha256());
  json.EndObject();
}

void WriteConstants(const RunSummary& run, JsonWriter& json) {
  const v1::ConstantsResult* constants = FindConstants(run);
  if (constants == nullptr) {
    json.NullField("constants");
    return;
  }
  json.Key("constants").BeginObject();
  json.Field("smoothness", constants->smoothness());
  json.Field("convexity", constants->convexity());
  json.Field("largest_client_smoothness", constants->largest_client_smoothness());
  json.Field("smallest_client_convexity", constants->smallest_client_convexity());
  json.Field("hessian_dissimilarity", constants->hessian_dissimilarity());
  json.Key("exact").Bool(constants->exact());
  json.EndObject();
}

void WriteFixedPoints(const RunSummary& run, uint64_t after_round, JsonWriter& json) {
  json.Key("fixed_points").BeginArray();
  for (const v1::RoundRecord& record : run.records) {
    if (!record.has_fixed_point() || record.round() <= after_round) continue;
    const v1::FixedPointResult& point = record.fixed_point();
    json.BeginObject();
    json.Field("h", point.h());
    json.Field("step_size", point.step_size());
    json.Field("loss_gap", point.loss_gap());
    json.Field("loss_standard_error", point.loss_standard_error());
    json.Field("distance", point.distance());
    json.Field("pseudo_gradient_norm", point.pseudo_gradient_norm());
    json.Field("rounds", point.rounds());
    json.Field("model_sha256", point.model_sha256());
    json.EndObject();
  }
  json.EndArray();
}

void WriteEvaluation(const v1::RoundRecord& round, JsonWriter& json) {
  json.BeginObject();
  json.Field("round", round.round());
  json.Field("phase", round.phase());
  json.Field("round_in_phase", round.round_in_phase());
  json.Field("loss", round.loss());
  json.Field("loss_standard_error", round.loss_standard_error());
  json.Field("test_loss", round.test_loss());
  json.Field("accuracy", round.accuracy());
  json.Field("test_examples", round.test_examples());
  json.Field("central_loss", round.central_loss());
  json.Field("central_accuracy", round.central_accuracy());
  json.Field("central_examples", round.central_examples());
  json.Key("percentiles").BeginArray();
  for (const v1::ClientPercentile& one : round.percentiles()) {
    json.BeginObject();
    json.Field("percent", one.percent());
    json.Field("accuracy", one.accuracy());
    json.Field("loss", one.loss());
    json.EndObject();
  }
  json.EndArray();
  json.Field("reports", round.reports());
  json.EndObject();
}

template <typename Write>
void WriteAll(absl::string_view key, const std::vector<v1::RoundRecord>& records,
              const Write& write, JsonWriter& json) {
  json.Key(key).BeginArray();
  for (const v1::RoundRecord& record : records) write(record, json);
  json.EndArray();
}

}  // namespace

void WriteRun(const RunSummary& run, uint64_t after_round, JsonWriter& json) {
  json.BeginObject();
  json.Field("status", StateName(run.state));
  if (!run.message.empty()) json.Field("message", run.message);
  if (run.begun) {
    json.Field("seed", run.config.seed());
  } else {
    json.NullField("seed");
  }
  WriteOptimum(run, json);
  WriteConstants(run, json);
  WriteFixedPoints(run, after_round, json);
  WriteAll("probes", RecordsOf(run, v1::PROBE_ROUND, after_round), WriteProbe, json);
  WriteAll("rounds", RecordsOf(run, v1::TRAIN_ROUND, after_round), WriteRound, json);
  WriteAll("evaluations", EvaluationsOf(run, after_round), WriteEvaluation, json);
  json.Field("events", uint64_t{run.events.size()});
  json.Field("troubles", run.Troubles());
  const std::string final_model = run.ModelPath("final");
  if (final_model.empty()) {
    json.NullField("final_model");
  } else {
    json.Field("final_model", final_model);
  }
  json.EndObject();
}

std::string RunJson(const RunSummary& run) {
  JsonWriter json;
  WriteRun(run, 0, json);
  return json.text() + "\n";
}

}  // namespace leeway
