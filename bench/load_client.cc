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
#include <optional>
#include <string>
#include <vector>

#include "client/raw_stream.h"
#include "common/digest.h"
#include "common/mutex.h"
#include "common/sums.h"
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

// Small numbers, so that every round has a new model.
grpc::Slice Payload(size_t bytes) {
  if (bytes <= kLargestKept) {
    const std::vector<float> values(bytes / sizeof(float), 0x1p-20f);
    return grpc::Slice(values.data(), bytes);
  }
  // Pages that nobody writes to take no memory, so of a huge model nothing changes.
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
  header.set_without_receipt(true);
  const size_t numbers = TaskSums(order.task(), payload.size() / sizeof(float)).sent_numbers();
  for (size_t i = 0; i < numbers; ++i) header.add_numbers(1);
  header.set_payload_size(payload.size());
  header.set_payload_hash(Xxh3({reinterpret_cast<const char*>(payload.begin()), payload.size()}));
  return header;
}

// Like leeway-client, one thread and one queue for orders and reports, and no receipts.
int Main(const std::string& server, const std::string& name, uint64_t features) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const auto channel =
      grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
  v1::JoinRequest request;
  request.set_oldest_version(kOldestProtocol);
  request.set_newest_version(kNewestProtocol);
  request.set_host(name);
  request.set_instance(static_cast<uint64_t>(getpid()));
  request.mutable_schema()->add_feature_shape(features);
  request.mutable_schema()->set_labels(true);
  request.add_clients()->set_id(name);
  request.mutable_clients(0)->set_examples(1);
  const grpc::Slice slice(request.SerializeAsString());
  CallQueue queue;
  RawStream join(channel, "/leeway.v1.Federation/Join", queue);
  RawStream submit(channel, "/leeway.v1.Federation/Submit", queue);
  if (join.Write(grpc::ByteBuffer(&slice, 1))) join.WritesDone();
  join.BeginRead();
  submit.BeginRead();
  std::string file;
  grpc::Slice payload;
  v1::Order order;
  while (true) {
    while (!join.read_done() && !submit.read_done()) queue.Await();
    if (!join.read_done()) break;  // the report was refused
    std::optional<grpc::ByteBuffer> message = join.TakeRead();
    if (!message) break;
    if (!grpc::SerializationTraits<v1::Order>::Deserialize(&*message, &order).ok()) return 1;
    if (order.finished()) return 0;
    if (order.round() != 0) {
      if (order.model().inline_().empty()) Fetch(channel, order.model(), file);
      if (payload.size() == 0) {
        // float32 parameters: the file is them and a short header.
        const size_t d = (order.model().size() - 8) / 4 / 1000 * 1000;
        payload = Payload(d * sizeof(float));
      }
      for (const auto& part : EncodeReport(HeaderFor(order, name, payload), payload)) {
        submit.Write(part);
      }
    }
    join.BeginRead();
  }
  const absl::Status why = submit.read_done() ? submit.Finish() : join.Finish();
  std::fprintf(stderr, "%s\n", std::string(why.message()).c_str());
  return 1;
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
