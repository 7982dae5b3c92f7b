// A client that does not train: it fetches every model and answers every order
// with the same numbers, so that what is measured is the server and the wire.
// Usage: load_client SERVER NAME FEATURES
#include <grpcpp/grpcpp.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "client/raw_stream.h"
#include "common/digest.h"
#include "common/layout.h"
#include "common/mutex.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"

namespace leeway {
namespace {

// Models above this are read and let go, so that clients leave the memory to the
// server that is measured.
constexpr size_t kLargestKept = size_t{1} << 30;

void Fetch(const std::shared_ptr<grpc::Channel>& channel, const v1::ModelRef& model,
           std::string& file) {
  const bool kept = model.size() <= kLargestKept;
  file.resize(kept ? model.size() : kMaxMessageBytes);
  v1::FetchRequest request;
  request.set_sha256(model.sha256());
  const grpc::Slice slice(request.SerializeAsString());
  RawStream stream(channel, "/leeway.v1.Federation/Fetch");
  stream.Write(grpc::ByteBuffer(&slice, 1));
  stream.WritesDone();
  grpc::ByteBuffer message;
  size_t received = 0;
  while (received < model.size() && stream.Read(message)) {
    const size_t place = kept ? received : 0;
    received += *ParseChunk(message, reinterpret_cast<std::byte*>(file.data()) + place,
                            file.size() - place);
  }
}

grpc::Slice Zeros(size_t bytes) {
  if (bytes <= kLargestKept) return grpc::Slice(std::string(bytes, '\0'));
  // Pages that nobody writes to take no memory.
  void* zeros = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return grpc::Slice(zeros, bytes, grpc::Slice::STATIC_SLICE);
}

v1::ReportHeader HeaderFor(const v1::Order& order, const std::string& name,
                           const grpc::Slice& payload) {
  v1::ReportHeader header;
  header.set_run_id(order.run_id());
  header.set_round(order.round());
  header.set_attempt(order.attempt());
  header.add_clients(name);
  header.set_base_sha256(order.model().sha256());
  header.set_encoding(v1::FLOAT32);
  header.set_weight(1);
  for (size_t i = 0; i < ReportLayout(order.task()).scalars; ++i) header.add_scalars(1);
  header.set_payload_size(payload.size());
  header.set_payload_hash(Xxh3({reinterpret_cast<const char*>(payload.begin()), payload.size()}));
  return header;
}

int Main(const std::string& server, const std::string& name, uint64_t features) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const auto channel =
      grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
  const auto stub = v1::Federation::NewStub(channel);
  v1::JoinRequest join;
  join.set_protocol_version(kProtocolVersion);
  join.set_host(name);
  join.set_instance(static_cast<uint64_t>(getpid()));
  join.mutable_schema()->add_feature_shape(features);
  join.mutable_schema()->set_labels(true);
  join.add_clients()->set_id(name);
  join.mutable_clients(0)->set_examples(1);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  auto orders = stub->Join(&context, join);
  auto submit = std::make_unique<RawStream>(channel, "/leeway.v1.Federation/Submit");
  std::string file;
  grpc::Slice payload;
  v1::Order order;
  while (orders->Read(&order) && !order.finished()) {
    if (order.round() == 0) continue;
    if (order.model().inline_().empty()) Fetch(channel, order.model(), file);
    if (payload.size() == 0) {
      // float32 parameters: the file is them and a short header.
      const size_t d = (order.model().size() - 8) / 4 / 1000 * 1000;
      payload = Zeros(d * 4);
    }
    for (const auto& message : EncodeReport(HeaderFor(order, name, payload), payload)) {
      submit->Write(message);
    }
    grpc::ByteBuffer receipt;
    if (!submit->Read(receipt)) {
      std::fprintf(stderr, "%s\n", std::string(submit->Finish().message()).c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  leeway::TrustLockOrder();
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  return leeway::Main(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10));
}
