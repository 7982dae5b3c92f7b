// A worker program that does what it should, and others that do not. The programs are
// shell scripts: what they answer stands here.
#include "client/process_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sums.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kStart[] = R"(
say() { echo "$1" >&3; }
answer() { say "{\"type\":\"answer\",\"order\":$number,\"numbers\":{$1}}"; }
read -r line <&3
say '{"type":"hello","version":1,"clients":[{"name":"a","examples":3},{"name":"b","examples":5}],"features":[2]}'
read -r line <&3
say '{"type":"ready"}'
while read -r line <&3; do
  number=${line#*\"order\":}; number=${number%%,*}
  case "$line" in *finished*) exit 0 ;; *'"client":"a"'*) client=a ;; *) client=b ;; esac
)";
constexpr char kEnd[] = "\ndone\n";

class ProcessWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/process_worker_test_", ::getpid());
    std::filesystem::create_directories(folder_);
    options_.start = absl::Seconds(60);
    options_.deadline = absl::Seconds(60);
    welcome_.mutable_model()->mutable_linear_regression()->set_intercept(false);
    welcome_.set_seed(7);
    order_.set_run_id("run");
    order_.set_round(4);
    order_.set_attempt(1);
    order_.add_clients(0);
    order_.add_clients(1);
    order_.mutable_model()->set_sha256("abc");
    Ask(kLoss, *order_.mutable_task());
    Ask(kLossSquared, *order_.mutable_task());
    order_.mutable_task()->set_groups(1);
    order_.mutable_task()->set_weighting(v1::EXAMPLES);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Starts a worker that does `body` for each order.
  void Start(const std::string& body) { StartScript(absl::StrCat(kStart, body, kEnd)); }
  void StartScript(const std::string& script) {
    std::ofstream(folder_ + "/worker.sh") << script;
    options_.command = absl::StrCat("cd ", folder_, " && . ./worker.sh");
    auto worker = ProcessWorker::Start(options_);
    started_ = worker.status();
    if (worker.ok()) worker_ = *std::move(worker);
  }

  // What becomes of each client of the order.
  std::map<size_t, absl::StatusOr<AnyReport>> Compute() {
    std::map<size_t, absl::StatusOr<AnyReport>> outcomes;
    const OrderModels models{.model = std::make_shared<const Parameters>(
                                 Vector<double>(Vector<double>::Constant(2, 0.5))),
                             .others = {}};
    const absl::Status computed =
        worker_->Compute(order_, models, [&](size_t place, absl::StatusOr<AnyReport> report) {
          outcomes.emplace(place, std::move(report));
        });
    EXPECT_TRUE(computed.ok()) << computed;
    return outcomes;
  }
  static std::vector<double> Numbers(const absl::StatusOr<AnyReport>& report) {
    return report.ok() ? std::get<ClientReport<double>>(*report).numbers : std::vector<double>();
  }

  std::string folder_;
  ProcessWorkerOptions options_;
  v1::Welcome welcome_;
  v1::Order order_;
  absl::Status started_;
  std::unique_ptr<ProcessWorker> worker_;
};

TEST_F(ProcessWorkerTest, NumbersComeByNameAndWhatFollowsIsFilledIn) {
  Start("[ $client = a ] && answer '\"loss\":2.5' || answer '\"loss\":-3,\"more\":1'");
  ASSERT_TRUE(started_.ok()) << started_;
  EXPECT_EQ(worker_->clients(), 2u);
  EXPECT_EQ(worker_->ClientId(1), "b");
  EXPECT_EQ(worker_->Hosted().schema().feature_shape(0), 2u);
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  const auto outcomes = Compute();
  EXPECT_THAT(Numbers(outcomes.at(0)), ElementsAre(2.5, 6.25));
  EXPECT_THAT(Numbers(outcomes.at(1)), ElementsAre(-3, 9));
  EXPECT_EQ(std::get<ClientReport<double>>(*outcomes.at(1)).weight, 5u);
}

TEST_F(ProcessWorkerTest, AMetricIsOnlyTheWorkersToTell) {
  Ask("metric/auc_above", *order_.mutable_task());
  Start("[ $client = a ] && answer '\"loss\":2,\"metric/auc_above\":0.5' || answer '\"loss\":1'");
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  const auto outcomes = Compute();
  EXPECT_THAT(Numbers(outcomes.at(0)), ElementsAre(2, 4, 0.5));
  EXPECT_THAT(std::string(outcomes.at(1).status().message()),
              HasSubstr("no number 'metric/auc_above'"));
}

TEST_F(ProcessWorkerTest, AnErrorCostsOneClientItsPlace) {
  Start(
      "[ $client = a ] && say '{\"type\":\"error\",\"order\":'$number',\"error\":\"ValueError: "
      "no\"}'"
      " || answer '\"loss\":1'");
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  const auto outcomes = Compute();
  EXPECT_EQ(outcomes.at(0).status().message(), "ValueError: no");
  EXPECT_THAT(Numbers(outcomes.at(1)), ElementsAre(1, 1));
}

TEST_F(ProcessWorkerTest, OneThatIsKilledGetsTheSameOrderAgain) {
  Start("[ -e killed ] || { touch killed; kill -9 $$; }; answer '\"loss\":1'");
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  const auto outcomes = Compute();
  EXPECT_THAT(Numbers(outcomes.at(0)), ElementsAre(1, 1));
  EXPECT_THAT(Numbers(outcomes.at(1)), ElementsAre(1, 1));
}

TEST_F(ProcessWorkerTest, OneThatAlwaysEndsCostsItsClientItsPlace) {
  Start("[ $client = a ] && exit 4; answer '\"loss\":1'");
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  const auto outcomes = Compute();
  EXPECT_THAT(outcomes.at(0).status().message(), HasSubstr("exited with code 4"));
  EXPECT_THAT(Numbers(outcomes.at(1)), ElementsAre(1, 1));
}

TEST_F(ProcessWorkerTest, OneThatHangsIsStartedAgain) {
  options_.deadline = absl::Milliseconds(200);
  Start("[ $client = a ] && read -r line <&3; answer '\"loss\":1'");
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  order_.clear_clients();
  order_.add_clients(0);
  EXPECT_THAT(Compute().at(0).status().message(), HasSubstr("did not answer within 200ms"));
}

TEST_F(ProcessWorkerTest, NonsenseCostsItsClientItsPlace) {
  Start(
      "case $client in a) say 'Traceback (most recent call last)' ;; *) answer '\"loss\":1' ;; "
      "esac");
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  const auto outcomes = Compute();
  EXPECT_THAT(outcomes.at(0).status().message(), HasSubstr("not a JSON object"));
  EXPECT_THAT(Numbers(outcomes.at(1)), ElementsAre(1, 1));
}

TEST_F(ProcessWorkerTest, AMissingNumberAndNaNAreRefused) {
  Start("[ $client = a ] && answer '\"los\":1' || answer '\"loss\":NaN'");
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  const auto outcomes = Compute();
  EXPECT_THAT(outcomes.at(0).status().message(), HasSubstr("no number 'loss'"));
  EXPECT_THAT(outcomes.at(1).status().message(), HasSubstr("not a JSON object"));
}

TEST_F(ProcessWorkerTest, VectorsAreReadFromTheAnswersFile) {
  v1::Sum& drift = Ask(kDrift, *order_.mutable_task(), 2);
  drift.set_unit(0x1p-40);
  drift.set_largest(256);
  // Of the two clients one writes a file, the other one with another shape.
  Start(R"sh(
  file=${line#*\"answer_file\":\"}; file=${file%%\"*}
  if [ $client = a ]; then
    printf 'H\0\0\0\0\0\0\0{"drift@2":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}            ' | head -c 80 > $file
    printf '\0\0\0\0\0\0\340\077\0\0\0\0\0\0\360\277' >> $file
  else
    printf 'H\0\0\0\0\0\0\0{"drift@2":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}}            ' | head -c 80 > $file
    printf '\0\0\0\0\0\0\340\077\0\0\0\0\0\0\360\277\0\0\0\0\0\0\360\277' >> $file
  fi
  answer '"loss":1')sh");
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  const auto outcomes = Compute();
  ASSERT_TRUE(outcomes.at(0).ok()) << outcomes.at(0).status();
  EXPECT_THAT(std::get<ClientReport<double>>(*outcomes.at(0)).vectors, ElementsAre(0.5, -1));
  EXPECT_THAT(outcomes.at(1).status().message(),
              HasSubstr("tensor \"drift@2\" does not have shape [2]"));
}

TEST_F(ProcessWorkerTest, OneThatCannotStartSaysWhy) {
  StartScript("exit 3");
  EXPECT_THAT(started_.message(), HasSubstr("exited with code 3 before it said hello"));
  StartScript("read -r line <&3; echo '{\"type\":\"error\",\"error\":\"no data in x\"}' >&3");
  EXPECT_THAT(started_.message(), HasSubstr("no data in x"));
  StartScript("read -r line <&3; echo '{\"type\":\"hello\",\"version\":2}' >&3");
  EXPECT_THAT(started_.message(), HasSubstr("version is not 1"));
  StartScript("read -r line <&3; echo '{\"type\":\"hello\",\"version\":1,\"clients\":[]}' >&3");
  EXPECT_THAT(started_.message(), HasSubstr("without clients"));
}

TEST_F(ProcessWorkerTest, OneThatComesBackWithOtherClientsIsRefused) {
  StartScript(R"sh(
read -r line <&3
n=3; [ -e again ] && n=4; touch again
echo '{"type":"hello","version":1,"clients":[{"name":"a","examples":'$n'}],"features":[2]}' >&3
read -r line <&3
echo '{"type":"ready"}' >&3
read -r line <&3
)sh");
  ASSERT_TRUE(started_.ok()) << started_;
  ASSERT_TRUE(worker_->Prepare(welcome_).ok());
  order_.clear_clients();
  order_.add_clients(0);
  EXPECT_THAT(Compute().at(0).status().message(), HasSubstr("hosts other clients"));
}

}  // namespace
}  // namespace leeway
