// The messages of docs/worker.md, against the file that the Python side reads, too.
#include "client/worker_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "client/worker_sums.h"
#include "common/rng.h"
#include "common/sums.h"

namespace leeway {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class WorkerMessagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(LEEWAY_VECTORS "/worker-session.json");
    vectors_ = Json::parse(file);
  }
  Json vectors_;
};

// One client of a linear model with two parameters, which the vectors are about.
v1::Welcome TheWelcome() {
  v1::Welcome welcome;
  welcome.set_seed(18446744073709551615u);
  welcome.mutable_model()->set_file("initial.safetensors");
  v1::ModelContents& contents = *welcome.mutable_model()->mutable_contents();
  contents.set_float64(true);
  contents.add_tensors()->set_name("weight");
  contents.mutable_tensors(0)->add_shape(2);
  return welcome;
}

TEST_F(WorkerMessagesTest, WhatTheWorkerSaysIsRead) {
  const auto hosted = ParseWorkerHello(vectors_["hello_reply"].dump());
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  EXPECT_EQ(hosted->clients(0).id(), "clinic_07");
  EXPECT_EQ(hosted->clients(0).examples(), 3u);
  EXPECT_EQ(hosted->schema().feature_shape(0), 2u);
  EXPECT_EQ(ParseWorkerReply(vectors_["prepare_reply"].dump())->type, ReplyType::kReady);
  const auto answer = ParseWorkerReply(vectors_["order_reply"].dump());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->order, vectors_["order"]["order"].get<uint64_t>());
  EXPECT_EQ(answer->numbers.at("loss"), vectors_["order_reply"]["numbers"]["loss"].get<double>());
}

TEST_F(WorkerMessagesTest, WhatTheWorkerIsToldIsAsSpecified) {
  const v1::Welcome welcome = TheWelcome();
  EXPECT_EQ(PrepareMessage(welcome, *LayoutOf(welcome.model(), {})), vectors_["prepare"].dump());
  v1::Task task;
  Ask(kLoss, task);
  Ask(kDrift, task, 4);
  Ask(kDisplacement, task);
  Ask(kLossSquared, task);
  Ask(kDriftSquared, task, 4);
  AskAbove(kAccuracyAbove, 0.5, task);
  AskAbove(kAccuracyAbove, 0.75, task);
  WorkerOrder order;
  order.number = 17;
  order.run = "0123456789abcdef";
  order.round = 5;
  order.attempt = 1;
  order.client = "clinic_07";
  order.rule.set_step_size(0.125);
  order.rule.set_steps(4);
  order.random = Rng(7, 5, ClientKey("clinic_07"), Purpose::kBatchOrder).Name();
  order.model.file = vectors_["order"]["model"]["file"];
  order.model.sha256 = vectors_["order"]["model"]["sha256"];
  order.sums = WorkerSums(task, 2).asked();
  order.answer_file = vectors_["order"]["answer_file"];
  EXPECT_EQ(OrderMessage(order), vectors_["order"].dump());
  const Json control = vectors_["others"]["control"];
  order.others["control"] = {control["file"], control["sha256"]};
  Json with_others = vectors_["order"];
  with_others["others"] = vectors_["others"];
  EXPECT_EQ(OrderMessage(order), with_others.dump());
  EXPECT_EQ(FinishedMessage(""), vectors_["finished"].dump());
  EXPECT_THAT(HelloMessage(), HasSubstr("\"type\":\"hello\",\"oldest\":1,\"newest\":1"));
}

TEST_F(WorkerMessagesTest, NonsenseIsNamed) {
  for (const char* line :
       {"", "1", "[]", "{", "{\"type\":\"hello\",\"version\":1,\"clients\":[{}]}",
        "{\"type\":\"hello\",\"version\":1,\"clients\":[{\"name\":\"a\"}]}",
        "{\"type\":\"hello\",\"version\":1,\"clients\":[{\"name\":\"a\",\"examples\":-1}]}",
        "{\"type\":\"hello\",\"version\":1,\"clients\":[{\"name\":\"a\",\"examples\":0}]}"}) {
    EXPECT_FALSE(ParseWorkerHello(line).ok()) << line;
  }
  for (const char* line : {"", "{}", "{\"type\":\"answer\"}", "{\"type\":\"answer\",\"order\":-1}",
                           "{\"type\":\"answer\",\"order\":1,\"numbers\":[]}"}) {
    EXPECT_FALSE(ParseWorkerReply(line).ok()) << line;
  }
}

}  // namespace
}  // namespace leeway
