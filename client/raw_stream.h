// RawStream: one gRPC call whose messages are bytes, with blocking operations on
// a completion queue of its own. Bytes, so that payloads are never copied through
// protobuf messages. For one thread.
#ifndef LEEWAY_CLIENT_RAW_STREAM_H_
#define LEEWAY_CLIENT_RAW_STREAM_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace leeway {

class RawStream {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method);
  ~RawStream();
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  // False when the call is over; then ask Finish why.
  bool Write(const grpc::ByteBuffer& message);
  bool WritesDone();
  bool Read(grpc::ByteBuffer& message);
  absl::Status Finish();

 private:
  bool Await();

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_RAW_STREAM_H_
