#include "client/host.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/local_update.h"
#include "common/digest.h"
#include "common/encoding.h"
#include "common/layout.h"
#include "common/model_file.h"
#include "common/mutex.h"
#include "common/rng.h"
#include "common/status.h"
#include "common/wire.h"

namespace leeway {
namespace {

// A slice over a vector's memory that owns the vector. gRPC may let go of it on another
// thread.
template <typename T>
grpc::Slice OwningSlice(std::vector<T> values) {
  auto* owner = new std::vector<T>(std::move(values));
  HandOver(owner);
  return grpc::Slice(
      owner->data(), owner->size() * sizeof(T),
      [](void* p) {
        TakeOver(p);
        delete static_cast<std::vector<T>*>(p);
      },
      owner);
}

// Nothing of the training part is in the answer.
bool OnlyEvaluates(const v1::Task& task) {
  const ReportLayout layout(task);
  return layout.vectors == 0 && layout.loss < 0 && !task.hessian();
}

// Brings a displacement that is too long down to the limit, or says so.
template <typename T>
absl::Status LimitNorm(const v1::Task& task, absl::Span<T> displacement) {
  double squared = 0;
  for (const T x : displacement) squared += static_cast<double>(x) * static_cast<double>(x);
  const double norm = std::sqrt(squared);
  if (!(norm > task.max_norm())) return absl::OkStatus();
  if (!task.clip()) {
    return absl::OutOfRangeError(absl::StrCat(
        "the norm of the displacement is ", norm, ", beyond limits.max_norm ", task.max_norm(),
        "; lower the step size, raise the limit, or set limits.norm_policy to CLIP"));
  }
  const double scale = task.max_norm() / norm;
  for (T& x : displacement) x = static_cast<T>(static_cast<double>(x) * scale);
  return absl::OkStatus();
}

// Writes the vectors in a short encoding; the report then holds what the server
// will read, and how far that is from the displacement.
template <typename T>
std::vector<char> Shorten(const v1::Task& task, size_t dimension, Rng rng,
                          ClientReport<T>& report) {
  const ReportLayout layout(task);
  const std::vector<T> exact = report.vectors;
  const v1::Encoding encoding = EncodingFor(task.encoding(), std::is_same_v<T, double>);
  const std::string bytes = EncodeShort(encoding, absl::MakeSpan(report.vectors), rng);
  const auto squared_error = [&](int vector) {
    double squared = 0;
    for (size_t i = static_cast<size_t>(vector) * dimension, n = i + dimension; i < n; ++i) {
      const double error = static_cast<double>(report.vectors[i]) - static_cast<double>(exact[i]);
      squared += error * error;
    }
    return squared;
  };
  if (layout.encoding_error >= 0) {
    report.scalars[static_cast<size_t>(layout.encoding_error)] = squared_error(layout.displacement);
  }
  for (int k = 0; layout.first_encoding_variance >= 0 && k < task.drift_steps_size(); ++k) {
    const double step_size = task.rule().step_size();
    report.scalars[static_cast<size_t>(layout.first_encoding_variance + k)] =
        static_cast<double>(report.weight) * squared_error(layout.first_drift + k) /
        (step_size * step_size);
  }
  return {bytes.begin(), bytes.end()};
}

}  // namespace

absl::StatusOr<Host> Host::Load(const HostOptions& options) {
  Host host;
  host.workers_ = std::make_unique<Workers>(options.threads);
  host.data_.reserve(options.data.size() + options.evaluators.size());
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
    LEEWAY_RETURN_IF_ERROR(host.Add(std::move(data)));
  }
  for (const std::string& directory : options.evaluators) {
    LEEWAY_ASSIGN_OR_RETURN(Dataset data, Dataset::LoadEvaluator(directory));
    LEEWAY_RETURN_IF_ERROR(host.Add(std::move(data)));
  }
  if (!range.empty()) LEEWAY_RETURN_IF_ERROR(host.AddMade(range, options.keep_bytes));
  if (host.clients() == 0) return absl::InvalidArgumentError("no data directory given");
  return host;
}

absl::Status Host::Add(Dataset data) {
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

absl::Status Host::AddMade(const std::string& range, size_t keep_bytes) {
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
  // Inputs, targets and what an objective makes of them, at most a matrix.
  const uint64_t d = problem.dimension;
  const uint64_t bytes = (problem.samples * (d + 2) + d * d) * sizeof(double) + 1024;
  const uint32_t count = last - first + 1;
  const auto kept = static_cast<uint32_t>(std::min<uint64_t>(count, keep_bytes / bytes));
  made_ = MadeClients{std::move(clients), first, count, kept};
  return absl::OkStatus();
}

std::string Host::ClientId(uint32_t client) const {
  if (client < data_.size()) return data_[client].id;
  return made_->clients.Name(made_->first + client - static_cast<uint32_t>(data_.size()));
}

v1::JoinRequest Host::JoinRequest() const {
  v1::JoinRequest request;
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_schema() = schema_;
  for (const Dataset& data : data_) *request.add_clients() = data.Hosted();
  for (auto client = static_cast<uint32_t>(data_.size()); client < clients(); ++client) {
    v1::HostedClient& hosted = *request.add_clients();
    hosted.set_id(ClientId(client));
    hosted.set_examples(made_->clients.problem().samples);
  }
  return request;
}

absl::Status Host::Prepare(const v1::Welcome& welcome) {
  model_ = welcome.model();
  LEEWAY_ASSIGN_OR_RETURN(layout_, LayoutOf(model_, schema_));
  seed_ = welcome.seed();
  objectives_.clear();
  objectives_.resize(data_.size() + (made_ ? made_->kept : 0));
  for (size_t i = 0; i < data_.size(); ++i) {
    LEEWAY_ASSIGN_OR_RETURN(objectives_[i], MakeObjective(model_, data_[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<AnyObjective*> Host::ObjectiveOf(uint32_t client, AnyObjective& made) {
  AnyObjective& objective = client < objectives_.size() ? objectives_[client] : made;
  if (std::visit([](const auto& pointer) { return pointer == nullptr; }, objective)) {
    const uint32_t number = made_->first + client - static_cast<uint32_t>(data_.size());
    LEEWAY_ASSIGN_OR_RETURN(objective,
                            MakeObjective(model_, Dataset::Make(made_->clients, number)));
  }
  return &objective;
}

absl::StatusOr<Parameters> Host::Decode(absl::string_view file) const {
  return DecodeModel(file, layout_.tensors, "model");
}

absl::StatusOr<Outgoing> Host::Work(const v1::Order& order, const Parameters& model) {
  for (const uint32_t client : order.clients()) {
    if (client >= clients()) {
      return absl::InternalError(
          absl::StrCat("order names hosted client ", client, " of ", clients()));
    }
  }
  if (const auto* values = std::get_if<Vector<double>>(&model)) return WorkAs(order, *values);
  return WorkAs(order, std::get<Vector<float>>(model));
}

std::vector<size_t> Host::LongestFirst(const v1::Order& order) const {
  std::vector<size_t> turns(static_cast<size_t>(order.clients_size()));
  std::iota(turns.begin(), turns.end(), size_t{0});
  if (data_.empty()) return turns;  // all made clients are alike
  std::stable_sort(turns.begin(), turns.end(), [&](size_t a, size_t b) {
    return Examples(order.clients(static_cast<int>(a))) >
           Examples(order.clients(static_cast<int>(b)));
  });
  return turns;
}

uint64_t Host::Examples(uint32_t client) const {
  if (client >= data_.size()) return made_->clients.problem().samples;
  const Dataset& data = data_[client];
  return (data.evaluator ? 0 : data.train.examples()) + (data.test ? data.test->examples() : 0);
}

template <typename T>
absl::StatusOr<Outgoing> Host::WorkAs(const v1::Order& order, const Vector<T>& model) {
  const v1::Task& task = order.task();
  const auto n = static_cast<size_t>(order.clients_size());
  const TallyShape shape = ReportLayout(task).Shape(task, static_cast<size_t>(model.size()));
  const bool alone = n == 1;

  std::mutex mu;
  Tally total = alone ? Tally() : Tally(shape);
  ClientReport<T> single;
  std::vector<char> encoded;  // of the single one, with a short encoding
  std::vector<absl::Status> outcomes(n);
  const std::vector<size_t> turns = LongestFirst(order);
  workers_->Run(n, [&](size_t turn) {
    const size_t i = turns[turn];
    const uint32_t client = order.clients(static_cast<int>(i));
    const size_t group = order.groups().empty() ? 0 : order.groups(static_cast<int>(i));
    const uint64_t key = ClientKey(ClientId(client));
    const auto compute = [&]() -> absl::StatusOr<ClientReport<T>> {
      if (IsEvaluator(client) && !OnlyEvaluates(task)) {
        return absl::PermissionDeniedError("holds a central test set: it evaluates, nothing else");
      }
      AnyObjective made;
      LEEWAY_ASSIGN_OR_RETURN(AnyObjective * objective, ObjectiveOf(client, made));
      return RunTask<T>(*std::get<std::unique_ptr<Objective<T>>>(*objective), task, model,
                        Rng(seed_, order.round(), key, Purpose::kBatchOrder));
    };
    absl::StatusOr<ClientReport<T>> report = compute();
    if (report.ok() && task.displacement() && task.max_norm() > 0) {
      const absl::Span<T> vectors = absl::MakeSpan(report->vectors);
      const absl::Status limited =
          LimitNorm(task, vectors.subspan(0, static_cast<size_t>(model.size())));
      if (!limited.ok()) report = limited;
    }
    if (report.ok() && task.encoding() != v1::EXACT) {
      const Rng rounding(seed_, order.round(), key, Purpose::kRounding);
      std::vector<char> bytes = Shorten(task, static_cast<size_t>(model.size()), rounding, *report);
      if (alone) encoded = std::move(bytes);
    }
    if (!report.ok()) {
      outcomes[i] = report.status();
    } else if (alone) {
      single = *std::move(report);
    } else {
      const std::lock_guard lock(mu);  // integer sums: the order of arrival leaves no trace
      outcomes[i] = total.Add<T>(group, report->weight, report->scalars, report->vectors);
    }
  });

  Outgoing out;
  out.header.set_run_id(order.run_id());
  out.header.set_round(order.round());
  out.header.set_attempt(order.attempt());
  out.header.set_base_sha256(order.model().sha256());
  for (size_t i = 0; i < n; ++i) {
    const std::string id = ClientId(order.clients(static_cast<int>(i)));
    if (outcomes[i].ok()) {
      out.header.add_clients(id);
    } else {
      v1::ClientFailure& failure = *out.header.add_failures();
      failure.set_client(id);
      failure.set_message(std::string(outcomes[i].message()));
    }
  }
  if (out.header.clients().empty()) {
    out.header.set_encoding(v1::TALLY);
    return out;
  }
  if (alone) {
    out.header.set_encoding(EncodingFor(task.encoding(), std::is_same_v<T, double>));
    out.header.mutable_scalars()->Add(single.scalars.begin(), single.scalars.end());
    out.header.set_weight(single.weight);
    out.header.set_group(order.groups().empty() ? 0 : order.groups(0));
    out.payload = task.encoding() == v1::EXACT ? OwningSlice(std::move(single.vectors))
                                               : OwningSlice(std::move(encoded));
  } else {
    out.header.set_encoding(v1::TALLY);
    out.payload = OwningSlice(std::vector<int64_t>(total.flat().begin(), total.flat().end()));
  }
  out.header.set_payload_size(out.payload.size());
  out.header.set_payload_hash(
      Xxh3({reinterpret_cast<const char*>(out.payload.begin()), out.payload.size()}));
  return out;
}

}  // namespace leeway
