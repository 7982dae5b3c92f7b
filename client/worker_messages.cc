#include "client/worker_messages.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/version.h"

namespace leeway {
namespace {

// Keys in the order in which they are written here.
using Json = nlohmann::ordered_json;

constexpr size_t kShown = 80;  // of what a worker wrote, in messages

std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status Nonsense(absl::string_view what, absl::string_view line) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the worker sent ", what, ": ", line.substr(0, kShown), line.size() > kShown ? " ..." : ""));
}

// Not a StatusOr: Json converts to nearly everything, a Status included.
absl::Status ParseObject(absl::string_view line, Json& json) {
  json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return Nonsense("a line that is not a JSON object (docs/worker.md)", line);
  }
  return absl::OkStatus();
}

std::string Text(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A natural number; nothing if it is something else.
std::optional<uint64_t> Natural(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

const char* ShapeName(v1::SumShape shape) {
  if (shape == v1::NUMBER) return "number";
  return shape == v1::VECTOR ? "vector" : "matrix";
}

absl::Status ParseClients(const Json& json, absl::string_view line, v1::JoinRequest& hosted) {
  const auto clients = json.find("clients");
  if (clients == json.end() || !clients->is_array() || clients->empty()) {
    return Nonsense("a hello without clients", line);
  }
  for (const Json& entry : *clients) {
    v1::HostedClient& client = *hosted.add_clients();
    if (!entry.is_object() || Text(entry, "name").empty() || !Natural(entry, "examples")) {
      return Nonsense("a hello with a client that has no name or no number of examples", line);
    }
    client.set_id(Text(entry, "name"));
    client.set_examples(*Natural(entry, "examples"));
    client.set_test_examples(Natural(entry, "test_examples").value_or(0));
    client.set_evaluator(client.examples() == 0 && client.test_examples() > 0);
    if (client.examples() == 0 && client.test_examples() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the worker's client '", client.id(), "' has no examples; leave it out"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string AskedSum::key() const { return steps == 0 ? name : absl::StrCat(name, "@", steps); }

std::string HelloMessage() {
  return Line({{"type", "hello"},
               {"oldest", kWorkerProtocol},
               {"newest", kWorkerProtocol},
               {"program", absl::StrCat("leeway-client ", kVersion)}});
}

std::string PrepareMessage(const v1::Welcome& welcome, const ModelLayout& layout) {
  v1::Model model = welcome.model();
  model.clear_contents();  // dtype and tensors say the same
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(model, &text, options).ok()) text = "{}";
  Json tensors = Json::array();
  for (const TensorSpec& tensor : layout.tensors) {
    tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  }
  return Line({{"type", "prepare"},
               {"seed", absl::StrCat(welcome.seed())},
               {"model", Json::parse(text, nullptr, /*allow_exceptions=*/false)},
               {"dtype", layout.float64 ? "F64" : "F32"},
               {"tensors", std::move(tensors)}});
}

std::string OrderMessage(const WorkerOrder& order) {
  Json sums = Json::array();
  for (const AskedSum& sum : order.sums) {
    sums.push_back({{"key", sum.key()},
                    {"name", sum.name},
                    {"steps", sum.steps},
                    {"shape", ShapeName(sum.shape)}});
  }
  Json message = {{"type", "order"},
                  {"order", order.number},
                  {"run", order.run},
                  {"round", order.round},
                  {"attempt", order.attempt},
                  {"client", order.client},
                  {"rule",
                   {{"step_size", order.rule.step_size()},
                    {"steps", order.rule.steps()},
                    {"epochs", order.rule.epochs()},
                    {"batch_size", order.rule.batch_size()}}},
                  {"repeats", order.repeats},
                  {"random", order.random},
                  {"model", {{"file", order.model.file}, {"sha256", order.model.sha256}}},
                  {"sums", std::move(sums)},
                  {"answer_file", order.answer_file}};
  for (const auto& [name, other] : order.others) {
    message["others"][name] = {{"file", other.file}, {"sha256", other.sha256}};
  }
  return Line(message);
}

std::string FinishedMessage(absl::string_view error) {
  Json json = {{"type", "finished"}};
  if (!error.empty()) json["error"] = std::string(error);
  return Line(json);
}

absl::StatusOr<v1::JoinRequest> ParseWorkerHello(absl::string_view line) {
  Json json;
  LEEWAY_RETURN_IF_ERROR(ParseObject(line, json));
  if (Text(json, "type") == "error") {
    return absl::InvalidArgumentError(absl::StrCat("the worker says: ", Text(json, "error")));
  }
  if (Text(json, "type") != "hello") return Nonsense("another message than a hello", line);
  if (Natural(json, "version") != kWorkerProtocol) {
    return Nonsense(absl::StrCat("a hello whose version is not ", kWorkerProtocol,
                                 "; install a worker of this version"),
                    line);
  }
  v1::JoinRequest hosted;
  LEEWAY_RETURN_IF_ERROR(ParseClients(json, line, hosted));
  if (const auto features = json.find("features"); features != json.end()) {
    const auto natural = [](const Json& side) { return side.is_number_unsigned(); };
    if (!features->is_array() || !std::all_of(features->begin(), features->end(), natural)) {
      return Nonsense("a hello whose features are not a list of numbers", line);
    }
    for (const Json& side : *features) {
      hosted.mutable_schema()->add_feature_shape(side.get<uint64_t>());
    }
  }
  const auto labels = json.find("labels");
  hosted.mutable_schema()->set_labels(labels != json.end() && *labels == Json(true));
  return hosted;
}

absl::StatusOr<WorkerReply> ParseWorkerReply(absl::string_view line) {
  Json json;
  LEEWAY_RETURN_IF_ERROR(ParseObject(line, json));
  const std::string type = Text(json, "type");
  WorkerReply reply;
  reply.order = Natural(json, "order");
  if (type == "ready") return reply;
  if (type == "error") {
    reply.type = ReplyType::kError;
    reply.error = Text(json, "error");
    return reply;
  }
  if (type != "answer" || !reply.order) {
    return Nonsense("neither an answer with the order's number nor an error", line);
  }
  reply.type = ReplyType::kAnswer;
  const auto numbers = json.find("numbers");
  if (numbers == json.end()) return reply;
  if (!numbers->is_object()) return Nonsense("an answer whose numbers are no object", line);
  for (const auto& [key, value] : numbers->items()) {
    if (value.is_number()) reply.numbers[key] = value.get<double>();
  }
  return reply;
}

}  // namespace leeway
