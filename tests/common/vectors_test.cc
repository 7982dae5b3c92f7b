// The byte-level vectors of docs/wire-format.md (tests/vectors, made by Python from whole numbers
// and fractions), read and written by the C++ code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/encoding.h"
#include "common/model_file.h"
#include "common/rng.h"
#include "common/sums.h"
#include "common/wire.h"

namespace leeway {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAreArray;

Json Load(const std::string& name) {
  std::ifstream in(absl::StrCat(LEEWAY_VECTORS, "/", name, ".json"));
  EXPECT_TRUE(in.good()) << name;
  return Json::parse(in);
}

std::string Bytes(const Json& hexadecimal) {
  return absl::HexStringToBytes(hexadecimal.get<std::string>());
}

absl::Span<const std::byte> AsBytes(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

uint64_t Hash(const Json& with_hash) {
  return std::stoull(with_hash["payload_hash"].get<std::string>(), nullptr, 16);
}

template <typename T>
std::string BytesOf(absl::Span<const T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

v1::Encoding EncodingOf(const Json& name) {
  v1::Encoding encoding = v1::ENCODING_UNSPECIFIED;
  v1::Encoding_Parse(name.get<std::string>(), &encoding);
  return encoding;
}

// Numbers, vectors and the columns of matrices, one after the other.
void Flatten(const Json& value, std::vector<double>& out) {
  if (value.is_number()) out.push_back(value.get<double>());
  if (value.is_array()) {
    for (const Json& entry : value) Flatten(entry, out);
  }
}

v1::Task TaskOf(const Json& tally) {
  v1::Task task;
  task.set_groups(tally["groups"].get<uint32_t>());
  for (const Json& asked : tally["sums"]) {
    v1::Sum& sum = *task.add_sums();
    sum.set_name(asked["name"].get<std::string>());
    sum.set_steps(asked["steps"].get<uint32_t>());
    v1::SumShape shape = v1::SUM_SHAPE_UNSPECIFIED;
    v1::SumShape_Parse(asked["shape"].get<std::string>(), &shape);
    sum.set_shape(shape);
    sum.set_unit(asked.value("unit", 0.0));
    sum.set_largest(asked["largest"].get<double>());
    sum.set_smallest(asked.value("smallest", 0.0));
  }
  return task;
}

// The number of parameters that a tally's vectors are for.
size_t DimensionOf(const Json& tally) {
  for (size_t i = 0; i < tally["sums"].size(); ++i) {
    if (tally["sums"][i]["shape"] != "NUMBER") return tally["clients"][0]["values"][i].size();
  }
  return 0;
}

// The numbers (or all else) of one client, in the task's order.
std::vector<double> ValuesOf(const Json& tally, const Json& client, bool numbers) {
  std::vector<double> out;
  for (size_t i = 0; i < tally["sums"].size(); ++i) {
    if ((tally["sums"][i]["shape"] == "NUMBER") == numbers) Flatten(client["values"][i], out);
  }
  return out;
}

void ExpectTotals(const Json& tally, const TaskSums& sums, const Tally& read) {
  for (size_t g = 0; g < read.shape().groups; ++g) {
    std::vector<double> numbers;
    std::vector<double> vectors;
    for (const Json& asked : tally["sums"]) {
      Flatten(tally["totals"][g][asked["name"].get<std::string>()],
              asked["shape"] == "NUMBER" ? numbers : vectors);
    }
    ASSERT_EQ(numbers.size(), sums.numbers());
    ASSERT_EQ(vectors.size(), sums.vectors() * read.shape().dimension);
    for (size_t i = 0; i < numbers.size(); ++i) EXPECT_DOUBLE_EQ(read.number(g, i), numbers[i]);
    for (size_t k = 0; k < sums.vectors(); ++k) {
      const Vector<double> vector = read.vector(g, k);
      for (size_t j = 0; j < read.shape().dimension; ++j) {
        EXPECT_DOUBLE_EQ(vector[static_cast<Eigen::Index>(j)],
                         vectors[k * read.shape().dimension + j]);
      }
    }
  }
}

void CheckTally(const Json& tally) {
  SCOPED_TRACE(tally["name"].get<std::string>());
  const v1::Task task = TaskOf(tally);
  ASSERT_TRUE(CheckSums(task).ok()) << CheckSums(task);
  const TaskSums sums(task, DimensionOf(tally));
  const auto integers = tally["integers"].get<std::vector<int64_t>>();
  const std::string payload = Bytes(tally["payload"]);

  // Written: the clients' reports, added up.
  Tally written(sums.shape());
  std::vector<GroupShare> shares(sums.shape().groups);
  v1::ReportHeader header;
  for (const Json& client : tally["clients"]) {
    const auto group = client["group"].get<size_t>();
    const auto weight = client["weight"].get<uint64_t>();
    const absl::Status added = written.Add<double>(group, weight, ValuesOf(tally, client, true),
                                                   ValuesOf(tally, client, false));
    ASSERT_TRUE(added.ok()) << added;
    shares[group].clients += 1;
    shares[group].weight += weight;
    shares[group].test_examples += 1;
    header.add_clients(absl::StrCat("client ", header.clients_size()));
  }
  EXPECT_THAT(written.flat(), ElementsAreArray(integers));
  EXPECT_EQ(BytesOf(written.flat()), payload);

  // Read: as the server does.
  header.set_encoding(v1::TALLY);
  header.set_payload_size(payload.size());
  header.set_payload_hash(Hash(tally));
  ASSERT_TRUE(CheckHeader(header, sums, v1::FLOAT64).ok());
  Tally read(sums.shape());
  const absl::Status folded = FoldReport(header, AsBytes(payload), shares, sums, {}, read);
  ASSERT_TRUE(folded.ok()) << folded;
  ExpectTotals(tally, sums, read);
}

TEST(VectorsTest, Tallies) {
  for (const Json& tally : Load("tallies")) CheckTally(tally);
  CheckTally(Load("example")["tally"]);
}

// The report of the worked example's client becomes its tally, with the number that is not sent.
TEST(VectorsTest, WorkedExample) {
  const Json example = Load("example");
  const v1::Task task = TaskOf(example["tally"]);
  const TaskSums sums(task, 2);
  const std::string payload = Bytes(example["alone"]["payload"]);
  v1::ReportHeader header;
  header.add_clients(example["client"].get<std::string>());
  header.set_encoding(EncodingOf(example["alone"]["encoding"]));
  for (const Json& number : example["numbers"]) header.add_numbers(number.get<double>());
  header.set_weight(example["examples"].get<uint64_t>());
  header.set_payload_size(payload.size());
  header.set_payload_hash(Hash(example["alone"]));
  ASSERT_TRUE(CheckHeader(header, sums, v1::FLOAT64).ok());
  Tally tally(sums.shape());
  const std::vector<GroupShare> shares = {{1, header.weight(), 0}};
  const absl::Status folded = FoldReport(header, AsBytes(payload), shares, sums, {}, tally);
  ASSERT_TRUE(folded.ok()) << folded;
  EXPECT_EQ(BytesOf(tally.flat()), Bytes(example["tally"]["payload"]));
}

template <typename T>
void CheckPlain(const std::vector<double>& values, const std::string& payload) {
  std::vector<T> typed(values.begin(), values.end());
  EXPECT_EQ(BytesOf<T>(typed), payload);
  ASSERT_EQ(payload.size(), typed.size() * sizeof(T));
  std::vector<T> read(typed.size());
  if (!read.empty()) std::memcpy(read.data(), payload.data(), payload.size());
  EXPECT_THAT(std::vector<double>(read.begin(), read.end()), ElementsAreArray(values));
}

// Values that the encoding has: rounding at random leaves them alone.
void CheckShort(v1::Encoding encoding, const Json& vectors, const std::string& payload) {
  Rng rng(1, 0, 0, Purpose::kTest);
  std::string written;
  for (const Json& vector : vectors) {
    const auto values = vector.get<std::vector<double>>();
    std::vector<double> left = values;
    const size_t begin = written.size();
    written += EncodeShort<double>(encoding, absl::MakeSpan(left), rng);
    EXPECT_THAT(left, ElementsAreArray(values));
    std::vector<float> read(values.size());
    const absl::Span<const std::byte> piece =
        AsBytes(payload).subspan(begin, EncodedSize(encoding, values.size()));
    ASSERT_TRUE(DecodeShort(encoding, piece, absl::MakeSpan(read)).ok());
    EXPECT_THAT(std::vector<double>(read.begin(), read.end()), ElementsAreArray(values));
  }
  EXPECT_EQ(written, payload);
}

TEST(VectorsTest, Payloads) {
  for (const Json& one : Load("payloads")) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const v1::Encoding encoding = EncodingOf(one["encoding"]);
    const std::string payload = Bytes(one["payload"]);
    EXPECT_EQ(Xxh3(payload), Hash(one));
    TallyShape shape;
    shape.dimension = one["vectors"].empty() ? 0 : one["vectors"][0].size();
    shape.vectors.resize(one["vectors"].size());
    EXPECT_EQ(*PayloadBytes(shape, encoding), payload.size());
    std::vector<double> values;
    Flatten(one["vectors"], values);
    if (encoding == v1::FLOAT64) {
      CheckPlain<double>(values, payload);
    } else if (encoding == v1::FLOAT32) {
      CheckPlain<float>(values, payload);
    } else {
      CheckShort(encoding, one["vectors"], payload);
    }
  }
}

// Takes in whatever a message has.
class Collector : public PayloadSink {
 public:
  size_t MostNames() const override { return 10; }
  absl::Status OnHeader(v1::ReportHeader read) override {
    header = std::move(read);
    return absl::OkStatus();
  }
  absl::StatusOr<std::byte*> Room(size_t bytes) override {
    payload.resize(bytes);
    return reinterpret_cast<std::byte*>(payload.data());
  }
  v1::ReportHeader header;
  std::string payload;
};

v1::ReportHeader HeaderOf(const Json& fields) {
  v1::ReportHeader header;
  header.set_run_id(fields["run_id"].get<std::string>());
  header.set_round(fields["round"].get<uint64_t>());
  header.set_attempt(fields["attempt"].get<uint32_t>());
  for (const Json& name : fields["clients"]) header.add_clients(name.get<std::string>());
  header.set_base_sha256(fields["base_sha256"].get<std::string>());
  header.set_encoding(EncodingOf(fields["encoding"]));
  for (const Json& number : fields["numbers"]) header.add_numbers(number.get<double>());
  header.set_weight(fields["weight"].get<uint64_t>());
  header.set_group(fields["group"].get<uint32_t>());
  for (const Json& failure : fields["failures"]) {
    v1::ClientFailure& out = *header.add_failures();
    out.set_client(failure["client"].get<std::string>());
    out.set_message(failure["message"].get<std::string>());
  }
  header.set_without_receipt(fields["without_receipt"].get<bool>());
  return header;
}

TEST(VectorsTest, Parts) {
  for (const Json& one : Load("parts")) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const std::string message = Bytes(one["part"]);
    const std::string payload = Bytes(one["payload"]);
    v1::ReportHeader header = HeaderOf(one["header"]);
    header.set_payload_size(payload.size());
    header.set_payload_hash(Hash(one));
    v1::Part part;
    *part.mutable_header() = header;
    part.set_data(payload);
    EXPECT_EQ(part.SerializeAsString(), message);

    // What clients send: an empty payload may stand there as an empty field.
    const std::vector<grpc::ByteBuffer> sent = EncodeReport(header, grpc::Slice(payload));
    ASSERT_EQ(sent.size(), 1u);
    grpc::Slice whole;
    ASSERT_TRUE(sent[0].DumpToSingleSlice(&whole).ok());
    const std::string empty_data = payload.empty() ? std::string("\x12\0", 2) : "";
    EXPECT_EQ(std::string(whole.begin(), whole.end()), message + empty_data);

    const grpc::Slice slice(message);
    Collector read;
    ASSERT_TRUE(ParsePart(grpc::ByteBuffer(&slice, 1), read).ok());
    EXPECT_EQ(read.payload, payload);
    EXPECT_EQ(read.header.SerializeAsString(), header.SerializeAsString());
  }
}

TEST(VectorsTest, Hashes) {
  for (const Json& one : Load("hashes")) EXPECT_EQ(Xxh3(Bytes(one["payload"])), Hash(one));
}

TEST(VectorsTest, Models) {
  for (const Json& one : Load("models")) {
    const std::string file = Bytes(one["file"]);
    EXPECT_EQ(Sha256Hex(file), one["sha256"].get<std::string>());
    const absl::StatusOr<Parameters> read = DecodeModel(file, {{"a", {2, 2}}, {"b", {2}}}, "model");
    ASSERT_TRUE(read.ok()) << read.status();
    const auto& values = std::get<Vector<double>>(*read);
    EXPECT_THAT(std::vector<double>(values.begin(), values.end()),
                ElementsAreArray(one["values"].get<std::vector<double>>()));
  }
}

}  // namespace
}  // namespace leeway
