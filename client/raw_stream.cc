#include "client/raw_stream.h"

#include <utility>

#include "common/wire.h"

namespace leeway {

CallQueue::~CallQueue() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

void CallQueue::Await() {
  void* tag = nullptr;
  bool ok = false;
  if (queue_.Next(&tag, &ok)) *static_cast<RawStream::Operation*>(tag) = {false, ok};
}

bool CallQueue::Poll() {
  void* tag = nullptr;
  bool ok = false;
  const auto now = gpr_inf_past(GPR_CLOCK_MONOTONIC);
  if (queue_.AsyncNext(&tag, &ok, now) != grpc::CompletionQueue::GOT_EVENT) return false;
  *static_cast<RawStream::Operation*>(tag) = {false, ok};
  return true;
}

RawStream::RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method)
    : own_queue_(std::make_unique<CallQueue>()),
      queue_(*own_queue_),
      stub_(channel),
      call_(stub_.PrepareCall(&context_, method, &queue_.queue_)) {
  call_->StartCall(Begin(start_));
}

RawStream::RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     CallQueue& queue)
    : queue_(queue), stub_(channel), call_(stub_.PrepareCall(&context_, method, &queue_.queue_)) {
  call_->StartCall(Begin(start_));
}

RawStream::~RawStream() {
  if (!finished_) {
    context_.TryCancel();
    Finish().IgnoreError();
  }
  for (const Operation* operation : {&start_, &write_, &read_}) Complete(*operation);
}

void* RawStream::Begin(Operation& operation) {
  operation = {true, false};
  return &operation;
}

bool RawStream::Complete(const Operation& operation) {
  while (operation.pending) queue_.Await();
  return operation.ok;
}

bool RawStream::Write(const grpc::ByteBuffer& message) {
  if (!Complete(start_) || !Complete(write_)) return false;
  call_->Write(message, Begin(write_));
  return true;
}

bool RawStream::WritesDone() {
  if (!Complete(start_) || !Complete(write_)) return false;
  call_->WritesDone(Begin(write_));
  return Complete(write_);
}

void RawStream::BeginRead() {
  if (Complete(start_)) {
    call_->Read(&incoming_, Begin(read_));
  } else {
    read_.ok = false;
  }
}

std::optional<grpc::ByteBuffer> RawStream::TakeRead() {
  if (!Complete(read_)) return std::nullopt;
  return std::exchange(incoming_, grpc::ByteBuffer());
}

bool RawStream::Read(grpc::ByteBuffer& message) {
  BeginRead();
  std::optional<grpc::ByteBuffer> read = TakeRead();
  if (read) message.Swap(&*read);
  return read.has_value();
}

absl::Status RawStream::Finish() {
  Complete(start_);
  grpc::Status status;
  call_->Finish(&status, Begin(finish_));
  Complete(finish_);
  finished_ = true;
  return FromGrpc(status);
}

}  // namespace leeway
