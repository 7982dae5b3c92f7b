#include "records/record_fields.h"

#include <google/protobuf/descriptor.pb.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/embed.h"
#include "common/sums.h"
#include "records/csv.h"

// record.proto with its comments, which the generated classes do not keep.
LEEWAY_EMBED(leeway_record_description, LEEWAY_RECORD_DESCRIPTION)

namespace leeway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using nlohmann::ordered_json;

ordered_json EnumJson(const google::protobuf::EnumValueDescriptor& value) {
  if (absl::EndsWith(value.name(), "_UNSPECIFIED")) return nullptr;
  return absl::AsciiStrToLower(value.name());
}

ordered_json SingularJson(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& get = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return get.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumJson(*get.GetEnum(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return get.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FieldsJson(get.GetMessage(message, &field));
  }
  return nullptr;
}

ordered_json ElementJson(const Message& message, const FieldDescriptor& field, int i) {
  const google::protobuf::Reflection& get = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get.GetRepeatedInt32(message, &field, i);
    case FieldDescriptor::CPPTYPE_INT64:
      return get.GetRepeatedInt64(message, &field, i);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get.GetRepeatedUInt32(message, &field, i);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get.GetRepeatedUInt64(message, &field, i);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get.GetRepeatedDouble(message, &field, i);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get.GetRepeatedFloat(message, &field, i);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get.GetRepeatedBool(message, &field, i);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumJson(*get.GetRepeatedEnum(message, &field, i));
    case FieldDescriptor::CPPTYPE_STRING:
      return get.GetRepeatedString(message, &field, i);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FieldsJson(get.GetRepeatedMessage(message, &field, i));
  }
  return nullptr;
}

std::string Cell(const ordered_json& value) {
  if (value.is_number_float()) return CsvNumber(value.get<double>());
  if (value.is_string()) return CsvField(value.get<std::string>());
  return value.is_null() ? "" : value.dump();
}

// Doubles that say what a round was asked to do, or when; and the ends of an interval, which are
// drawn with the figure that it is of.
bool IsNoMeasure(const FieldDescriptor& field) {
  static const auto* const kNames =
      new std::set<std::string>{"step_size", "server_rate", "norm_limit",   "opened",
                                "seconds",   "idle_share",  "interval_low", "interval_high"};
  return kNames->count(field.name()) > 0;
}

// Comments of fields, by "Message.field".
std::map<std::string, std::string> FieldComments() {
  google::protobuf::FileDescriptorSet files;
  files.ParseFromArray(leeway_record_description,
                       static_cast<int>(leeway_record_description_end - leeway_record_description));
  std::map<std::string, std::string> comments;
  for (const google::protobuf::FileDescriptorProto& file : files.file()) {
    for (const auto& place : file.source_code_info().location()) {
      // {4, i, 2, j} is field j of message i (descriptor.proto, SourceCodeInfo).
      if (place.path_size() != 4 || place.path(0) != 4 || place.path(2) != 2) continue;
      const google::protobuf::DescriptorProto& message = file.message_type(place.path(1));
      comments[absl::StrCat(message.name(), ".", message.field(place.path(3)).name())] =
          absl::StrJoin(
              absl::StrSplit(place.leading_comments(), absl::ByAnyChar(" \n"), absl::SkipEmpty()),
              " ");
    }
  }
  return comments;
}

void AddMeasures(const Descriptor& message, const std::map<std::string, std::string>& comments,
                 std::vector<Measure>& measures) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE || field.is_repeated() ||
        IsNoMeasure(field)) {
      continue;
    }
    Measure measure;
    measure.field = &field;
    measure.name = field.name();
    measure.title = TitleOf(field.name());
    const auto comment = comments.find(absl::StrCat(message.name(), ".", field.name()));
    if (comment != comments.end()) measure.about = comment->second;
    measures.push_back(std::move(measure));
  }
}

}  // namespace

ordered_json FieldsJson(const Message& message) {
  const google::protobuf::Reflection& get = *message.GetReflection();
  const Descriptor& type = *message.GetDescriptor();
  ordered_json json = ordered_json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) {
      const int size = get.FieldSize(message, &field);
      if (size == 0) continue;
      ordered_json list = ordered_json::array();
      for (int k = 0; k < size; ++k) list.push_back(ElementJson(message, field, k));
      json[field.name()] = std::move(list);
    } else if (!field.has_presence() || get.HasField(message, &field)) {
      json[field.name()] = SingularJson(message, field);
    }
  }
  return json;
}

ordered_json RoundJson(const v1::RoundRecord& round) {
  ordered_json row = FieldsJson(round);
  row["round"] = round.round_in_phase();
  row["round_in_run"] = round.round();
  row.erase("drift");
  const bool measured = round.drift_size() > 0;
  const ordered_json drift =
      FieldsJson(measured ? round.drift(0) : v1::DriftAtSteps::default_instance());
  for (const auto& [name, value] : drift.items()) {
    // Its number of steps is the round's; what both have is the round's.
    if (name == "h" || row.contains(name)) continue;
    row[name] = measured ? value : ordered_json(nullptr);
  }
  row.erase("metrics");
  for (const v1::MetricMean& metric : round.metrics())
    row[kMetric + metric.name()] = metric.value();
  return row;
}

std::string RoundsCsv(const std::vector<v1::RoundRecord>& rounds) {
  ordered_json columns = ordered_json::object();  // in the order in which they appear
  std::vector<ordered_json> rows;
  for (const v1::RoundRecord& round : rounds) {
    rows.push_back(RoundJson(round));
    for (const auto& [name, value] : rows.back().items()) {
      if (!value.is_structured()) columns[name] = nullptr;
    }
  }
  if (rows.empty()) return "";
  std::vector<std::string> names;
  for (const auto& [name, _] : columns.items()) names.push_back(name);
  std::string csv = absl::StrJoin(names, ",") + "\n";
  for (const ordered_json& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& name : names) cells.push_back(Cell(row.value(name, ordered_json())));
    absl::StrAppend(&csv, absl::StrJoin(cells, ","), "\n");
  }
  return csv;
}

std::string TitleOf(absl::string_view field) {
  static const auto* const kTitles = new std::map<absl::string_view, std::string>{
      {"loss", "Training loss"},
      {"unbiased_drift_squared", "ρ²"},
      {"average_drift_squared", "ρ² with the bias of sampling"},
      {"drift_bound", "Jensen bound"},
      {"classic_bound", "Classic bound η²L²H²ζ²"},
      {"dissimilarity", "Dissimilarity ζ²"},
      {"distance_squared", "‖w − w*‖²"},
      {"majority_accuracy", "Accuracy of the most frequent class"},
      {"auc", "AUC"},
      {"central_auc", "Central AUC"},
  };
  const auto found = kTitles->find(field);
  if (found != kTitles->end()) return found->second;
  std::string title = absl::StrReplaceAll(field, {{"_", " "}});
  if (!title.empty()) title[0] = absl::ascii_toupper(static_cast<unsigned char>(title[0]));
  return title;
}

bool Measure::OfDrift() const {
  return field != nullptr && field->containing_type() == v1::DriftAtSteps::descriptor();
}

std::vector<Measure> MetricsOf(const std::vector<v1::RoundRecord>& rounds) {
  std::set<std::string> names;
  for (const v1::RoundRecord& round : rounds) {
    for (const v1::MetricMean& metric : round.metrics()) names.insert(metric.name());
  }
  std::vector<Measure> measures;
  for (const std::string& name : names) {
    measures.push_back({.name = kMetric + name,
                        .title = "Metric " + name,
                        .about = "Weighted mean of what the clients reported as " + name + "."});
  }
  return measures;
}

const std::vector<Measure>& Measures() {
  static const std::vector<Measure>* const kMeasures = [] {
    const std::map<std::string, std::string> comments = FieldComments();
    auto* measures = new std::vector<Measure>();
    AddMeasures(*v1::RoundRecord::descriptor(), comments, *measures);
    AddMeasures(*v1::DriftAtSteps::descriptor(), comments, *measures);
    return measures;
  }();
  return *kMeasures;
}

double ValueOf(const Measure& measure, const v1::RoundRecord& round) {
  if (measure.field == nullptr) {
    for (const v1::MetricMean& metric : round.metrics()) {
      if (measure.name == kMetric + metric.name()) return metric.value();
    }
    return std::nan("");
  }
  if (!measure.OfDrift()) return round.GetReflection()->GetDouble(round, measure.field);
  return round.drift_size() > 0 ? ValueOf(measure, round.drift(0)) : std::nan("");
}

double ValueOf(const Measure& measure, const v1::DriftAtSteps& drift) {
  return drift.GetReflection()->GetDouble(drift, measure.field);
}

}  // namespace leeway
