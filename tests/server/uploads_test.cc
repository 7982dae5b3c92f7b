// Reports and models too large for one message, over a real gRPC channel: whoever holds
// a staging buffer without sending costs at most its own client's place, and whoever
// does not read is let go.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"
#include "records/config.h"
#include "server/engine.h"
#include "server/service.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

constexpr size_t kDimension = 150'000;  // 1.2 MB: two parts
constexpr size_t kSmaller = 100'000;    // 0.8 MB: one message

class UploadsTest : public ::testing::Test {
 protected:
  using Stream = grpc::ClientReaderWriter<v1::Part, v1::Receipt>;
  struct Upload {
    grpc::ClientContext context;
    std::unique_ptr<Stream> stream;
    absl::Status Outcome() {
      v1::Receipt receipt;
      while (stream->Read(&receipt)) {
      }
      return FromGrpc(stream->Finish());
    }
  };

  void Start(const std::vector<std::string>& clients, const std::string& rules,
             size_t dimension = kDimension) {
    dimension_ = dimension;
    directory_ = std::filesystem::temp_directory_path() /
                 absl::StrCat("leeway-uploads-test-", getpid(), "-",
                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    Engine::Options options;
    options.config =
        *ParseConfig(absl::StrCat("model { linear_regression { intercept: false } } ", rules,
                                  "phases { train { rounds: 2 drift_off: true local "
                                  "{ step_size: 0.1 steps: 1 } } }"),
                     "test");
    options.config.mutable_cohort()->set_clients(static_cast<uint32_t>(clients.size()));
    options.state_directory = directory_;
    engine_ = *Engine::Open(options);
    service_ = MakeService(*engine_);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    LimitResources(builder);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // a window that does not grow
    stub_ = v1::Federation::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), arguments));
    loop_ = std::thread([this] { engine_->Run().IgnoreError(); });
    v1::JoinRequest join;
    join.set_oldest_version(kOldestProtocol);
    join.set_newest_version(kNewestProtocol);
    join.set_instance(1);
    join.mutable_schema()->add_feature_shape(dimension);
    for (const std::string& client : clients) {
      join.add_clients()->set_id(client);
      join.mutable_clients(join.clients_size() - 1)->set_examples(5);
    }
    orders_ = stub_->Join(&join_context_, join);
    while (orders_->Read(&order_) && order_.round() == 0) {
    }
    ASSERT_EQ(order_.round(), 1u);
  }
  void TearDown() override {
    join_context_.TryCancel();
    engine_->Stop();
    loop_.join();
    server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove_all(directory_);
  }

  // A stream, and a report's header.
  std::unique_ptr<Upload> Open(const std::string& client, v1::Part& part) {
    auto upload = std::make_unique<Upload>();
    upload->context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(5));
    upload->stream = stub_->Submit(&upload->context);
    v1::ReportHeader& header = *part.mutable_header();
    header.set_run_id(order_.run_id());
    header.set_round(order_.round());
    header.set_attempt(order_.attempt());
    header.add_clients(client);
    header.set_base_sha256(order_.model().sha256());
    const TaskSums sums(order_.task(), dimension_);
    header.set_payload_hash(Xxh3(NamedReport<>(sums).Set(kLoss, 1).Derive().Write(header)));
    return upload;
  }
  // Sends a report's header and so many parts of its payload. When the first of them
  // is on its way, the upload has its buffer: it is longer than the window.
  std::unique_ptr<Upload> Begin(const std::string& client, size_t parts) {
    v1::Part part;
    auto upload = Open(client, part);
    upload->stream->Write(part);
    Send(*upload, parts);
    return upload;
  }
  void Send(Upload& upload, size_t parts) const {
    for (size_t i = 0; i < parts; ++i) {
      v1::Part data;
      data.set_data(payload().substr(i * kChunkBytes, kChunkBytes));
      upload.stream->Write(data);
    }
  }
  std::string payload() const { return std::string(8 * dimension_, '\0'); }
  absl::Status Report(const std::string& client) {
    const auto upload = Begin(client, 2);
    upload->stream->WritesDone();
    return upload->Outcome();
  }

  size_t dimension_ = 0;
  std::filesystem::path directory_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Federation::Stub> stub_;
  std::thread loop_;
  grpc::ClientContext join_context_;
  std::unique_ptr<grpc::ClientReader<v1::Order>> orders_;
  v1::Order order_;
};

TEST_F(UploadsTest, WhoIsNotAwaitedHoldsNoBuffer) {
  Start({"a", "b"}, "");
  EXPECT_EQ(Begin("stranger", 0)->Outcome().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(Report("a").ok());
  EXPECT_TRUE(Report("a").ok());  // a replay gets its receipt
  EXPECT_EQ(engine_->Refusals()["not_sampled"], 1u);
}

TEST_F(UploadsTest, FiftyUploadsAtATimeShareThreeBuffers) {
  constexpr int kClients = 50;
  constexpr Account::Sum kThree = {3, 3 * 8 * kDimension};
  std::vector<std::string> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(absl::StrCat("c", i));
  Start(clients, "limits { upload_seconds: 3000 } ");  // no sender is too slow
  const Holdings& holdings = *engine_->holdings();
  std::vector<std::unique_ptr<Upload>> uploads;
  for (const std::string& client : clients) uploads.push_back(Begin(client, 0));
  while (holdings.waiting.now().blocks + holdings.staging.now().blocks < kClients) {
    std::this_thread::yield();
  }
  EXPECT_EQ(holdings.staging.now(), kThree);
  std::vector<std::thread> senders;
  for (auto& upload : uploads) {
    senders.emplace_back([this, &upload] {
      Send(*upload, 2);
      upload->stream->WritesDone();
      EXPECT_TRUE(upload->Outcome().ok());
    });
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(holdings.staging.most(), kThree);
  EXPECT_EQ(holdings.waiting.now().blocks, 0);
  EXPECT_EQ(holdings.small_reports.most().blocks, 0);
}

TEST_F(UploadsTest, AStreamKeepsLittleAfterAReportOfOneMessage) {
  Start({"a", "b"}, "", kSmaller);
  v1::Part part;
  const auto upload = Open("a", part);
  part.set_data(payload());
  upload->stream->Write(part);
  v1::Receipt receipt;
  ASSERT_TRUE(upload->stream->Read(&receipt));
  EXPECT_EQ(engine_->holdings()->small_reports.most(), (Account::Sum{1, 8 * kSmaller}));
  EXPECT_EQ(engine_->holdings()->small_reports.now(), Account::Sum());
  EXPECT_EQ(engine_->holdings()->staging.most(), Account::Sum());
}

TEST_F(UploadsTest, AClientHasOneAtATimeTheNewest) {
  Start({"a", "b"}, "");
  std::vector<std::unique_ptr<Upload>> hogs;
  for (int i = 0; i < 10; ++i) hogs.push_back(Begin("a", 0));
  EXPECT_TRUE(Report("b").ok());
  while (engine_->Refusals()["superseded"] < 9) std::this_thread::yield();  // all have begun
  EXPECT_TRUE(Report("a").ok());
  for (const auto& hog : hogs) EXPECT_EQ(hog->Outcome().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(engine_->Refusals()["superseded"], 10u);
}

TEST_F(UploadsTest, WhoSendsNothingGivesWayToWhoWaits) {
  Start({"a", "b", "c", "d"}, "limits { upload_seconds: 6 } ");
  std::vector<std::unique_ptr<Upload>> hogs;
  for (const char* name : {"a", "b", "c"}) hogs.push_back(Begin(name, 1));
  EXPECT_TRUE(Report("d").ok());
  std::vector<std::string> outcomes;
  for (const auto& hog : hogs) {
    const absl::Status status = hog->Outcome();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    outcomes.emplace_back(status.message());
  }
  EXPECT_THAT(outcomes, ::testing::Contains(HasSubstr("while other reports waited")));
}

TEST_F(UploadsTest, AnUploadEndsWithItsRound) {
  Start({"a", "b"}, "cohort { minimum_reports: 1 deadline_seconds: 5 } ");
  const auto hog = Begin("a", 0);
  ASSERT_TRUE(Report("b").ok());
  const absl::Status status = hog->Outcome();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(engine_->Refusals()["late"], 1u);
}

TEST_F(UploadsTest, AModelThatNobodyReadsIsNotKept) {
  Start({"a", "b"}, "limits { upload_seconds: 0.5 } ");
  v1::FetchRequest request;
  request.set_sha256(order_.model().sha256());
  grpc::ClientContext context;
  auto chunks = stub_->Fetch(&context, request);
  while (engine_->Refusals()["slow_fetch"] == 0) std::this_thread::yield();
  v1::Chunk chunk;
  while (chunks->Read(&chunk)) {
  }
  EXPECT_FALSE(chunks->Finish().ok());
}

}  // namespace
}  // namespace leeway
