// Runs made up for the tests of what reads them.
#ifndef LEEWAY_TESTS_RECORDS_RUN_FIXTURE_H_
#define LEEWAY_TESTS_RECORDS_RUN_FIXTURE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/show.h"

namespace leeway {

constexpr double kStepSize = 0.01;
constexpr double kStandardError = 0.02;

inline v1::RoundRecord& AddRecord(RunSummary& run, v1::RoundKind kind, uint32_t phase) {
  v1::RoundRecord record;
  record.set_round(run.records.size() + 1);
  record.set_kind(kind);
  record.set_phase(phase);
  record.set_round_in_phase(1);
  record.set_reports(static_cast<uint32_t>(run.clients));
  record.set_sampled(static_cast<uint32_t>(run.clients));
  record.set_loss(0.5);
  record.set_loss_standard_error(kStandardError);
  record.set_step_size(kStepSize);
  record.set_distance_squared(std::nan(""));
  run.records.push_back(std::move(record));
  return run.records.back();
}

// L = 20 and mu = 0.5 of all clients: step sizes up to 0.05 and H up to 200 are fine.
inline void AddConstants(RunSummary& run, double convexity = 0.5) {
  v1::ConstantsResult& constants = *AddRecord(run, v1::CONSTANTS_ROUND, 0).mutable_constants();
  constants.set_smoothness(20);
  constants.set_convexity(convexity);
  constants.set_largest_client_smoothness(20);
  constants.set_smallest_client_convexity(convexity);
  constants.set_hessian_dissimilarity(std::nan(""));
  constants.set_exact(true);
}

// A probe at w* with rho^2 = 1e-6 and bound 1e-3 at each h but 1, where it is
// rounding.
inline v1::RoundRecord& AddProbe(RunSummary& run, const std::vector<uint32_t>& steps) {
  v1::RoundRecord& probe = AddRecord(run, v1::PROBE_ROUND, 2);
  probe.set_point(v1::Probe::OPTIMUM);
  probe.set_dissimilarity(2);
  for (const uint32_t h : steps) {
    v1::DriftAtSteps& drift = *probe.add_drift();
    drift.set_h(h);
    drift.set_drift_bound(h == 1 ? 1e-30 : 1e-3);
    for (const auto set :
         {&v1::DriftAtSteps::set_average_drift_squared,
          &v1::DriftAtSteps::set_unbiased_drift_squared, &v1::DriftAtSteps::set_interval_low,
          &v1::DriftAtSteps::set_interval_high}) {
      (drift.*set)(h == 1 ? 1e-32 : 1e-6);
    }
    drift.set_classic_bound(1e-3 * h);
    drift.set_iterate_bias_squared(std::nan(""));
    drift.set_pseudo_gradient_variance(std::nan(""));
  }
  return probe;
}

// The model explains 0.5, 25 standard errors: 0.25 of these are 1 %, and 0.75 are 3 %.
inline void AddYardstick(RunSummary& run) {
  v1::Yardstick& yardstick = *AddRecord(run, v1::FIXED_POINT_ROUND, 3).mutable_yardstick();
  yardstick.set_constant_loss(1);
  yardstick.set_sampling_error(0.1 * kStandardError);
  yardstick.set_sampling_error_high(0.3 * kStandardError);
  yardstick.set_exact(true);
}

inline v1::FixedPointResult& AddFixedPoint(RunSummary& run, uint32_t h, double gap_in_errors) {
  if (std::none_of(run.records.begin(), run.records.end(),
                   [](const v1::RoundRecord& record) { return record.has_yardstick(); })) {
    AddYardstick(run);
  }
  v1::RoundRecord& record = AddRecord(run, v1::FIXED_POINT_ROUND, 3);
  record.set_loss(0.5 + gap_in_errors * kStandardError);
  v1::FixedPointResult& point = *record.mutable_fixed_point();
  point.set_h(h);
  point.set_step_size(kStepSize);
  point.set_loss_gap(gap_in_errors * kStandardError);
  point.set_loss_standard_error(kStandardError);
  point.set_distance(1e-3);
  point.set_pseudo_gradient_norm(1e-11);
  point.set_rounds(7);
  return point;
}

inline void AddTraining(RunSummary& run, uint32_t phase, uint32_t h, uint64_t rounds,
                        double server_rate = 0.1) {
  for (uint64_t i = 1; i <= rounds; ++i) {
    v1::RoundRecord& record = AddRecord(run, v1::TRAIN_ROUND, phase);
    record.set_round_in_phase(i);
    record.set_local_steps(h);
    record.set_server_rate(server_rate);
    record.set_loss(0.5 + std::pow(0.8, static_cast<double>(i)));
    record.set_distance_squared(9 * std::pow(0.7, static_cast<double>(i)));
    v1::DriftAtSteps& drift = *record.add_drift();
    drift.set_h(h);
    drift.set_average_drift_squared(2e-6);
    drift.set_unbiased_drift_squared(2e-6);
    drift.set_drift_bound(1e-3 * std::pow(0.9, static_cast<double>(i)));
  }
}

// A finished run with an optimum and nothing else yet. Where the search for it
// started, the root mean square of the clients' gradients is 5.
inline RunSummary OptimumRun(uint64_t clients = 100) {
  RunSummary run;
  run.directory = "runs/made_up";
  run.begun = true;
  run.state = v1::DONE;
  run.clients = clients;
  run.config.add_phases()->mutable_constants();
  run.config.add_phases()->mutable_optimum();
  run.config.add_phases()->mutable_probe();
  run.config.add_phases()->mutable_fixed_point()->set_tolerance(1e-9);
  run.names = {{"optimum", "00ff"}};
  v1::RoundRecord& start = AddRecord(run, v1::OPTIMUM_ROUND, 1);
  start.set_loss(7);
  start.set_gradient_norm(3);
  start.set_dissimilarity(16);
  v1::RoundRecord& optimum = AddRecord(run, v1::OPTIMUM_ROUND, 1);
  optimum.set_round_in_phase(2);
  optimum.set_gradient_norm(1e-11);
  return run;
}

}  // namespace leeway

#endif  // LEEWAY_TESTS_RECORDS_RUN_FIXTURE_H_
