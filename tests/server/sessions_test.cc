#include "server/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/digest.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;

struct RecordingSink : OrderSink {
  void Send(const grpc::Slice& common, const v1::Order& own) override {
    const std::string shared(common.begin(), common.end());
    v1::Order order;
    EXPECT_TRUE(order.ParseFromString(shared + own.SerializeAsString()));
    orders.push_back(order);
  }
  void Close(const absl::Status& status) override {
    closed = true;
    end = status;
  }
  std::vector<v1::Order> orders;
  bool closed = false;
  absl::Status end;
};

struct CountingStream : RestingStream {
  void OnOrders() override { ++woken; }
  int woken = 0;
};

v1::Order Welcome() {
  v1::Order order;
  order.mutable_welcome()->set_seed(7);
  return order;
}

v1::JoinRequest Hosting(const std::string& client) {
  v1::JoinRequest request;
  request.add_clients()->set_id(client);
  return request;
}

class SessionsTest : public ::testing::Test {
 protected:
  std::shared_ptr<RecordingSink> Join(SessionId& id) {
    auto sink = std::make_shared<RecordingSink>();
    id = sessions_.NewId();
    sessions_.Add(id, sink, Welcome());
    return sink;
  }
  static ModelPtr MakeFile(const std::string& file) {
    return std::make_shared<Model>(Model{Sha256Hex(file), Buffer(file)});
  }
  void SetRound(uint64_t round, uint32_t groups = 1) {
    v1::Order order;
    order.set_round(round);
    order.mutable_task()->set_groups(groups);
    sessions_.SetRound(order, {MakeFile("the file"), MakeFile("another")});
  }
  Sessions sessions_{nullptr};
};

TEST_F(SessionsTest, EachIsSentTheRoundsOrderWithItsOwnClients) {
  SessionId one = 0, two = 0;
  const auto first = Join(one);
  const auto second = Join(two);
  ASSERT_NE(one, two);
  SetRound(3, 2);
  sessions_.SendOrders({{one, {0, 2}, {1, 0}, {0, 7}}, {two, {}, {}, {}}, {99, {0}, {0}, {}}});
  ASSERT_EQ(first->orders.size(), 2u);
  EXPECT_EQ(first->orders[0].welcome().seed(), 7u);
  EXPECT_EQ(first->orders[1].round(), 3u);
  EXPECT_THAT(first->orders[1].clients(), ElementsAre(0, 2));
  EXPECT_THAT(first->orders[1].groups(), ElementsAre(1, 0));
  EXPECT_THAT(first->orders[1].state_rounds(), ElementsAre(0, 7));
  EXPECT_EQ(second->orders.size(), 1u);  // it has no work
  EXPECT_TRUE(sessions_.Remove(one));
  EXPECT_FALSE(sessions_.Remove(one));
  sessions_.SendOrders({{one, {0}, {0}, {}}});
  EXPECT_EQ(first->orders.size(), 2u);
}

TEST_F(SessionsTest, ServesTheModelsOfTheRoundAndNoOther) {
  EXPECT_TRUE(absl::IsNotFound(sessions_.FindModel("").status()));
  SetRound(1);
  const auto file = sessions_.FindModel(Sha256Hex("the file"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(std::string(file->begin(), file->end()), "the file");
  const auto other = sessions_.FindModel(Sha256Hex("another"));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(std::string(other->begin(), other->end()), "another");
  EXPECT_TRUE(absl::IsNotFound(sessions_.FindModel(Sha256Hex("a third")).status()));
}

TEST_F(SessionsTest, ARestingStreamIsWokenOnceUnlessItIsGone) {
  const auto kept = std::make_shared<CountingStream>();
  const auto gone = std::make_shared<CountingStream>();
  EXPECT_TRUE(sessions_.Rest(kept));
  EXPECT_TRUE(sessions_.Rest(gone));
  sessions_.EndRest(gone.get());
  sessions_.WakeResting();
  sessions_.WakeResting();
  EXPECT_EQ(kept->woken, 1);
  EXPECT_EQ(gone->woken, 0);
  sessions_.Close(absl::UnavailableError("stopping"));
  EXPECT_FALSE(sessions_.Rest(kept));  // nobody would wake it
}

TEST_F(SessionsTest, WhoIsAwayAtTheEndIsAwaitedAndAnswered) {
  SessionId id = 0;
  const auto present = Join(id);
  RecordingSink late;
  EXPECT_FALSE(sessions_.AnswerLate(Hosting("b"), late));
  v1::Order last;
  last.set_finished(true);
  sessions_.Finish(last, {"b"});
  EXPECT_TRUE(present->orders.back().finished());
  EXPECT_TRUE(present->closed);
  EXPECT_TRUE(present->end.ok());
  std::thread returning([&] { EXPECT_TRUE(sessions_.AnswerLate(Hosting("b"), late)); });
  sessions_.AwaitAway(absl::InfiniteDuration());
  returning.join();
  EXPECT_TRUE(late.orders.back().finished());
  EXPECT_TRUE(late.closed);
}

TEST_F(SessionsTest, AStopEndsTheWait) {
  sessions_.Finish(v1::Order(), {"never"});
  sessions_.StopWaiting();
  sessions_.AwaitAway(absl::InfiniteDuration());
}

}  // namespace
}  // namespace leeway
