#include "common/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "common/reason.h"
#include "common/rng.h"

namespace leeway {
namespace {

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
  join.set_protocol_version(kProtocolVersion);
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
  join.set_protocol_version(99);
  EXPECT_EQ(CheckJoin(join).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(CheckJoin(join).message()), HasSubstr("same Leeway version"));
  join = GoodJoin();
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

class FoldTest : public ::testing::Test {
 protected:
  FoldTest() {
    shape_.dimension = 4;
    shape_.vectors = 1;
    shape_.scalars = 1;
    shape_.fraction_bits = FractionBits(256, 10);
    values_ = {1.0, -2.0, 3.5, 0.25};
    header_.add_clients("a");
    header_.set_encoding(v1::FLOAT64);
    header_.set_weight(2);
    header_.add_scalars(0.5);
    header_.set_payload_size(32);
  }
  absl::Status Fold(Tally& tally) {
    const absl::string_view bytes(reinterpret_cast<const char*>(values_.data()), 32);
    header_.set_payload_hash(Xxh3(bytes) ^ corrupt_);
    return FoldReport(header_, {reinterpret_cast<const std::byte*>(values_.data()), 32}, shares_, 0,
                      tally);
  }
  TallyShape shape_;
  std::vector<double> values_;
  v1::ReportHeader header_;
  std::vector<GroupShare> shares_ = {{.clients = 1, .weight = 2}};
  uint64_t corrupt_ = 0;
};

TEST_F(FoldTest, AddsTheWeightedReport) {
  Tally tally(shape_);
  ASSERT_TRUE(CheckHeader(header_, shape_, v1::FLOAT64).ok());
  ASSERT_TRUE(Fold(tally).ok());
  EXPECT_EQ(tally.vector(0)[2], 7.0);
  EXPECT_EQ(tally.scalar(0), 1.0);
}

TEST_F(FoldTest, AClientReportsInItsOwnGroupOnly) {
  shape_.groups = 2;
  shares_ = {{}, {.clients = 1, .weight = 2}};
  Tally tally(shape_);
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
  TallyShape shape;
  shape.scalars = 1;
  shape.groups = 2;
  const double scalars[] = {1};
  const auto fold = [&](size_t first, size_t second) {
    Tally sum(shape);
    EXPECT_TRUE(sum.Add<double>(first, 2, scalars, {}).ok());
    EXPECT_TRUE(sum.Add<double>(second, 3, scalars, {}).ok());
    v1::ReportHeader header;
    header.add_clients("a");
    header.add_clients("b");
    header.set_encoding(v1::TALLY);
    const auto* bytes = reinterpret_cast<const std::byte*>(sum.flat().data());
    const size_t size = sum.flat().size() * sizeof(int64_t);
    header.set_payload_hash(Xxh3({reinterpret_cast<const char*>(bytes), size}));
    Tally tally(shape);
    const GroupShare shares[] = {{.clients = 1, .weight = 2}, {.clients = 1, .weight = 3}};
    return FoldReport(header, {bytes, size}, shares, 0, tally);
  };
  EXPECT_TRUE(fold(0, 1).ok());
  EXPECT_EQ(ReasonOf(fold(1, 0)), "wrong_group");  // the other's weight
  EXPECT_EQ(ReasonOf(fold(0, 0)), "wrong_group");
}

TEST(FoldEvaluationTest, TestCountsAreThoseOfTheClient) {
  v1::Task task;
  task.set_evaluate(true);
  task.set_groups(2);
  task.set_max_update(256);
  const ReportLayout layout(task);
  ASSERT_EQ(layout.scalars, 3u);
  const GroupShare shares[] = {{.clients = 1, .weight = 1, .test_examples = 10}, {}};
  Tally tally(layout.Shape(task, 4));
  const auto fold = [&](double tested, double correct, uint64_t targets = 1) {
    v1::ReportHeader header;
    header.add_clients("a");
    header.set_encoding(v1::FLOAT64);
    header.set_weight(1);
    header.set_payload_hash(Xxh3(""));
    std::vector<double> scalars(3);
    scalars[static_cast<size_t>(layout.test_examples)] = tested;
    scalars[static_cast<size_t>(layout.correct)] = correct;
    header.mutable_scalars()->Add(scalars.begin(), scalars.end());
    return FoldEvaluation(header, {}, shares, layout, targets, tally);
  };
  for (const auto& [tested, correct] : std::vector<std::pair<double, double>>{
           {-1000, -1000}, {10, -1}, {10, 11}, {11, 5}, {5e7, 5e7}, {-5, 0}}) {
    const absl::Status status = fold(tested, correct);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tested << " " << correct;
    EXPECT_EQ(ReasonOf(status), "test_examples") << status;
  }
  EXPECT_EQ(tally.clients(), 0u);
  EXPECT_TRUE(fold(10, 7).ok());
  EXPECT_TRUE(fold(80, 80, 8).ok());  // text: a target for every token
  EXPECT_FALSE(fold(81, 80, 8).ok());
  EXPECT_EQ(tally.clients(), 2u);
}

TEST_F(FoldTest, RefusesWhatDoesNotFit) {
  Tally tally(shape_);
  corrupt_ = 1;
  EXPECT_EQ(Fold(tally).code(), absl::StatusCode::kDataLoss);
  corrupt_ = 0;
  header_.set_weight(3);
  EXPECT_EQ(Fold(tally).code(), absl::StatusCode::kInvalidArgument);
  header_.set_weight(2);
  values_[1] = 1e9;
  EXPECT_EQ(Fold(tally).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(tally.clients(), 0u);

  header_.set_payload_size(31);
  EXPECT_FALSE(CheckHeader(header_, shape_, v1::FLOAT64).ok());
  header_.set_payload_size(32);
  EXPECT_FALSE(CheckHeader(header_, shape_, v1::FLOAT32).ok());  // the run is float32
  header_.add_clients("b");
  EXPECT_FALSE(CheckHeader(header_, shape_, v1::FLOAT64).ok());  // two clients need a TALLY
  header_.set_encoding(v1::ENCODING_UNSPECIFIED);
  EXPECT_FALSE(CheckHeader(header_, shape_, v1::FLOAT64).ok());
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
