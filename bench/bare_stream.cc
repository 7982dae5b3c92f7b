// What gRPC itself allows here: one process sends messages, of 1 MiB unless told
// otherwise, to another over loopback or a unix socket as fast as it can, nothing
// else. Prints bytes per second.
// Usage: bare_stream MEGABYTES [KILOBYTES_A_MESSAGE [SOCKET_FILE]]
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "client/raw_stream.h"

namespace leeway {
namespace {

// Reads everything, answers once.
class Sink : public grpc::ServerGenericBidiReactor {
 public:
  Sink() { StartRead(&in_); }
  void OnReadDone(bool ok) override {
    if (ok) return StartRead(&in_);
    StartWriteAndFinish(&in_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer in_;
};

class Service : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Sink;
  }
};

// A process of its own, as clients are.
int Send(const std::string& server, size_t megabytes, size_t bytes) {
  grpc::ChannelArguments arguments;
  const auto channel =
      grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
  const grpc::Slice slice(std::string(bytes, 'x'));
  const grpc::ByteBuffer message(&slice, 1);
  const auto send = [&](size_t n) {
    RawStream stream(channel, "/bare/Stream");
    for (size_t sent = 0; sent < n << 20; sent += bytes) stream.Write(message);
    stream.WritesDone();
    grpc::ByteBuffer answer;
    stream.Read(answer);
  };
  send(64);  // warm up
  const auto begin = std::chrono::steady_clock::now();
  send(megabytes);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%.0f\n", static_cast<double>(megabytes << 20) / seconds.count());
  return 0;
}

int Main(size_t megabytes, size_t bytes, const std::string& file) {
  int ports[2];
  if (pipe(ports) != 0) return 1;
  const pid_t child = fork();  // before gRPC has started any thread
  if (child == 0) {
    int port = 0;
    if (read(ports[0], &port, sizeof port) != sizeof port) _exit(1);
    const std::string server = file.empty() ? "127.0.0.1:" + std::to_string(port) : "unix:" + file;
    const int code = Send(server, megabytes, bytes);
    std::fflush(stdout);
    _exit(code);
  }
  Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(file.empty() ? "127.0.0.1:0" : "unix:" + file,
                           grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  if (write(ports[1], &port, sizeof port) != sizeof port) return 1;
  int status = 0;
  waitpid(child, &status, 0);
  server->Shutdown(std::chrono::system_clock::now());
  return status;
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  const auto number = [&](int i, size_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  return leeway::Main(number(1, 2048), number(2, 1024) << 10, argc > 3 ? argv[3] : "");
}
