// Reading and checking a run's configuration.
#ifndef LEEWAY_RECORDS_CONFIG_H_
#define LEEWAY_RECORDS_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model.h"
#include "proto/run.pb.h"

namespace leeway {

// Parses a text proto; `name` stands in messages. Errors carry line and column.
absl::StatusOr<v1::RunConfig> ParseConfig(absl::string_view text, absl::string_view name);
// Reads, parses, completes and checks a file.
absl::StatusOr<v1::RunConfig> LoadConfig(const std::string& path);

// The initial model of a config with model.file, which was read from `path`; of one with
// initial.file the file as it is, whose tensors are not compared with the model's yet. Else null.
absl::StatusOr<ModelPtr> LoadInitialModel(const std::string& path, const v1::RunConfig& config);

// The model of config.baseline, of whatever shape; null if there is none.
absl::StatusOr<ModelPtr> LoadBaseline(const std::string& path, const v1::RunConfig& config);

// Puts the documented defaults where a field was left out.
void CompleteConfig(v1::RunConfig& config);
// Checks a completed config. Errors name the field, its value and the remedy.
absl::Status CheckConfig(const v1::RunConfig& config);
// Checks what depends on the number of clients that take part.
absl::Status CheckClients(const v1::RunConfig& config, uint64_t clients);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_CONFIG_H_
