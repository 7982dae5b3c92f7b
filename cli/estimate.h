// What a run will cost, as far as its config and data tell: rounds, bytes, and the
// time that clients compute. Pure functions.
#ifndef LEEWAY_CLI_ESTIMATE_H_
#define LEEWAY_CLI_ESTIMATE_H_

#include <cstdint>
#include <string>

#include "common/model_layout.h"
#include "proto/run.pb.h"

namespace leeway {

// Numbers of rounds that a phase may take: searches end when they have found what
// they look for, so for them only bounds are known.
struct RoundRange {
  uint64_t least = 0;
  uint64_t most = 0;

  RoundRange& operator+=(const RoundRange& other) {
    least += other.least;
    most += other.most;
    return *this;
  }
};

// `parameters` is the model's size; 0 if it is not known yet.
RoundRange RoundsOf(const v1::Phase& phase, uint64_t parameters);
// Of a config's phase; the last one's with the round for the loss of the final model.
RoundRange RoundsOf(const v1::RunConfig& config, int phase, uint64_t parameters);
RoundRange RoundsOf(const v1::RunConfig& config, uint64_t parameters);
// "1 round", "100 rounds", "4 to 16 rounds".
std::string RoundsText(const RoundRange& rounds);

// Bytes of one training round and one client: the model that it gets and the vectors
// that it reports. A process that hosts several clients gets one model for all of them,
// and reports their sum.
struct RoundBytes {
  uint64_t down = 0;
  uint64_t up = 0;
};
RoundBytes TrainingBytes(const v1::RunConfig& config, const v1::Train& train,
                         const ModelLayout& layout);

// How fast this machine computes a client's gradients, measured; 0: not measured.
struct GradientSpeed {
  double full_batch_seconds = 0;  // of all examples of one client, on average
  double example_seconds = 0;     // of one example in a batch
};

// What the time depends on beside the config.
struct Workload {
  uint64_t clients = 0;
  double examples = 0;      // the average client's number
  uint64_t parameters = 0;  // of the model
  GradientSpeed speed;
};

// Seconds that the clients compute in all rounds of a phase together, on one core, if
// searches take as many rounds as is usual.
double PhaseSeconds(const v1::RunConfig& config, const v1::Phase& phase, const Workload& work);
double RunSeconds(const v1::RunConfig& config, const Workload& work);

// "about 12 s", "about 3 min", "less than 1 s": one unit.
std::string SpanText(double seconds);
// "264 bytes", "1.2 MB".
std::string BytesText(uint64_t bytes);

}  // namespace leeway

#endif  // LEEWAY_CLI_ESTIMATE_H_
