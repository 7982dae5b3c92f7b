// Which connections the server has, and which gives way: by Connections alone, and by a
// Listener with real sockets and a real gRPC server.
#include "server/connections.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/reason.h"
#include "common/sockets.h"
#include "proto/federation.grpc.pb.h"
#include "server/listener.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::Pair;

TEST(ConnectionsTest, TheLongestIdleOfAnAddressGivesWay) {
  Connections connections({.all = 10, .idle = 6, .idle_per_address = 2});
  EXPECT_EQ(connections.Add(1, "a"), std::nullopt);
  EXPECT_EQ(connections.Add(2, "a"), std::nullopt);
  EXPECT_THAT(connections.Add(3, "a"), Optional(1));
  EXPECT_EQ(connections.Add(4, "b"), std::nullopt);
  connections.SetBusy(2, true);  // has a call: stays
  EXPECT_EQ(connections.Add(5, "a"), std::nullopt);
  EXPECT_THAT(connections.Add(6, "a"), Optional(3));
  connections.SetBusy(2, false);  // now it is the last to go
  EXPECT_THAT(connections.Add(7, "a"), Optional(5));
  EXPECT_EQ(connections.size(), 4u);
  EXPECT_EQ(connections.idle(), 4u);
}

TEST(ConnectionsTest, TheAddressWithMostGivesWay) {
  Connections connections({.all = 10, .idle = 4, .idle_per_address = 3});
  EXPECT_EQ(connections.Add(1, "alone"), std::nullopt);
  for (Connections::Id id : {2, 3, 4}) EXPECT_EQ(connections.Add(id, "crowd"), std::nullopt);
  EXPECT_THAT(connections.Add(5, "other"), Optional(2));
  EXPECT_THAT(connections.Add(6, "crowd"), Optional(3));
  connections.Remove(4);
  connections.Remove(4);
  EXPECT_EQ(connections.Add(7, "crowd"), std::nullopt);
}

TEST(ConnectionsTest, CallsAreNotEndedForNewcomers) {
  Connections connections({.all = 2, .idle = 2, .idle_per_address = 2});
  for (Connections::Id id : {1, 2}) {
    EXPECT_EQ(connections.Add(id, "a"), std::nullopt);
    connections.SetBusy(id, true);
  }
  EXPECT_THAT(connections.Add(3, "b"), Optional(3));
  EXPECT_EQ(connections.size(), 2u);
  connections.SetBusy(3, true);  // not known
  connections.SetBusy(1, false);
  EXPECT_THAT(connections.Add(4, "b"), Optional(1));
}

TEST(ConnectionsTest, UnixSocketsCountAmongAllOnly) {
  Connections connections({.all = 3, .idle = 1, .idle_per_address = 1});
  for (Connections::Id id : {1, 2, 3}) EXPECT_EQ(connections.Add(id, ""), std::nullopt);
  EXPECT_THAT(connections.Add(4, ""), Optional(4));
}

TEST(ConnectionsTest, LimitsLeaveFilesForOthers) {
  for (uint64_t files : {256, 1024, 4096, 20'000, 1'048'576}) {
    const Connections::Limits limits = Connections::Limits::ForFiles(files);
    if (files > 256) {
      EXPECT_LE(2 * limits.all + 256, files);
    }
    EXPECT_GT(limits.idle_per_address, 0u);
    EXPECT_LT(limits.idle_per_address, limits.idle);
    EXPECT_LT(limits.idle, limits.all);
  }
}

// A gRPC server without services but the health check, and its listener.
class ListenerTest : public ::testing::Test {
 protected:
  void Start(const std::string& address, uint64_t files = 1024) {
    Listener::Options options;
    options.address = address;
    options.files = files;
    options.on_refusal = [this](const absl::Status& why) {
      EXPECT_EQ(ReasonOf(why), "connection_limit");
      ++refused_;
    };
    options.on_flood = [this](const std::string& caller, const absl::Status& why) {
      MutexLock lock(&mu_);
      floods_.emplace_back(caller, ReasonOf(why));
    };
    absl::StatusOr<std::unique_ptr<Listener>> listener = Listener::Open(options);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    methods_ = std::make_unique<Methods>();
    builder.RegisterCallbackGenericService(methods_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    listener_->Start(std::move(acceptor));
  }
  void TearDown() override {
    if (listener_) listener_->Stop();
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  // UNIMPLEMENTED shows that gRPC has answered. Every channel has a connection of its own.
  grpc::StatusCode Call(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1::Federation::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
    auto reader = stub->Observe(&context, v1::ObserveRequest());
    v1::Observation observation;
    while (reader->Read(&observation)) {
    }
    return reader->Finish().error_code();
  }
  int Port() const {
    const std::string& address = listener_->address();
    return std::stoi(address.substr(address.rfind(':') + 1));
  }
  void Connect(const Descriptor& fd) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(Port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  Descriptor Connect() const {
    Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Connect(fd);
    return fd;
  }

  // Remembers who called, by gRPC's name.
  class Methods : public grpc::CallbackGenericService {
   public:
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      {
        MutexLock lock(&mu_);
        peer_ = context->peer();
      }
      return grpc::CallbackGenericService::CreateReactor(context);
    }
    std::string peer() {
      MutexLock lock(&mu_);
      return peer_;
    }

   private:
    Mutex mu_;
    std::string peer_ ABSL_GUARDED_BY(mu_);
  };

  std::vector<std::pair<std::string, std::string>> floods() {
    MutexLock lock(&mu_);
    return floods_;
  }
  Mutex mu_;
  std::vector<std::pair<std::string, std::string>> floods_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Methods> methods_;
  std::atomic<int> refused_ = 0;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ListenerTest, ServesEveryKindOfAddress) {
  const std::string path =
      (std::filesystem::temp_directory_path() / absl::StrCat("leeway-listener-", getpid()))
          .string();
  for (const std::string& address :
       {std::string("127.0.0.1:0"), std::string("[::1]:0"), std::string("0.0.0.0:0"),
        std::string("localhost:0"), absl::StrCat("unix:", path)}) {
    Start(address);
    const bool file = address.rfind("unix:", 0) == 0;
    if (file) {
      EXPECT_EQ(listener_->address(), address);
    }
    EXPECT_EQ(
        Call(address == "0.0.0.0:0" ? absl::StrCat("127.0.0.1:", Port()) : listener_->address()),
        grpc::StatusCode::UNIMPLEMENTED)
        << address;
    TearDown();
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST_F(ListenerTest, AnAddressThatIsTakenIsNotShared) {
  Start("127.0.0.1:0");
  Listener::Options options;
  options.address = listener_->address();
  const absl::Status status = Listener::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use"));
  for (const char* wrong : {"nowhere", "127.0.0.1:99999", ":1", "no.such.host.invalid:1"}) {
    options.address = wrong;
    EXPECT_EQ(Listener::Open(options).status().code(), absl::StatusCode::kUnavailable) << wrong;
  }
}

TEST_F(ListenerTest, SilentConnectionsGiveWayToCallers) {
  Start("127.0.0.1:0", /*files=*/400);
  std::vector<Descriptor> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(Connect());
  EXPECT_EQ(Call(listener_->address()), grpc::StatusCode::UNIMPLEMENTED);
  // Whoever was first is told so; the last one still waits.
  char byte = 0;
  while (recv(silent.front().get(), &byte, 1, 0) > 0) {
  }
  EXPECT_GE(refused_, 200 - static_cast<int>(listener_->limits().idle_per_address));
  // None of them is remembered when it is gone.
  silent.clear();
  refused_ = 0;
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(Call(listener_->address()), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ListenerTest, WhoHasACallStays) {
  for (const std::string address : {"127.0.0.1:0", "[::1]:0"}) {
    Start(address, /*files=*/400);
    const auto channel =
        grpc::CreateChannel(listener_->address(), grpc::InsecureChannelCredentials());
    const auto stub = v1::Federation::NewStub(channel);
    grpc::ClientContext context;
    stub->Observe(&context, v1::ObserveRequest())->Finish().error_code();
    const std::string peer = methods_->peer();
    listener_->OnBusy(peer, true);
    std::vector<Descriptor> silent;
    if (address == "127.0.0.1:0") {
      for (int i = 0; i < 200; ++i) silent.push_back(Connect());
    } else {
      for (int i = 0; i < 100; ++i) Call(listener_->address());
    }
    grpc::ClientContext again;
    again.set_wait_for_ready(false);
    EXPECT_EQ(stub->Observe(&again, v1::ObserveRequest())->Finish().error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_EQ(methods_->peer(), peer);  // by the same connection
    TearDown();
  }
}

// Sends a preface and headers that never end, until the other side closes; how many bytes.
uint64_t SendEndlessHeaders(int fd) {
  const std::string start("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0\0\1\0\0\0\0\1",
                          42);
  EXPECT_EQ(send(fd, start.data(), start.size(), 0), static_cast<ssize_t>(start.size()));
  // CONTINUATION of 2^14 bytes, each an indexed field: gRPC reads on and keeps nothing.
  std::string frame("\0\x40\0\x9\0\0\0\0\1", 9);
  frame += std::string(1 << 14, '\x82');
  uint64_t sent = 0;
  for (ssize_t now = 0; (now = send(fd, frame.data(), frame.size(), MSG_NOSIGNAL)) > 0;) {
    sent += static_cast<uint64_t>(now);
  }
  return sent;
}

TEST_F(ListenerTest, HeadersThatNeverEndAreCutOff) {
  Start("127.0.0.1:0");
  const Descriptor attacker = Connect();
  SendEndlessHeaders(attacker.get());
  while (floods().empty()) std::this_thread::yield();
  EXPECT_THAT(floods(), ElementsAre(Pair("", "byte_flood")));
  EXPECT_EQ(Call(listener_->address()), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ListenerTest, WhoHasCalledIsCutOffLater) {
  Start("127.0.0.1:0");
  const Descriptor attacker = Connect();
  sockaddr_in own{};
  socklen_t size = sizeof own;
  getsockname(attacker.get(), reinterpret_cast<sockaddr*>(&own), &size);
  const std::string peer = absl::StrCat("ipv4:127.0.0.1:", ntohs(own.sin_port));
  while (listener_->OnCaller(peer, "somebody") == nullptr) std::this_thread::yield();
  EXPECT_GT(SendEndlessHeaders(attacker.get()), FloodWatch::kOneMessage);
  while (floods().empty()) std::this_thread::yield();
  EXPECT_THAT(floods(), ElementsAre(Pair("somebody", "byte_flood")));
}

TEST_F(ListenerTest, CallersWhoAreDroppedLoseAllTheirConnections) {
  Start("127.0.0.1:0");
  const auto channel =
      grpc::CreateChannel(listener_->address(), grpc::InsecureChannelCredentials());
  const auto stub = v1::Federation::NewStub(channel);
  grpc::ClientContext context;
  stub->Observe(&context, v1::ObserveRequest())->Finish().error_code();
  const std::string peer = methods_->peer();
  EXPECT_NE(listener_->OnCaller(peer, "somebody"), nullptr);
  listener_->Drop("somebody");
  EXPECT_EQ(listener_->OnCaller(peer, "somebody"), nullptr);
  EXPECT_THAT(floods(), ElementsAre(Pair("somebody", "call_flood")));
  EXPECT_EQ(Call(listener_->address()), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ListenerTest, OutlastsATimeWithoutFiles) {
  Start("127.0.0.1:0");
  std::vector<Descriptor> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(Descriptor(socket(AF_INET, SOCK_STREAM, 0)));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<Descriptor> all;
  for (Descriptor one(dup(clients[0].get())); one.valid();
       one = Descriptor(dup(clients[0].get()))) {
    all.push_back(std::move(one));
  }
  for (const Descriptor& client : clients) Connect(client);
  while (refused_ < 4) std::this_thread::yield();
  all.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(Call(listener_->address()), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ListenerTest, OpensItsSocketAgainWhenThatHasFailed) {
  Start("127.0.0.1:0");
  for (int fd = 3; fd < 1024; ++fd) {
    int listening = 0;
    socklen_t size = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening) {
      shutdown(fd, SHUT_RDWR);
    }
  }
  EXPECT_EQ(Call(listener_->address()), grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace leeway
