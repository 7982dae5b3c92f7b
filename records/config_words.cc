#include "records/config_words.h"

#include <google/protobuf/descriptor.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/nearest_word.h"
#include "proto/run.pb.h"

namespace leeway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

// What stands between the first, second, ... pair of quotation marks.
std::vector<std::string> Quoted(const std::string& message) {
  const std::vector<std::string> parts = absl::StrSplit(message, '"');
  std::vector<std::string> quoted;
  for (size_t i = 1; i + 1 < parts.size(); i += 2) quoted.push_back(parts[i]);
  return quoted;
}

std::string Suggestion(const std::string& word, const std::vector<std::string>& known) {
  std::string nearest = NearestWord(word, known);
  for (const std::string& name : known) {  // half a word is no typing error
    if (nearest.empty() && absl::StartsWith(name, word)) nearest = name;
  }
  return nearest.empty() ? "" : absl::StrCat(" (did you mean ", nearest, "?)");
}

std::string UnknownField(const std::string& type, const std::string& word) {
  const Descriptor* message =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  if (message == nullptr) return "";
  std::vector<std::string> known;
  for (int i = 0; i < message->field_count(); ++i) known.push_back(message->field(i)->name());
  return absl::StrCat("there is no field \"", word, "\" in ", message->name(),
                      Suggestion(word, known), known.empty() ? "; it has no fields" : "; it has ",
                      absl::StrJoin(known, ", "));
}

// The enum of the first field with this name in the messages of the config. Fields of
// one name have one type there.
const EnumDescriptor* EnumOf(const std::string& field_name) {
  const google::protobuf::FileDescriptor* file = v1::RunConfig::descriptor()->file();
  for (int i = 0; i < file->message_type_count(); ++i) {
    const FieldDescriptor* field = file->message_type(i)->FindFieldByName(field_name);
    if (field != nullptr && field->enum_type() != nullptr) return field->enum_type();
  }
  return nullptr;
}

std::string UnknownValue(const std::string& word, const std::string& field) {
  const EnumDescriptor* values = EnumOf(field);
  if (values == nullptr) return "";
  std::vector<std::string> known;
  for (int i = 0; i < values->value_count(); ++i) {
    if (!absl::EndsWith(values->value(i)->name(), "_UNSPECIFIED")) {
      known.push_back(values->value(i)->name());
    }
  }
  return absl::StrCat("there is no ", field, " \"", word, "\"", Suggestion(word, known),
                      "; use one of ", absl::StrJoin(known, ", "));
}

}  // namespace

std::string ExplainParseError(const std::string& message) {
  const std::vector<std::string> quoted = Quoted(message);
  std::string text;
  if (quoted.size() == 2 && absl::StrContains(message, "has no field named")) {
    text = UnknownField(quoted[0], quoted[1]);
  } else if (quoted.size() == 2 && absl::StartsWith(message, "Unknown enumeration value")) {
    text = UnknownValue(quoted[0], quoted[1]);
  } else if (message == "Expected double, got: auto") {
    // What people write who think of a step size as a number or a word.
    text = message + "; to have the step size chosen, write `auto_step_size: true`";
  }
  return text.empty() ? message : text;
}

}  // namespace leeway
