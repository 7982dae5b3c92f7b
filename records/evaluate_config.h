// Checks of what a config says of evaluations; a part of records/config.h.
#ifndef LEEWAY_RECORDS_EVALUATE_CONFIG_H_
#define LEEWAY_RECORDS_EVALUATE_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "common/model_layout.h"
#include "proto/run.pb.h"

namespace leeway {

// `optimum`: w* is found before it.
absl::Status CheckEvaluate(const std::string& field, const v1::Evaluate& evaluate, bool optimum);
// What goes with a model of that kind.
absl::Status CheckFineTune(const std::string& field, const v1::Evaluate& evaluate,
                           const v1::Model& model);
// Every tensor that an evaluation fine-tunes is one of the model's.
absl::Status CheckFineTuneTensors(const v1::RunConfig& config, const ModelLayout& layout);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_EVALUATE_CONFIG_H_
