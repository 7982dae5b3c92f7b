#include "client/run_member.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <string>

#include "common/digest.h"

namespace leeway {
namespace {

// One client, and a model of one number in a file of one byte.
class OneClient : public Worker {
 public:
  v1::JoinRequest Hosted() const override { return {}; }
  size_t clients() const override { return 1; }
  std::string ClientId(uint32_t) const override { return "a"; }
  absl::Status Prepare(const v1::Welcome&) override { return absl::OkStatus(); }
  absl::StatusOr<Parameters> Decode(absl::string_view) const override {
    return Parameters(Vector<double>(Vector<double>::Zero(1)));
  }
  absl::Status Compute(const v1::Order&, const OrderModels&, Take) override {
    return absl::InternalError("not asked here");
  }
};

class RunMemberTest : public ::testing::Test {
 protected:
  RunMemberTest() {
    order_.set_run_id("run");
    order_.set_round(3);
    order_.set_attempt(1);
    order_.add_clients(0);
    order_.mutable_model()->set_sha256(Sha256Hex("m"));
    order_.mutable_model()->set_size(1);
    order_.mutable_model()->set_inline_("m");
    EXPECT_TRUE(member_.Enter(order_).ok());
  }

  absl::StatusOr<Answer> Compute(const v1::Order& order) {
    ++computed_;
    Answer answer;
    answer.header.set_run_id(order.run_id());
    answer.header.set_round(order.round());
    answer.header.set_attempt(order.attempt());
    answer.header.set_base_sha256(order.model().sha256());
    answer.header.add_clients("a");
    return answer;
  }
  int Answered() {
    const absl::StatusOr<bool> answered = member_.Answer(order_);
    EXPECT_TRUE(answered.ok() && *answered) << answered.status();
    return computed_;
  }

  OneClient worker_;
  int computed_ = 0;
  ClientLog log_{nullptr, ""};
  RunMember member_{worker_,
                    [this](Worker&, const v1::Order& order, const OrderModels&, uint64_t) {
                      return Compute(order);
                    },
                    grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials()), log_};
  v1::Order order_;
};

TEST_F(RunMemberTest, AnOrderThatComesAgainIsAnsweredFromMemory) {
  EXPECT_EQ(Answered(), 1);
  order_.set_committed_round(2);  // says nothing about the work
  EXPECT_EQ(Answered(), 1);
}

TEST_F(RunMemberTest, TheSameRoundWithAnotherTaskIsComputedAgain) {
  EXPECT_EQ(Answered(), 1);
  order_.mutable_task()->set_max_norm(1);  // the server came back with other limits
  EXPECT_EQ(Answered(), 2);
  order_.add_groups(1);
  EXPECT_EQ(Answered(), 3);
}

}  // namespace
}  // namespace leeway
