// A client that means harm: connections that each send a report of many bytes, or
// several, as fast as the server takes them. Prints how the server ended them.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

std::shared_ptr<grpc::Channel> Connect(const std::string& server, int number) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetInt("leeway.hostile", number);
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
}

// The status that the server answers one upload with.
grpc::StatusCode Attack(const std::shared_ptr<grpc::Channel>& channel, size_t bytes) {
  grpc::GenericStub stub(channel);
  // One megabyte of memory, sent again and again: no message of any kind.
  const grpc::Slice slice(std::string(size_t{1} << 20, '\xff'));
  const std::vector<grpc::Slice> slices(bytes >> 20, slice);
  const grpc::ByteBuffer message(slices.data(), slices.size());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, "/leeway.v1.Federation/Submit", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  if (ok) {
    call->Write(message, nullptr);
    queue.Next(&tag, &ok);
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status.error_code();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: hostile_client SERVER CONNECTIONS MEBIBYTES [REPORTS_EACH]\n");
    return 2;
  }
  const int reports = argc == 5 ? std::atoi(argv[4]) : 1;
  const int connections = std::atoi(argv[2]);
  const size_t bytes = static_cast<size_t>(std::atoi(argv[3])) << 20;
  std::mutex mu;
  std::map<int, int> outcomes;
  std::vector<std::thread> threads;
  for (int i = 0; i < connections; ++i) {
    threads.emplace_back([&, i] {
      const auto channel = Connect(argv[1], i);
      for (int report = 0; report < reports; ++report) {
        const int code = Attack(channel, bytes);
        const std::lock_guard lock(mu);
        ++outcomes[code];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& [code, count] : outcomes) std::printf("status %d: %d\n", code, count);
  return 0;
}
