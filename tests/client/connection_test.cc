// A client against a server that sends what it should not.
#include "client/connection.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/builtin_worker.h"
#include "common/digest.h"
#include "common/model_file.h"
#include "common/model_layout.h"
#include "common/npy.h"
#include "common/sums.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

// One round for one client, with a model that Fetch sends as given, one file a call.
class OneRound : public v1::Federation::Service {
 public:
  OneRound(v1::Order order, std::vector<std::string> files)
      : order_(std::move(order)), files_(std::move(files)) {}

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest*,
                    grpc::ServerWriter<v1::Order>* orders) override {
    orders->Write(order_);
    reported_.WaitForNotificationWithTimeout(absl::Seconds(60));
    v1::Order farewell;
    farewell.set_finished(true);
    farewell.set_failure(failure);
    orders->Write(farewell);
    return grpc::Status::OK;
  }
  grpc::Status Fetch(grpc::ServerContext*, const v1::FetchRequest*,
                     grpc::ServerWriter<v1::Chunk>* chunks) override {
    v1::Chunk chunk;
    chunk.set_data(files_[std::min(fetched_++, files_.size() - 1)]);
    chunks->Write(chunk);
    return grpc::Status::OK;
  }
  grpc::Status Submit(grpc::ServerContext*,
                      grpc::ServerReaderWriter<v1::Receipt, v1::Part>* parts) override {
    v1::Part part;
    if (parts->Read(&part) && part.header().clients_size() == 1) reported_.Notify();
    while (parts->Read(&part)) {
    }
    return grpc::Status::OK;
  }

  std::string failure;  // of the run, in the end

  bool reported() const { return reported_.HasBeenNotified(); }
  size_t fetched() const { return fetched_; }
  void Release() {
    if (!reported_.HasBeenNotified()) reported_.Notify();
  }

 private:
  const v1::Order order_;
  const std::vector<std::string> files_;
  size_t fetched_ = 0;
  absl::Notification reported_;
};

class ConnectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/connection_test_", ::getpid());
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(WriteNpy<double>(folder_ + "/train_x.npy", {3, 2}, {1, 2, 3, 4, 5, 6}).ok());
    ASSERT_TRUE(WriteNpy<double>(folder_ + "/train_y.npy", {3}, {1, 0, 1}).ok());
    v1::DataSchema schema;
    schema.add_feature_shape(2);
    v1::Model& model = *order_.mutable_welcome()->mutable_model();
    model.mutable_linear_regression()->set_intercept(false);
    const auto layout = LayoutOf(model, schema);
    ASSERT_TRUE(layout.ok()) << layout.status();
    file_ = EncodeModel(layout->tensors, InitialModel(*layout, 1));
    order_.set_run_id("run");
    order_.set_round(1);
    order_.set_attempt(1);
    order_.add_clients(0);
    Ask(kDisplacement, *order_.mutable_task()).set_largest(256);
    Ask(kLoss, *order_.mutable_task());
    SetUnits(1, *order_.mutable_task());
    order_.mutable_task()->set_groups(1);
    order_.mutable_task()->mutable_rule()->set_step_size(0.01);
    order_.mutable_task()->mutable_rule()->set_steps(1);
    order_.mutable_model()->set_sha256(Sha256Hex(file_));
    order_.mutable_model()->set_size(file_.size());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::Status TakePartIn(OneRound& round) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&round);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    BuiltinWorkerOptions data;
    data.data = {folder_};
    const absl::StatusOr<std::unique_ptr<BuiltinWorker>> worker = BuiltinWorker::Load(data);
    if (!worker.ok()) return worker.status();
    ConnectionOptions options;
    options.server = absl::StrCat("127.0.0.1:", port);
    const absl::Status outcome = TakePart(**worker, options);
    reported_ = round.reported();
    round.Release();
    server->Shutdown();
    return outcome;
  }

  // The same length, another value: it decodes as well as the right one.
  std::string Damaged() const {
    std::string file = file_;
    file.back() = static_cast<char>(file.back() ^ 1);
    return file;
  }

  std::string folder_;
  v1::Order order_;
  std::string file_;
  bool reported_ = false;
};

TEST_F(ConnectionTest, ADamagedModelIsFetchedAgain) {
  OneRound round(order_, {Damaged(), file_});
  const absl::Status outcome = TakePartIn(round);
  EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_TRUE(reported_);
  EXPECT_EQ(round.fetched(), 2u);
}

TEST_F(ConnectionTest, ADamagedModelInsideTheOrderIsFetchedInstead) {
  order_.mutable_model()->set_inline_(Damaged());
  OneRound round(order_, {file_});
  const absl::Status outcome = TakePartIn(round);
  EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_TRUE(reported_);
  EXPECT_EQ(round.fetched(), 1u);
}

TEST_F(ConnectionTest, NoWorkIsDoneOnAModelThatStaysDamaged) {
  OneRound round(order_, {Damaged()});
  const absl::Status outcome = TakePartIn(round);
  EXPECT_TRUE(absl::IsDataLoss(outcome)) << outcome;
  EXPECT_THAT(std::string(outcome.message()), HasSubstr("another sha256"));
  EXPECT_FALSE(reported_);
}

TEST_F(ConnectionTest, AllModelsOfAnOrderAreFetched) {
  v1::NamedModel& other = *order_.add_others();
  other.set_name("control");
  other.mutable_model()->set_sha256(Sha256Hex(Damaged()));
  other.mutable_model()->set_size(file_.size());
  v1::NamedModel& same = *order_.add_others();
  same.set_name("the model once more");
  *same.mutable_model() = order_.model();
  OneRound round(order_, {file_, Damaged()});
  const absl::Status outcome = TakePartIn(round);
  EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_TRUE(reported_);
  EXPECT_EQ(round.fetched(), 2u);
}

TEST_F(ConnectionTest, AFailedRunIsAnErrorWithItsReason) {
  OneRound round(order_, {file_});
  round.failure = "training diverged";
  const absl::Status outcome = TakePartIn(round);
  EXPECT_TRUE(absl::IsAborted(outcome)) << outcome;
  EXPECT_THAT(std::string(outcome.message()), HasSubstr("training diverged"));
  EXPECT_TRUE(reported_);
}

}  // namespace
}  // namespace leeway
