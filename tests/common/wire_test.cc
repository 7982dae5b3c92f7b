#include "common/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "common/reason.h"
#include "common/rng.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Collects an upload; room for `limit` bytes.
class Collector : public PayloadSink {
 public:
  explicit Collector(size_t limit) : limit_(limit) {}
  size_t MostNames() const override { return 1000; }
  absl::Status OnHeader(v1::ReportHeader h) override {
    header = std::move(h);
    ++headers;
    return absl::OkStatus();
  }
  absl::StatusOr<std::byte*> Room(size_t bytes) override {
    if (payload.size() + bytes > limit_) return absl::ResourceExhaustedError("no room");
    payload.resize(payload.size() + bytes);
    return reinterpret_cast<std::byte*>(payload.data() + payload.size() - bytes);
  }
  v1::ReportHeader header;
  int headers = 0;
  std::string payload;

 private:
  size_t limit_;
};

grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

v1::JoinRequest GoodJoin() {
  v1::JoinRequest join;
  join.set_oldest_version(kOldestProtocol);
  join.set_newest_version(kNewestProtocol);
  join.mutable_schema()->add_feature_shape(30);
  v1::HostedClient& client = *join.add_clients();
  client.set_id("a");
  client.set_examples(10);
  return join;
}

TEST(WireTest, ReportsSurviveTheRoundTrip) {
  for (const size_t size : {size_t{0}, size_t{8}, kChunkBytes, kChunkBytes + 1, 3 * kChunkBytes}) {
    std::string payload(size, 'x');
    for (size_t i = 0; i < size; ++i) payload[i] = static_cast<char>(i * 7919 >> 3);
    v1::ReportHeader header;
    header.set_run_id("r");
    header.add_clients("a");
    header.set_payload_size(size);
    const auto messages = EncodeReport(header, grpc::Slice(payload));
    Collector sink(size);
    for (const grpc::ByteBuffer& message : messages) {
      ASSERT_TRUE(ParsePart(message, sink).ok());
      EXPECT_LE(message.Length(), kChunkBytes + 1024);
    }
    EXPECT_EQ(sink.headers, 1);
    EXPECT_EQ(sink.header.run_id(), "r");
    EXPECT_EQ(sink.payload, payload);
  }
}

TEST(WireTest, PartsAreOrdinaryProtobuf) {
  v1::Part part;
  part.mutable_header()->set_round(7);
  part.set_data("payload");
  Collector sink(100);
  ASSERT_TRUE(ParsePart(Bytes(part.SerializeAsString()), sink).ok());
  EXPECT_EQ(sink.header.round(), 7u);
  EXPECT_EQ(sink.payload, "payload");
}

TEST(WireTest, CutOrRandomBytesAreRefusedOrHarmless) {
  v1::Part part;
  part.mutable_header()->add_clients("someone");
  part.set_data(std::string(200, 'd'));
  const std::string whole = part.SerializeAsString();
  for (size_t cut = 1; cut < whole.size(); ++cut) {
    Collector sink(1000);
    // Protobuf allows a cut between two fields; everywhere else it is an error.
    const absl::Status status = ParsePart(Bytes(whole.substr(0, cut)), sink);
    EXPECT_TRUE(!status.ok() || sink.payload.empty()) << cut;
  }
  Rng rng(1, 0, 0, Purpose::kTest);
  for (int i = 0; i < 20000; ++i) {
    std::string noise;
    noise.resize(rng.Below(40));
    for (char& c : noise) c = static_cast<char>(rng.Next64());
    Collector sink(64);
    ParsePart(Bytes(noise), sink).IgnoreError();
    EXPECT_LE(sink.payload.size(), 64u);
  }
}

TEST(WireTest, ChunksShareTheFileAndComeBackWhole) {
  const std::string file(3000, 'm');
  const grpc::Slice slice(file);
  std::vector<std::byte> out(3000);
  size_t received = 0;
  for (size_t begin = 0; begin < file.size(); begin += 700) {
    const size_t n = std::min<size_t>(700, file.size() - begin);
    const auto got =
        ParseChunk(EncodeChunk(slice, begin, n), out.data() + received, out.size() - received);
    ASSERT_TRUE(got.ok());
    received += *got;
  }
  EXPECT_EQ(received, file.size());
  EXPECT_FALSE(ParseChunk(EncodeChunk(slice, 0, 700), out.data(), 699).ok());
}

TEST(WireTest, JoinRequestsAreChecked) {
  EXPECT_TRUE(CheckJoin(GoodJoin()).ok());
  v1::JoinRequest join = GoodJoin();
  join.clear_clients();
  EXPECT_FALSE(CheckJoin(join).ok());
  join = GoodJoin();
  *join.add_clients() = join.clients(0);
  EXPECT_THAT(std::string(CheckJoin(join).message()), HasSubstr("twice"));
  join = GoodJoin();
  join.mutable_clients(0)->set_examples(0);
  EXPECT_FALSE(CheckJoin(join).ok());
  for (const char* name : {"", "a\nb", "\x7f"}) {
    join = GoodJoin();
    join.mutable_clients(0)->set_id(name);
    EXPECT_FALSE(CheckJoin(join).ok());
  }
  join = GoodJoin();
  join.mutable_schema()->add_feature_shape(uint64_t{1} << 60);
  EXPECT_FALSE(CheckJoin(join).ok());
}

TEST(WireTest, TheNewestCommonVersionIsChosen) {
  const auto choose = [](uint32_t oldest, uint32_t newest) {
    v1::JoinRequest join = GoodJoin();
    join.set_oldest_version(oldest);
    join.set_newest_version(newest);
    const absl::StatusOr<uint32_t> chosen = ChooseProtocol(join);
    EXPECT_EQ(CheckJoin(join).ok(), chosen.ok());
    return chosen;
  };
  EXPECT_EQ(*choose(kOldestProtocol, kNewestProtocol), kNewestProtocol);
  EXPECT_EQ(*choose(1, kNewestProtocol + 7), kNewestProtocol);
  EXPECT_EQ(*choose(kNewestProtocol, 0), kNewestProtocol);  // without a newest: that one alone
  EXPECT_EQ(*choose(1, kOldestProtocol), kOldestProtocol);

  static_assert(kOldestProtocol == 3 && kNewestProtocol == 3);
  for (const uint32_t newest : {2u, 0u}) {
    const absl::Status older = choose(2, newest).status();
    EXPECT_EQ(older.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(older), "protocol_version");
    EXPECT_THAT(std::string(older.message()),
                AllOf(HasSubstr("version 2 "), HasSubstr("server 3;"), HasSubstr("process's")));
  }
  const absl::Status newer = choose(4, 9).status();
  EXPECT_EQ(newer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(newer.message()),
              AllOf(HasSubstr("version 4 to 9 "), HasSubstr("server 3;"), HasSubstr("server's")));
}

absl::Span<const std::byte> AsBytes(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// What a server makes of one client's report.
absl::Status FoldOne(const NamedReport<>& report, const std::vector<GroupShare>& shares,
                     const TaskSums& sums, Tally& tally, const ReportLimits& limits = {}) {
  v1::ReportHeader header;
  header.add_clients("a");
  const std::string payload = report.Write(header);
  header.set_payload_hash(Xxh3(payload));
  const absl::Status checked = CheckHeader(header, sums, v1::FLOAT64);
  EXPECT_TRUE(checked.ok()) << checked;
  return FoldReport(header, AsBytes(payload), shares, sums, limits, tally);
}

// What a server makes of the sum of several clients' reports.
absl::Status FoldSum(const Tally& sum, const std::vector<GroupShare>& shares, const TaskSums& sums,
                     Tally& tally, const ReportLimits& limits = {}) {
  v1::ReportHeader header;
  for (const GroupShare& share : shares) {
    for (uint64_t c = 0; c < share.clients; ++c) {
      header.add_clients("c" + std::to_string(header.clients_size()));
    }
  }
  header.set_encoding(v1::TALLY);
  const std::string payload(reinterpret_cast<const char*>(sum.flat().data()),
                            sum.flat().size() * sizeof(int64_t));
  header.set_payload_size(payload.size());
  header.set_payload_hash(Xxh3(payload));
  const absl::Status checked = CheckHeader(header, sums, v1::FLOAT64);
  EXPECT_TRUE(checked.ok()) << checked;
  return FoldReport(header, AsBytes(payload), shares, sums, limits, tally);
}

v1::Task Training(uint32_t groups = 1) {
  v1::Task task;
  task.set_groups(groups);
  for (const char* name : {kDisplacement, kLoss, kLossSquared}) Ask(name, task);
  SetRange(256, 10, task);
  return task;
}

class FoldTest : public ::testing::Test {
 protected:
  explicit FoldTest(uint32_t groups = 1) : sums_(Training(groups), 4) {
    header_.add_clients("a");
    Write();
  }
  void Write() {
    NamedReport<> report(sums_, 2);
    report.Set(kDisplacement, displacement_).Set(kLoss, 0.5).Derive();
    payload_ = report.Write(header_);
  }
  absl::Status Fold(Tally& tally, const ReportLimits& limits = {}) {
    header_.set_payload_hash(Xxh3(payload_) ^ corrupt_);
    return FoldReport(header_, AsBytes(payload_), shares_, sums_, limits, tally);
  }
  TaskSums sums_;
  Vector<double> displacement_{{1.0, -2.0, 3.5, 0.25}};
  v1::ReportHeader header_;
  std::string payload_;
  std::vector<GroupShare> shares_ = {{.clients = 1, .weight = 2}};
  uint64_t corrupt_ = 0;
};

TEST_F(FoldTest, AddsTheWeightedReportAndWhatFollowsFromIt) {
  Tally tally(sums_.shape());
  ASSERT_EQ(header_.numbers_size(), 1);  // the square of the loss is not sent
  ASSERT_TRUE(CheckHeader(header_, sums_, v1::FLOAT64).ok());
  ASSERT_TRUE(Fold(tally).ok());
  EXPECT_EQ(VectorIn(tally, sums_, kDisplacement)[2], 7.0);
  EXPECT_EQ(NumberIn(tally, sums_, kLoss), 1.0);
  EXPECT_EQ(NumberIn(tally, sums_, kLossSquared), 0.5);
}

TEST_F(FoldTest, AReportHasAsManyNumbersAsAreSent) {
  header_.add_numbers(0.25);
  EXPECT_EQ(ReasonOf(CheckHeader(header_, sums_, v1::FLOAT64)), "wrong_length");
  header_.clear_numbers();
  EXPECT_EQ(ReasonOf(CheckHeader(header_, sums_, v1::FLOAT64)), "wrong_length");
}

TEST_F(FoldTest, ADisplacementLongerThanTheLimitIsRefused) {
  Tally tally(sums_.shape());
  const double norm = displacement_.norm();
  const absl::Status status = Fold(tally, {.max_norm = 0.999 * norm});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ReasonOf(status), "norm");
  EXPECT_EQ(tally.clients(), 0u);
  EXPECT_TRUE(Fold(tally, {.max_norm = norm}).ok());
  // Of a sum, the norm of the mean.
  Tally sum(sums_.shape());
  NamedReport<> report(sums_, 2);
  report.Set(kDisplacement, displacement_);
  ASSERT_TRUE(report.AddTo(sum).ok());
  ASSERT_TRUE(report.AddTo(sum).ok());
  shares_ = {{.clients = 2, .weight = 4}};
  EXPECT_EQ(ReasonOf(FoldSum(sum, shares_, sums_, tally, {.max_norm = 0.999 * norm})), "norm");
  EXPECT_TRUE(FoldSum(sum, shares_, sums_, tally, {.max_norm = norm}).ok());
}

class GroupedFoldTest : public FoldTest {
 protected:
  GroupedFoldTest() : FoldTest(2) {}
};

TEST_F(GroupedFoldTest, AClientReportsInItsOwnGroupOnly) {
  shares_ = {{}, {.clients = 1, .weight = 2}};
  Tally tally(sums_.shape());
  for (const uint32_t group : {0u, 2u}) {
    header_.set_group(group);
    const absl::Status status = Fold(tally);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(status), "wrong_group") << status;
  }
  EXPECT_EQ(tally.clients(), 0u);
  header_.set_group(1);
  ASSERT_TRUE(Fold(tally).ok());
  EXPECT_EQ(tally.clients(1), 1u);
}

// Two clients, one in each group, as one sum.
TEST(FoldSumTest, EachGroupHoldsItsOwnClients) {
  v1::Task task;
  task.set_groups(2);
  Ask(kLoss, task);
  const TaskSums sums(task, 0);
  const auto fold = [&](size_t first, size_t second) {
    Tally sum(sums.shape());
    EXPECT_TRUE(NamedReport<>(sums, 2).Set(kLoss, 1).AddTo(sum, first).ok());
    EXPECT_TRUE(NamedReport<>(sums, 3).Set(kLoss, 1).AddTo(sum, second).ok());
    Tally tally(sums.shape());
    return FoldSum(sum, {{.clients = 1, .weight = 2}, {.clients = 1, .weight = 3}}, sums, tally);
  };
  EXPECT_TRUE(fold(0, 1).ok());
  EXPECT_EQ(ReasonOf(fold(1, 0)), "wrong_group");  // the other's weight
  EXPECT_EQ(ReasonOf(fold(0, 0)), "wrong_group");
}

TEST(FoldNumbersTest, TestCountsAreThoseOfTheClient) {
  v1::Task task;
  task.set_groups(2);
  for (const char* name : {kTestExamples, kTestLoss, kTestCorrect}) Ask(name, task);
  const TaskSums sums(task, 4);
  ASSERT_EQ(sums.sent_numbers(), 3u);
  const std::vector<GroupShare> shares = {{.clients = 1, .weight = 1, .test_examples = 10}, {}};
  // Once alone, once as a sum; neither changes the tally where it is refused.
  const auto fold = [&](double tested, double correct, uint64_t targets = 1) {
    NamedReport<> report(sums);
    report.Set(kTestExamples, tested).Set(kTestCorrect, correct);
    Tally tally(sums.shape());
    const absl::Status alone = FoldOne(report, shares, sums, tally, {.targets = targets});
    EXPECT_EQ(tally.clients(), alone.ok() ? 1u : 0u);
    task.mutable_sums(0)->set_smallest(-1e9);  // so that it can be forged
    task.mutable_sums(2)->set_smallest(-1e9);
    Tally sum(TaskSums(task, 4).shape());
    EXPECT_TRUE(report.AddTo(sum).ok());
    const absl::Status summed = FoldSum(sum, shares, sums, tally, {.targets = targets});
    EXPECT_EQ(tally.clients(), alone.ok() && summed.ok() ? 2u : 0u);
    EXPECT_EQ(alone.ok(), summed.ok());
    if (tested >= 0 && correct >= 0) {  // else a number is out of its own range already
      EXPECT_EQ(ReasonOf(alone), ReasonOf(summed));
    }
    return alone;
  };
  for (const auto& [tested, correct] :
       std::vector<std::pair<double, double>>{{10, 11}, {11, 5}, {5e7, 5e7}}) {
    const absl::Status status = fold(tested, correct);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tested << " " << correct;
    EXPECT_EQ(ReasonOf(status), "test_examples") << status;
  }
  for (const auto& [tested, correct] :
       std::vector<std::pair<double, double>>{{-1000, -1000}, {10, -1}, {-5, 0}}) {
    const absl::Status status = fold(tested, correct);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tested << " " << correct;
    EXPECT_EQ(ReasonOf(status), "number_range") << status;
  }
  EXPECT_TRUE(fold(10, 7).ok());
  EXPECT_TRUE(fold(80, 80, 8).ok());  // text: a target for every token
  EXPECT_FALSE(fold(81, 80, 8).ok());
}

// By counts a server finds extremes over clients: one client that counts as many would
// decide alone.
TEST(FoldNumbersTest, ACountIsNoughtOrOne) {
  v1::Task task;
  Ask(kLoss, task);
  AskAbove(kSmoothnessAbove, 0.5, task);
  const TaskSums sums(task, 4);
  v1::Task unlimited = task;
  for (v1::Sum& sum : *unlimited.mutable_sums()) {
    sum.set_smallest(-1e6);
    sum.set_largest(1e6);
  }
  const TaskSums forger(unlimited, 4);
  for (const double count : {-100.0, 2.0}) {
    Tally tally(sums.shape());
    NamedReport<> report(forger);
    report.Set(kSmoothnessAbove, count);
    const absl::Status alone = FoldOne(report, {{.clients = 1, .weight = 1}}, sums, tally);
    EXPECT_EQ(alone.code(), absl::StatusCode::kInvalidArgument) << alone;
    EXPECT_EQ(ReasonOf(alone), "number_range");
    EXPECT_THAT(std::string(alone.message()), HasSubstr("smoothness_above is "));
    // Beside an honest client: 2 + 1 of 2 clients, or less than none.
    Tally sum(forger.shape());
    ASSERT_TRUE(report.AddTo(sum).ok());
    ASSERT_TRUE(NamedReport<>(forger).Set(kSmoothnessAbove, 1).AddTo(sum).ok());
    const absl::Status summed = FoldSum(sum, {{.clients = 2, .weight = 2}}, sums, tally);
    EXPECT_EQ(summed.code(), absl::StatusCode::kOutOfRange) << summed;
    EXPECT_EQ(ReasonOf(summed), "impossible_sum");
    EXPECT_THAT(std::string(summed.message()), HasSubstr("smoothness_above of group 0"));
    EXPECT_EQ(tally.clients(), 0u);
  }
  for (const double count : {0.0, 1.0}) {
    Tally tally(sums.shape());
    NamedReport<> report(sums);
    report.Set(kSmoothnessAbove, count);
    EXPECT_TRUE(FoldOne(report, {{.clients = 1, .weight = 1}}, sums, tally).ok());
  }
}

// A process that adds up its clients' losses cannot make them look more alike than any
// losses with that sum are.
TEST(FoldNumbersTest, SquaresAreAtLeastTheSquareOfTheMean) {
  v1::Task task;
  for (const char* name : {kLoss, kLossSquared}) Ask(name, task);
  const TaskSums sums(task, 4);
  const auto fold = [&](double squares) {  // losses 1 and 4 of weights 3 and 1: 7 in all
    Tally sum(sums.shape());
    EXPECT_TRUE(NamedReport<>(sums, 3).Set(kLoss, 1).AddTo(sum).ok());
    EXPECT_TRUE(NamedReport<>(sums, 1).Set(kLoss, 4).Set(kLossSquared, squares).AddTo(sum).ok());
    Tally tally(sums.shape());
    const absl::Status status = FoldSum(sum, {{.clients = 2, .weight = 4}}, sums, tally);
    EXPECT_EQ(tally.clients(), status.ok() ? 2u : 0u);
    return status;
  };
  EXPECT_TRUE(fold(3 * 1 + 16).ok());      // what they are
  EXPECT_TRUE(fold(7 * 7 / 4.0).ok());     // if all were equal
  const absl::Status status = fold(12.2);  // 12.25 at least
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), "impossible_sum");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("loss is 7"), HasSubstr("loss_squared 12.2")));
}

// Alone and in a sum, a report leaves the same bits.
TEST(FoldNumbersTest, AloneOrSummedTheBitsAreTheSame) {
  v1::Task task;
  for (const char* name : {kDisplacement, kGradient}) Ask(name, task);
  for (const char* name : {kGradientSquared, kLoss, kLossSquared, kWeight}) Ask(name, task);
  SetRange(256, 100, task);
  const TaskSums sums(task, 4);
  Rng rng(1, 0, 0, Purpose::kTest);
  Tally apart(sums.shape()), sum(sums.shape()), together(sums.shape());
  std::vector<GroupShare> all = {{}};
  for (uint64_t weight = 1; weight < 6; ++weight) {
    NamedReport<> report(sums, weight);
    for (double& x : report.report().vectors) x = rng.Normal();
    report.Set(kLoss, rng.Normal()).Derive();
    const std::vector<GroupShare> own = {{.clients = 1, .weight = weight}};
    ASSERT_TRUE(FoldOne(report, own, sums, apart).ok());
    ASSERT_TRUE(report.AddTo(sum).ok());
    ++all[0].clients;
    all[0].weight += weight;
  }
  ASSERT_TRUE(FoldSum(sum, all, sums, together).ok());
  EXPECT_EQ(std::vector<int64_t>(apart.flat().begin(), apart.flat().end()),
            std::vector<int64_t>(together.flat().begin(), together.flat().end()));
}

TEST_F(FoldTest, RefusesWhatDoesNotFit) {
  Tally tally(sums_.shape());
  corrupt_ = 1;
  EXPECT_EQ(Fold(tally).code(), absl::StatusCode::kDataLoss);
  corrupt_ = 0;
  header_.set_weight(3);
  EXPECT_EQ(Fold(tally).code(), absl::StatusCode::kInvalidArgument);
  header_.set_weight(2);
  displacement_[1] = 1e9;
  Write();
  EXPECT_EQ(Fold(tally).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(tally.clients(), 0u);

  header_.set_payload_size(31);
  EXPECT_FALSE(CheckHeader(header_, sums_, v1::FLOAT64).ok());
  header_.set_payload_size(32);
  EXPECT_FALSE(CheckHeader(header_, sums_, v1::FLOAT32).ok());  // the run is float32
  header_.add_clients("b");
  EXPECT_FALSE(CheckHeader(header_, sums_, v1::FLOAT64).ok());  // two clients need a TALLY
  header_.set_encoding(v1::ENCODING_UNSPECIFIED);
  EXPECT_FALSE(CheckHeader(header_, sums_, v1::FLOAT64).ok());
}

TEST(WireTest, AHeaderWithMoreNamesThanTheRunHasIsNotTakenApart) {
  const auto part = [](int names) {
    v1::Part upload;
    for (int i = 0; i < names; ++i) upload.mutable_header()->add_clients("e");
    return Bytes(upload.SerializeAsString());
  };
  Collector collector(0);
  EXPECT_EQ(ReasonOf(ParsePart(part(4'000'000), collector)), "too_many_names");
  EXPECT_EQ(collector.headers, 0);
  v1::Part failures;
  for (int i = 0; i < 100'000; ++i) failures.mutable_header()->add_failures();
  EXPECT_EQ(ReasonOf(ParsePart(Bytes(failures.SerializeAsString()), collector)), "too_many_names");
  EXPECT_EQ(collector.headers, 0);
  v1::Part long_names;
  for (int i = 0; i < 1000; ++i) {
    long_names.mutable_header()->add_clients(std::string(256, 'e'));
  }
  EXPECT_TRUE(ParsePart(Bytes(long_names.SerializeAsString()), collector).ok());
  EXPECT_EQ(collector.header.clients_size(), 1000);
}

TEST(WireTest, AProcessMayHostAMillionClientsButNotMoreThanTheyCanBe) {
  v1::JoinRequest join = GoodJoin();
  join.clear_clients();
  for (int i = 0; i < 1'000'000; ++i) {
    v1::HostedClient& client = *join.add_clients();
    client.set_id("c" + std::to_string(i));
    client.set_examples(100);
  }
  const std::string bytes = join.SerializeAsString();
  EXPECT_LT(bytes.size(), kMaxMessageBytes);
  const absl::StatusOr<v1::JoinRequest> parsed = ParseJoin(Bytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(CheckJoin(*parsed).ok());
  std::string empty;
  for (size_t i = 0; i < kMaxMessageBytes / 2; ++i) empty += std::string("\x1a\0", 2);
  EXPECT_EQ(ReasonOf(ParseJoin(Bytes(empty)).status()), "too_many_names");
}

}  // namespace
}  // namespace leeway
