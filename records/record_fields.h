// The records of record.proto by the names of their fields. The JSON of `leeway show`,
// the CSV of rounds, the report and the dashboard iterate over these, so that a new
// field of RoundRecord or DriftAtSteps appears in all of them under its own name.
// Functions of values; no state.
#ifndef LEEWAY_RECORDS_RECORD_FIELDS_H_
#define LEEWAY_RECORDS_RECORD_FIELDS_H_

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/record.pb.h"

namespace leeway {

// All fields of a message, in the order of its proto file: enum values in lower case
// (null if unspecified), NaN as NaN (null, once it is text). Messages that are not there
// and lists without an element are left out.
nlohmann::ordered_json FieldsJson(const google::protobuf::Message& message);

// A training round as one row: the fields of its record, those of its own drift beside
// them (null if it was not measured), and its metrics as "metric/NAME". "round" counts
// within the phase; the number in the run is "round_in_run".
nlohmann::ordered_json RoundJson(const v1::RoundRecord& round);

// The rows as a table, with the keys of RoundJson as columns: what any of them has.
std::string RoundsCsv(const std::vector<v1::RoundRecord>& rounds);

// What the field of a record is called wherever people read it: "Jensen bound".
std::string TitleOf(absl::string_view field);

// A number that rounds measure: a field of type double of RoundRecord or DriftAtSteps
// that is neither a setting nor a time nor the end of an interval; or a metric of the clients.
struct Measure {
  const google::protobuf::FieldDescriptor* field = nullptr;  // null: a metric
  std::string name;                                          // "loss_standard_error"
  std::string title;                                         // "Loss standard error"
  std::string about;                                         // the field's comment in record.proto

  bool OfDrift() const;  // a field of DriftAtSteps
};

// Those of RoundRecord, then those of DriftAtSteps.
const std::vector<Measure>& Measures();

// The metrics that any of these rounds has, by name: "metric/NAME".
std::vector<Measure> MetricsOf(const std::vector<v1::RoundRecord>& rounds);

// NaN if the round did not measure it. Of a round's drift at several h the first.
double ValueOf(const Measure& measure, const v1::RoundRecord& round);
// `measure` must be one of DriftAtSteps.
double ValueOf(const Measure& measure, const v1::DriftAtSteps& drift);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_RECORD_FIELDS_H_
