#include "client/process_worker.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/local_update.h"
#include "common/digest.h"
#include "common/known_sums.h"
#include "common/model_file.h"
#include "common/rng.h"
#include "common/status.h"

namespace leeway {
namespace {

// A program that ends without an answer gets the same order again: it may have been killed
// for reasons that are not in the order, and the same order gives the same bits.
constexpr int kTries = 3;
constexpr size_t kMostHeaderBytes = size_t{1} << 20;  // of the answer's file
constexpr absl::Duration kFarewell = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessWorker>> ProcessWorker::Start(
    const ProcessWorkerOptions& options) {
  std::unique_ptr<ProcessWorker> worker(new ProcessWorker(options));
  if (options.fd >= 0) {
    LEEWAY_ASSIGN_OR_RETURN(worker->program_, WorkerProgram::Inherit(options.fd));
    LEEWAY_RETURN_IF_ERROR(worker->Greet());
  } else {
    LEEWAY_RETURN_IF_ERROR(worker->EnsureReady());
  }
  return worker;
}

void ProcessWorker::Refuse(int fd, absl::string_view error) {
  absl::StatusOr<WorkerProgram> program = WorkerProgram::Inherit(fd);
  if (!program.ok()) return;
  // One that has gone needs no reason.
  program->socket().Send(FinishedMessage(error), absl::Now() + kFarewell).IgnoreError();
}

absl::Status ProcessWorker::EnsureReady() {
  if (!program_.running()) {
    if (options_.fd >= 0) return absl::UnavailableError("the worker has gone");
    LEEWAY_ASSIGN_OR_RETURN(program_, WorkerProgram::Start(options_.command));
    prepared_ = false;
    LEEWAY_RETURN_IF_ERROR(Greet());
  }
  if (prepared_ || prepare_.empty()) return absl::OkStatus();
  return SendPrepare();
}

absl::StatusOr<std::string> ProcessWorker::Ask(const std::string& line, absl::Duration longest) {
  const absl::Time deadline = absl::Now() + longest;
  LEEWAY_RETURN_IF_ERROR(program_.socket().Send(line, deadline));
  return program_.socket().Receive(deadline);
}

absl::Status ProcessWorker::Greet() {
  const absl::StatusOr<std::string> line = Ask(HelloMessage(), options_.start);
  if (!line.ok()) {
    how_it_ended_ = program_.Stop();
    return absl::FailedPreconditionError(
        absl::IsDeadlineExceeded(line.status())
            ? absl::StrCat("the worker did not say hello within ",
                           absl::FormatDuration(options_.start),
                           "; is it a worker (docs/worker.md)? Wait longer with "
                           "--worker-start-seconds")
            : absl::StrCat("the worker ", how_it_ended_,
                           " before it said hello; see what it wrote above"));
  }
  const absl::StatusOr<v1::JoinRequest> hosted = ParseWorkerHello(*line);
  if (!hosted.ok()) {
    Drop();
    return hosted.status();
  }
  if (hosted_.clients().empty()) hosted_ = *hosted;
  if (!google::protobuf::util::MessageDifferencer::Equals(*hosted, hosted_)) {
    Drop();
    return absl::FailedPreconditionError(
        "the worker was started again and hosts other clients, or other numbers of examples, than "
        "before; a worker must say the same hello every time");
  }
  return absl::OkStatus();
}

absl::Status ProcessWorker::Prepare(const v1::Welcome& welcome) {
  LEEWAY_ASSIGN_OR_RETURN(layout_, LayoutOf(welcome.model(), hosted_.schema()));
  seed_ = welcome.seed();
  model_.sha256.clear();
  others_.clear();
  nearby_.sha256.clear();
  LEEWAY_ASSIGN_OR_RETURN(model_.file, SharedFile::Make("leeway-model"));
  LEEWAY_ASSIGN_OR_RETURN(answer_, SharedFile::Make("leeway-answer"));
  prepare_ = PrepareMessage(welcome, layout_);
  prepared_ = false;
  return EnsureReady();
}

absl::Status ProcessWorker::SendPrepare() {
  const absl::StatusOr<std::string> line = Ask(prepare_, options_.start);
  if (!line.ok()) {
    how_it_ended_ = program_.Stop();
    return absl::FailedPreconditionError(
        absl::StrCat("the worker ", how_it_ended_, " while it prepared for the run"));
  }
  const absl::StatusOr<WorkerReply> reply = ParseWorkerReply(*line);
  if (reply.ok() && reply->type == ReplyType::kReady) {
    prepared_ = true;
    return absl::OkStatus();
  }
  Drop();
  if (!reply.ok()) return reply.status();
  return absl::InvalidArgumentError(
      reply->type == ReplyType::kError
          ? reply->error
          : "the worker sent an answer before it said that it is ready");
}

absl::StatusOr<Parameters> ProcessWorker::Decode(absl::string_view file) const {
  return DecodeModel(file, layout_.tensors, "model");
}

absl::Status ProcessWorker::WriteModels(const v1::Order& order, const OrderModels& models) {
  LEEWAY_RETURN_IF_ERROR(WriteModel(order.model(), *models.model, model_));
  std::map<std::string, ModelFile> others;
  for (const v1::NamedModel& other : order.others()) {
    ModelFile& file = others[other.name()];
    if (auto kept = others_.extract(other.name()); !kept.empty()) {
      file = std::move(kept.mapped());
    } else {
      LEEWAY_ASSIGN_OR_RETURN(file.file, SharedFile::Make("leeway-other"));
    }
    LEEWAY_RETURN_IF_ERROR(WriteModel(other.model(), *models.others.at(other.name()), file));
  }
  others_ = std::move(others);
  return absl::OkStatus();
}

absl::Status ProcessWorker::WriteModel(const v1::ModelRef& ref, const Parameters& model,
                                       ModelFile& file) {
  if (ref.sha256() == file.sha256) return absl::OkStatus();
  file.sha256.clear();
  const std::string header = EncodeModelHeader(layout_.tensors, layout_.float64);
  const absl::string_view values = std::visit(
      [](const auto& v) {
        return absl::string_view(reinterpret_cast<const char*>(v.data()),
                                 static_cast<size_t>(v.size()) * sizeof(*v.data()));
      },
      model);
  LEEWAY_RETURN_IF_ERROR(file.file.Write({header, values}));
  file.sha256 = ref.sha256();
  return absl::OkStatus();
}

absl::Status ProcessWorker::Compute(const v1::Order& order, const OrderModels& models, Take take) {
  const Parameters& model = *models.model;
  const absl::Status written = WriteModels(order, models);
  const WorkerSums sums(order.task(), static_cast<size_t>(SizeOf(model)));
  for (size_t place = 0; place < static_cast<size_t>(order.clients_size()); ++place) {
    const uint32_t client = order.clients(static_cast<int>(place));
    if (!written.ok()) {
      take(place, written);
    } else if (std::holds_alternative<Vector<double>>(model)) {
      take(place, ComputeOne<double>(order, models, client, sums));
    } else {
      take(place, ComputeOne<float>(order, models, client, sums));
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<AnyReport> ProcessWorker::ComputeOne(const v1::Order& order,
                                                    const OrderModels& models, uint32_t client,
                                                    const WorkerSums& sums) {
  const v1::HostedClient& hosted = hosted_.clients(static_cast<int>(client));
  if (hosted.evaluator() && !sums.only_tests()) {
    return absl::PermissionDeniedError("holds a central test set: it evaluates, nothing else");
  }
  if (order.task().rule().algorithm_case() != v1::LocalRule::ALGORITHM_NOT_SET) {
    return absl::UnimplementedError(
        "rule.algorithm is not one that worker programs are asked for (docs/worker.md): host this "
        "client with its data in leeway-client, or train without the algorithm");
  }
  WorkerOrder asked;
  asked.run = order.run_id();
  asked.round = order.round();
  asked.attempt = order.attempt();
  asked.client = hosted.id();
  asked.rule = order.task().rule();
  asked.repeats = order.task().repeats();
  // A worker cannot begin in the middle of another round's batches.
  const bool from_start = order.task().batch_round() > 0 && order.task().batch_step() == 0;
  const Rng random(seed_, from_start ? order.task().batch_round() : order.round(),
                   ClientKey(hosted.id()), Purpose::kBatchOrder);
  asked.random = random.Name();
  asked.model = {model_.file.path(), model_.sha256};
  for (const auto& [name, other] : others_) {
    asked.others[name] = {other.file.path(), other.sha256};
  }
  asked.sums = sums.asked();
  asked.answer_file = answer_.path();
  WorkerReply reply;
  if (!sums.asked().empty()) {
    LEEWAY_ASSIGN_OR_RETURN(reply, Answer(asked));
  }
  if (sums.compares()) {
    LEEWAY_ASSIGN_OR_RETURN(reply.numbers[WorkerSums::kOtherLoss], OtherLoss(asked));
  }
  ClientReport<T> report;
  absl::Status complete = ReadVectors<T>(sums, report.vectors);
  if (complete.ok()) {
    const bool by_examples = order.task().weighting() == v1::EXAMPLES;
    complete = sums.Complete<T>(reply.numbers, by_examples ? hosted.examples() : 1, SignOf(random),
                                report);
  }
  if (!complete.ok()) {
    Drop();
    return complete;
  }
  if (sums.products()) {
    LEEWAY_RETURN_IF_ERROR(FillProduct<T>(order.task(), asked, models, report));
  }
  return AnyReport(std::move(report));
}

template <typename T>
absl::StatusOr<Vector<double>> ProcessWorker::GradientAt(WorkerOrder order,
                                                         const Vector<double>& w) {
  if (nearby_.file.path().empty()) {
    LEEWAY_ASSIGN_OR_RETURN(nearby_.file, SharedFile::Make("leeway-nearby"));
  }
  const Parameters model = Vector<T>(w.template cast<T>());
  v1::ModelRef ref;
  const auto& values = std::get<Vector<T>>(model);
  ref.set_sha256(Sha256Hex(absl::string_view(reinterpret_cast<const char*>(values.data()),
                                             static_cast<size_t>(values.size()) * sizeof(T))));
  LEEWAY_RETURN_IF_ERROR(WriteModel(ref, model, nearby_));
  order.model = {nearby_.file.path(), nearby_.sha256};
  order.others.clear();
  v1::Task task;
  leeway::Ask(kGradient, task);
  const WorkerSums sums(task, static_cast<size_t>(w.size()));
  order.sums = sums.asked();
  LEEWAY_ASSIGN_OR_RETURN(const WorkerReply reply, Answer(std::move(order)));
  ClientReport<T> gradient;
  absl::Status complete = ReadVectors<T>(sums, gradient.vectors);
  if (complete.ok()) complete = sums.Complete<T>(reply.numbers, 1, 1, gradient);
  if (!complete.ok()) {
    Drop();
    return complete;
  }
  return Vector<double>(
      Eigen::Map<const Vector<T>>(gradient.vectors.data(), w.size()).template cast<double>());
}

template <typename T>
absl::StatusOr<Vector<double>> ProcessWorker::HessianVector(const WorkerOrder& order,
                                                            const Vector<double>& w,
                                                            const Vector<double>& v) {
  // In float32 rounding asks for long steps; in float64 short ones leave kinks aside.
  constexpr double kStep = std::is_same_v<T, float> ? 1e-3 : 1e-7;
  const double step = kStep * std::max(1.0, w.norm()) / std::max(v.norm(), 1e-300);
  LEEWAY_ASSIGN_OR_RETURN(const Vector<double> plus, GradientAt<T>(order, w + step * v));
  LEEWAY_ASSIGN_OR_RETURN(const Vector<double> minus, GradientAt<T>(order, w - step * v));
  return Vector<double>((plus - minus) / (2 * step));
}

template <typename T>
absl::Status ProcessWorker::FillProduct(const v1::Task& task, const WorkerOrder& order,
                                        const OrderModels& models, ClientReport<T>& report) {
  const LocalTask local(task, static_cast<size_t>(SizeOf(*models.model)), models.others);
  if (local.sums().vectors() != 1) {
    return absl::UnimplementedError(
        "task.sums asks for a product with the Hessian beside other vectors, which clients of "
        "worker programs do not report; install the server's version of Leeway");
  }
  const Vector<double> w = std::get<Vector<T>>(*models.model).template cast<double>();
  LEEWAY_ASSIGN_OR_RETURN(const Vector<T>* direction, local.Other<T>(kDirection));
  LEEWAY_ASSIGN_OR_RETURN(Vector<double> value,
                          HessianVector<T>(order, w, direction->template cast<double>()));
  if (Asks(task, kHessianSpread)) {
    LEEWAY_ASSIGN_OR_RETURN(const Vector<T>* mean, local.Other<T>(kMeanProduct));
    LEEWAY_ASSIGN_OR_RETURN(
        value, HessianVector<T>(order, w, Vector<double>(value - mean->template cast<double>())));
  }
  Eigen::Map<Vector<T>>(report.vectors.data(), w.size()) = value.template cast<T>();
  return absl::OkStatus();
}

absl::StatusOr<double> ProcessWorker::OtherLoss(WorkerOrder order) {
  const auto other = order.others.find(kOtherModel);
  if (other == order.others.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("order.others has no '", kOtherModel, "', which loss_difference needs"));
  }
  order.model = other->second;
  order.others.clear();
  order.sums = {{kLoss, 0, v1::NUMBER}};
  LEEWAY_ASSIGN_OR_RETURN(const WorkerReply reply, Answer(std::move(order)));
  const auto loss = reply.numbers.find(kLoss);
  if (loss == reply.numbers.end()) {
    Drop();
    return absl::InvalidArgumentError("the worker's answer has no number 'loss'");
  }
  return loss->second;
}

absl::StatusOr<WorkerReply> ProcessWorker::Exchange(const WorkerOrder& order) {
  const absl::Time deadline = absl::Now() + options_.deadline;
  LEEWAY_RETURN_IF_ERROR(program_.socket().Send(OrderMessage(order), deadline));
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const std::string line, program_.socket().Receive(deadline));
    LEEWAY_ASSIGN_OR_RETURN(WorkerReply reply, ParseWorkerReply(line));
    // Of an order that was given up: a worker that is not ours may come to it late.
    if (reply.order && *reply.order < order.number) continue;
    if (reply.order == order.number && reply.type != ReplyType::kReady) return reply;
    return absl::InvalidArgumentError(
        reply.type == ReplyType::kError
            ? reply.error
            : absl::StrCat("the worker sent something else than an answer to order ",
                           order.number));
  }
}

absl::StatusOr<WorkerReply> ProcessWorker::Answer(WorkerOrder order) {
  for (int tries = 1;; ++tries) {
    LEEWAY_RETURN_IF_ERROR(EnsureReady());
    order.number = ++orders_;
    absl::StatusOr<WorkerReply> reply = Exchange(order);
    if (reply.ok() && reply->type == ReplyType::kError) {
      return absl::InvalidArgumentError(reply->error);
    }
    if (reply.ok()) return reply;
    if (absl::IsDeadlineExceeded(reply.status())) {
      Drop();
      return absl::DeadlineExceededError(absl::StrCat("the worker did not answer within ",
                                                      absl::FormatDuration(options_.deadline),
                                                      "; wait longer with --worker-deadline"));
    }
    if (!absl::IsUnavailable(reply.status())) {
      Drop();
      return reply.status();
    }
    if (options_.fd >= 0) options_.on_gone();
    how_it_ended_ = program_.Stop();
    if (tries == kTries) {
      return absl::UnavailableError(absl::StrCat("the worker ", how_it_ended_,
                                                 " instead of answering, the last of ", tries,
                                                 " times; see what it wrote"));
    }
  }
}

template <typename T>
absl::Status ProcessWorker::ReadVectors(const WorkerSums& sums, std::vector<T>& values) const {
  if (sums.tensors().empty()) return absl::OkStatus();
  const absl::string_view name = "the worker's answer_file";
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t size, answer_.Size());
  uint64_t length = 0;
  if (size >= sizeof length) {
    LEEWAY_RETURN_IF_ERROR(answer_.Read(0, reinterpret_cast<char*>(&length), sizeof length));
  }
  if (size < sizeof length || length > std::min<uint64_t>(size - sizeof length, kMostHeaderBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not a safetensors file; write the vectors that `sums` asks for"));
  }
  std::string header(sizeof length + length, '\0');
  LEEWAY_RETURN_IF_ERROR(answer_.Read(0, header.data(), header.size()));
  constexpr bool kFloat64 = std::is_same_v<T, double>;
  LEEWAY_RETURN_IF_ERROR(CheckModelHeader(header, sums.tensors(), kFloat64, name));
  uint64_t count = 0;
  for (const TensorSpec& tensor : sums.tensors()) count += tensor.size();
  if (size - header.size() < count * sizeof(T)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is truncated"));
  }
  values.resize(count);
  return answer_.Read(header.size(), reinterpret_cast<char*>(values.data()), count * sizeof(T));
}

void ProcessWorker::Drop() {
  if (options_.fd < 0) how_it_ended_ = program_.Stop();
}

void ProcessWorker::Finish(absl::string_view error) {
  if (!program_.running()) return;
  const absl::Time deadline = absl::Now() + kFarewell;
  if (!program_.socket().Send(FinishedMessage(error), deadline).ok()) return;
  // It may have something to put away: until it hangs up, or the time is over.
  while (program_.socket().Receive(deadline).ok()) {
  }
}

}  // namespace leeway
