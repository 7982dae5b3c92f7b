#include "client/builtin_worker.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/local_algorithm.h"
#include "common/model_file.h"
#include "common/rng.h"
#include "common/status.h"

namespace leeway {
namespace {

template <typename T>
Vector<T> FromBytes(const std::string& bytes) {
  Vector<T> values(static_cast<Eigen::Index>(bytes.size() / sizeof(T)));
  const size_t size = static_cast<size_t>(values.size()) * sizeof(T);
  if (size > 0) std::memcpy(values.data(), bytes.data(), size);
  return values;
}

template <typename T>
std::string ToBytes(const Vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          static_cast<size_t>(values.size()) * sizeof(T)};
}

bool IsNull(const AnyObjective& objective) {
  return std::visit([](const auto& pointer) { return pointer == nullptr; }, objective);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BuiltinWorker>> BuiltinWorker::Load(
    const BuiltinWorkerOptions& options) {
  std::unique_ptr<BuiltinWorker> worker(new BuiltinWorker(options));
  worker->data_.reserve(options.data.size() + options.evaluators.size());
  std::string range;
  for (const std::string& source : options.data) {
    if (absl::StrContains(source, absl::StrCat(kSyntheticFile, ":"))) {
      if (!range.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(source, ": ", range, " is given already; give one range"));
      }
      range = source;
      continue;
    }
    LEEWAY_ASSIGN_OR_RETURN(Dataset data, Dataset::Load(source));
    LEEWAY_RETURN_IF_ERROR(worker->Add(std::move(data)));
  }
  for (const std::string& directory : options.evaluators) {
    LEEWAY_ASSIGN_OR_RETURN(Dataset data, Dataset::LoadEvaluator(directory));
    LEEWAY_RETURN_IF_ERROR(worker->Add(std::move(data)));
  }
  if (!range.empty()) LEEWAY_RETURN_IF_ERROR(worker->AddMade(range));
  if (worker->clients() == 0) return absl::InvalidArgumentError("no data directory given");
  return worker;
}

absl::Status BuiltinWorker::Add(Dataset data) {
  if (!data_.empty() &&
      !google::protobuf::util::MessageDifferencer::Equals(data.Schema(), schema_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("data of client '", data.id, "' (", data.Schema().ShortDebugString(),
                     ") differs in shape from that of '", data_[0].id, "' (",
                     schema_.ShortDebugString(), "); prepare them alike"));
  }
  schema_ = data.Schema();
  data_.push_back(std::move(data));
  return absl::OkStatus();
}

absl::Status BuiltinWorker::AddMade(const std::string& range) {
  const size_t colon = range.rfind(':');
  LEEWAY_ASSIGN_OR_RETURN(const SyntheticProblem problem, ReadSynthetic(range.substr(0, colon)));
  const std::vector<std::string> ends = absl::StrSplit(range.substr(colon + 1), '-');
  uint32_t first = 0;
  uint32_t last = 0;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &first) || !absl::SimpleAtoi(ends[1], &last) ||
      first > last || last >= problem.clients) {
    return absl::InvalidArgumentError(absl::StrCat(
        range, ": the clients after the colon are not FIRST-LAST with numbers from 0 to ",
        problem.clients - 1));
  }
  SyntheticClients clients(problem);
  const v1::DataSchema schema = Dataset::Make(clients, first).Schema();
  if (!data_.empty() && !google::protobuf::util::MessageDifferencer::Equals(schema, schema_)) {
    return absl::InvalidArgumentError(
        absl::StrCat(range, ": its clients differ in shape from the other data"));
  }
  schema_ = schema;
  made_ = MadeClients{std::move(clients), first, last - first + 1};
  return absl::OkStatus();
}

std::string BuiltinWorker::ClientId(uint32_t client) const {
  if (client < data_.size()) return data_[client].id;
  return made_->clients.Name(made_->first + client - static_cast<uint32_t>(data_.size()));
}

v1::JoinRequest BuiltinWorker::Hosted() const {
  v1::JoinRequest request;
  *request.mutable_schema() = schema_;
  for (const Dataset& data : data_) *request.add_clients() = data.Hosted();
  for (auto client = static_cast<uint32_t>(data_.size()); client < clients(); ++client) {
    v1::HostedClient& hosted = *request.add_clients();
    hosted.set_id(ClientId(client));
    hosted.set_examples(made_->clients.problem().samples);
  }
  return request;
}

absl::Status BuiltinWorker::Prepare(const v1::Welcome& welcome) {
  model_ = welcome.model();
  LEEWAY_ASSIGN_OR_RETURN(layout_, LayoutOf(model_, schema_));
  seed_ = welcome.seed();
  objectives_.clear();
  objectives_.resize(data_.size() + (made_ && keep_bytes_ > 0 ? made_->count : 0));
  held_bytes_ = 0;
  for (size_t i = 0; i < data_.size(); ++i) {
    LEEWAY_ASSIGN_OR_RETURN(objectives_[i].objective, MakeObjective(model_, data_[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<AnyObjective*> BuiltinWorker::ObjectiveOf(uint32_t client, AnyObjective& made) {
  if (client < objectives_.size() && !IsNull(objectives_[client].objective)) {
    return &objectives_[client].objective;
  }
  const uint32_t number = made_->first + client - static_cast<uint32_t>(data_.size());
  LEEWAY_ASSIGN_OR_RETURN(made, MakeObjective(model_, Dataset::Make(made_->clients, number)));
  return &made;
}

void BuiltinWorker::Keep(uint32_t client, AnyObjective& made) {
  if (client < data_.size() || client >= objectives_.size()) return;
  Kept& kept = objectives_[client];
  AnyObjective& objective = IsNull(made) ? kept.objective : made;
  // What an objective takes beside its values: itself, sizes, names, what malloc adds.
  constexpr size_t kOverhead = 1024;
  const auto fits = [&] {
    const size_t bytes =
        kOverhead + std::visit([](auto& own) { return own->held_bytes(); }, objective);
    // What it had counted as before is free for it.
    const size_t more = bytes > kept.bytes ? bytes - kept.bytes : 0;
    if (held_bytes_.fetch_add(more) + more > keep_bytes_) {
      held_bytes_ -= more;
      return false;
    }
    kept.bytes += more;
    return true;
  };
  if (!fits()) {
    std::visit([](auto& own) { own->Release(); }, objective);
    if (!fits()) return;
  }
  if (!IsNull(made)) kept.objective = std::move(made);
}

absl::StatusOr<Parameters> BuiltinWorker::Decode(absl::string_view file) const {
  return DecodeModel(file, layout_.tensors, "model");
}

absl::Status BuiltinWorker::Compute(const v1::Order& order, const OrderModels& models, Take take) {
  std::visit([&](const auto& values) { ComputeAs(order, values, models, take); }, *models.model);
  // Before the report leaves: once it counts, the next order asks for these states.
  return states_.Flush();
}

std::vector<size_t> BuiltinWorker::LongestFirst(const v1::Order& order) const {
  std::vector<size_t> turns(static_cast<size_t>(order.clients_size()));
  std::iota(turns.begin(), turns.end(), size_t{0});
  if (data_.empty()) return turns;  // all made clients are alike
  std::vector<double> costs(turns.size());
  for (size_t place = 0; place < turns.size(); ++place) {
    const uint32_t client = order.clients(static_cast<int>(place));
    costs[place] = costs_.Cost(client, Examples(client));
  }
  std::stable_sort(turns.begin(), turns.end(),
                   [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  return turns;
}

void BuiltinWorker::Learn(const v1::Order& order, absl::Span<const double> seconds) {
  if (data_.empty() || threads_ < 2) return;  // their order does not matter
  std::vector<CostBook::Timed> timed(seconds.size());
  for (size_t place = 0; place < seconds.size(); ++place) {
    const uint32_t client = order.clients(static_cast<int>(place));
    timed[place] = {client, Examples(client), seconds[place]};
  }
  costs_.Add(timed);
}

uint64_t BuiltinWorker::Examples(uint32_t client) const {
  if (client >= data_.size()) return made_->clients.problem().samples;
  const Dataset& data = data_[client];
  return (data.evaluator ? 0 : data.train.examples()) + (data.test ? data.test->examples() : 0);
}

template <typename T>
void BuiltinWorker::ComputeAs(const v1::Order& order, const Vector<T>& model,
                              const OrderModels& models, Take take) {
  const LocalTask task(order.task(), static_cast<size_t>(model.size()), models.others);
  const std::vector<size_t> turns = LongestFirst(order);
  workers_->Run(turns.size(), [&](size_t turn) {
    const size_t place = turns[turn];
    take(place, ComputeOne(order, place, task, model));
  });
}

absl::StatusOr<StateStore::State> BuiltinWorker::LoadState(const v1::Order& order,
                                                           size_t place) const {
  if (order.state_rounds_size() != order.clients_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("order.state_rounds has ", order.state_rounds_size(), " rounds for ",
                     order.clients_size(), " clients; install the server's version of Leeway"));
  }
  StateStore::State state;
  state.round = order.state_rounds(static_cast<int>(place));
  if (state.round == 0) return state;
  const std::string client = ClientId(order.clients(static_cast<int>(place)));
  LEEWAY_ASSIGN_OR_RETURN(state.bytes, states_.Get(order.run_id(), client, state.round));
  return state;
}

template <typename T>
absl::StatusOr<AnyReport> BuiltinWorker::ComputeOne(const v1::Order& order, size_t place,
                                                    const LocalTask& task, const Vector<T>& model) {
  const uint32_t client = order.clients(static_cast<int>(place));
  if (IsEvaluator(client) && !task.only_tests()) {
    return absl::PermissionDeniedError("holds a central test set: it evaluates, nothing else");
  }
  AnyObjective made;
  LEEWAY_ASSIGN_OR_RETURN(AnyObjective * objective, ObjectiveOf(client, made));
  const std::string id = ClientId(client);
  const uint64_t round =
      order.task().batch_round() > 0 ? order.task().batch_round() : order.round();
  // Fine-tuning is the same in every round of an evaluation, so that counts are of one quantity.
  const Rng rng = task.fine_tunes ? Rng(seed_, 0, ClientKey(id), Purpose::kFineTuning)
                                  : Rng(seed_, round, ClientKey(id), Purpose::kBatchOrder);
  const bool keeps_state = KeepsState(order.task().rule());
  StateStore::State before;
  if (keeps_state) {
    LEEWAY_ASSIGN_OR_RETURN(before, LoadState(order, place));
  }
  Vector<T> state = FromBytes<T>(before.bytes);
  LEEWAY_ASSIGN_OR_RETURN(
      ClientReport<T> report,
      RunTask<T>(*std::get<std::unique_ptr<Objective<T>>>(*objective), task, model, rng, state));
  Keep(client, made);
  if (keeps_state) {
    LEEWAY_RETURN_IF_ERROR(
        states_.Put(order.run_id(), id, before, {order.round(), ToBytes<T>(state)}));
  }
  return AnyReport(std::move(report));
}

}  // namespace leeway
