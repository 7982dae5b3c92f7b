// RawStream: one gRPC call whose messages are bytes, so that payloads are never
// copied through protobuf messages. Several calls may share one CallQueue, and
// then one thread serves them all: it sleeps in one place and wakes once.
// For one thread.
#ifndef LEEWAY_CLIENT_RAW_STREAM_H_
#define LEEWAY_CLIENT_RAW_STREAM_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace leeway {

// Where the calls of one thread report that something is done.
class CallQueue {
 public:
  CallQueue() = default;
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Sleeps until something happens to one of the calls.
  void Await();
  // Takes note of what has happened already; false if nothing has.
  bool Poll();

 private:
  friend class RawStream;
  grpc::CompletionQueue queue_;
};

class RawStream {
 public:
  // Starts the call, on a queue of its own or on a shared one that outlives it.
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method);
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
            CallQueue& queue);
  ~RawStream();
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  // These wait for their turn. False when the call is over; then ask Finish why.
  // Write returns as soon as the previous message is on its way.
  bool Write(const grpc::ByteBuffer& message);
  bool WritesDone();
  bool Read(grpc::ByteBuffer& message);
  absl::Status Finish();

  // Reading without waiting: BeginRead, and when the queue has news, ask
  // read_done; then TakeRead gives the message, or nothing when the call is over.
  void BeginRead();
  bool read_done() const { return !read_.pending; }
  std::optional<grpc::ByteBuffer> TakeRead();

 private:
  struct Operation {  // its address is its tag
    bool pending = false;
    bool ok = true;
  };
  friend class CallQueue;
  void* Begin(Operation& operation);
  bool Complete(const Operation& operation);

  std::unique_ptr<CallQueue> own_queue_;
  CallQueue& queue_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  Operation start_, write_, read_, finish_;
  grpc::ByteBuffer incoming_;
  bool finished_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_RAW_STREAM_H_
