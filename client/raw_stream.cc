#include "client/raw_stream.h"

#include "common/wire.h"

namespace leeway {

RawStream::RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method)
    : stub_(channel), call_(stub_.PrepareCall(&context_, method, &queue_)) {
  call_->StartCall(this);
  Await();
}

RawStream::~RawStream() {
  if (!finished_) {
    context_.TryCancel();
    Finish().IgnoreError();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool RawStream::Await() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

bool RawStream::Write(const grpc::ByteBuffer& message) {
  call_->Write(message, this);
  return Await();
}

bool RawStream::WritesDone() {
  call_->WritesDone(this);
  return Await();
}

bool RawStream::Read(grpc::ByteBuffer& message) {
  call_->Read(&message, this);
  return Await();
}

absl::Status RawStream::Finish() {
  grpc::Status status;
  call_->Finish(&status, this);
  Await();
  finished_ = true;
  return FromGrpc(status);
}

}  // namespace leeway
