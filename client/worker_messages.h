// The messages between leeway-client and a worker program, as lines: docs/worker.md.
// What comes from the worker is checked here, and only here.
#ifndef LEEWAY_CLIENT_WORKER_MESSAGES_H_
#define LEEWAY_CLIENT_WORKER_MESSAGES_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model_layout.h"
#include "proto/federation.pb.h"

namespace leeway {

inline constexpr uint32_t kWorkerProtocol = 1;

// One value that a worker is asked for.
struct AskedSum {
  std::string name;
  uint32_t steps = 0;
  v1::SumShape shape = v1::NUMBER;
  // The name, with "@steps" if there are any.
  std::string key() const;
};

// A model that a worker is given.
struct AskedModel {
  std::string file;
  std::string sha256;
};

// What one order to a worker says.
struct WorkerOrder {
  uint64_t number = 0;
  std::string run;
  uint64_t round = 0;
  uint32_t attempt = 0;
  std::string client;
  v1::LocalRule rule;
  uint32_t repeats = 0;
  std::array<uint32_t, 4> random{};
  AskedModel model;
  std::map<std::string, AskedModel> others;  // by name
  std::vector<AskedSum> sums;
  std::string answer_file;
};

std::string HelloMessage();
std::string PrepareMessage(const v1::Welcome& welcome, const ModelLayout& layout);
std::string OrderMessage(const WorkerOrder& order);
// `error` is empty if the run was finished.
std::string FinishedMessage(absl::string_view error);

// Clients and schema from the worker's hello. An error that it sent instead, and whatever
// is not a hello, is a Status.
absl::StatusOr<v1::JoinRequest> ParseWorkerHello(absl::string_view line);

enum class ReplyType { kReady, kAnswer, kError };

// What a worker answers to prepare and order.
struct WorkerReply {
  ReplyType type = ReplyType::kReady;
  std::optional<uint64_t> order;
  std::string error;
  std::map<std::string, double> numbers;
};
absl::StatusOr<WorkerReply> ParseWorkerReply(absl::string_view line);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_WORKER_MESSAGES_H_
