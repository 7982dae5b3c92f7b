// Writes the binary seeds of the fuzz targets with our own encoders, so that they
// are what real peers send: fuzz_seeds DIRECTORY. The text ones are files in corpus/.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/digest.h"
#include "common/encoding.h"
#include "common/model_file.h"
#include "common/npy.h"
#include "common/wire.h"
#include "tests/fuzz/targets.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

class Seeds {
 public:
  explicit Seeds(fs::path directory) : directory_(std::move(directory)) {}

  void Write(const std::string& target, const std::string& name, absl::string_view bytes) {
    std::ofstream out(Path(target, name), std::ios::binary);
    out << bytes;
    ok_ = ok_ && out.good();
  }
  void Check(const absl::Status& status) {
    if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    ok_ = ok_ && status.ok();
  }
  std::string Path(const std::string& target, const std::string& name) {
    fs::create_directories(directory_ / target);
    return directory_ / target / name;
  }
  bool ok() const { return ok_; }

 private:
  const fs::path directory_;
  bool ok_ = true;
};

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A report that the server would count; the seed is no use if it would not.
void WriteReport(const std::string& name, v1::Encoding encoding, const std::string& payload,
                 Seeds& seeds) {
  const TaskSums sums = FuzzSums(FuzzWire(encoding));
  v1::Part part;
  v1::ReportHeader& header = *part.mutable_header();
  header.set_run_id("r");
  header.set_round(1);
  header.set_attempt(1);
  header.set_base_sha256("00");
  header.set_encoding(encoding);
  header.add_clients("a");
  if (encoding == v1::TALLY) {
    header.add_clients("b");
  } else {
    for (size_t i = 0; i < sums.sent_numbers(); ++i) header.add_numbers(1);
    header.set_weight(kFuzzWeight);
  }
  header.set_payload_size(payload.size());
  header.set_payload_hash(Xxh3(payload));
  part.set_data(payload);
  Tally tally(sums.shape());
  seeds.Check(CheckHeader(header, sums, encoding == v1::TALLY ? v1::FLOAT64 : encoding));
  seeds.Check(FoldReport(header,
                         {reinterpret_cast<const std::byte*>(payload.data()), payload.size()},
                         FuzzShares(header.clients_size()), sums, {}, tally));
  seeds.Write("wire", name, part.SerializeAsString());
}

void WriteWire(Seeds& seeds) {
  const std::vector<double> values = {0.5, -0.25, 1};
  std::vector<float> narrow(values.begin(), values.end());
  WriteReport("float64", v1::FLOAT64, Bytes(values), seeds);
  WriteReport("float32", v1::FLOAT32, Bytes(narrow), seeds);
  Rng rng(1, 1, 1, Purpose::kTest);
  for (const v1::Encoding encoding : {v1::BFLOAT16, v1::INT8}) {
    const std::string payload = EncodeShort(encoding, absl::MakeSpan(narrow), rng);
    WriteReport(v1::Encoding_Name(encoding), encoding, payload, seeds);
  }
  const TaskSums sums = FuzzSums();
  Tally tally(sums.shape());
  NamedReport<> report(sums);
  report.Set(kDisplacement, Vector<double>({{0.5, -0.25, 1}})).Set(kLoss, 2).Derive();
  for (const size_t group : {size_t{0}, size_t{1}}) seeds.Check(report.AddTo(tally, group));
  const std::string flat = Bytes(std::vector<int64_t>(tally.flat().begin(), tally.flat().end()));
  WriteReport("tally", v1::TALLY, flat, seeds);
  seeds.Write("tally", "good", flat);
  seeds.Write("tally", "zeros", std::string(flat.size(), '\0'));
  seeds.Write("tally", "huge", Bytes(std::vector<int64_t>(tally.flat().size(), int64_t{1} << 62)));

  v1::Part failed;  // a client that could not do its task: no payload
  failed.mutable_header()->set_run_id("r");
  failed.mutable_header()->set_round(1);
  failed.mutable_header()->set_attempt(1);
  v1::ClientFailure& failure = *failed.mutable_header()->add_failures();
  failure.set_client("a");
  failure.set_message("no");
  seeds.Check(CheckHeader(failed.header(), sums, v1::FLOAT64));
  seeds.Write("wire", "failed", failed.SerializeAsString());

  v1::JoinRequest join;
  join.set_oldest_version(kOldestProtocol);
  join.set_newest_version(kNewestProtocol);
  join.set_host("h");
  join.add_clients()->set_id("a");
  join.mutable_clients(0)->set_examples(3);
  join.mutable_schema()->add_feature_shape(3);
  join.set_instance(7);
  seeds.Check(CheckJoin(join));
  seeds.Write("wire", "join", join.SerializeAsString());
  v1::Chunk chunk;
  chunk.set_data("0123456789");
  seeds.Write("wire", "chunk", chunk.SerializeAsString());
}

void WriteFiles(Seeds& seeds) {
  const ModelLayout layout = FuzzLayout();
  const Parameters zeros =
      Vector<double>(Vector<double>::Zero(static_cast<Eigen::Index>(layout.size())));
  seeds.Write("safetensors", "model", EncodeModel(layout.tensors, zeros));
  const std::string text = R"({"__metadata__":{"a":"b"}}      )";
  seeds.Write("safetensors", "none", Bytes(std::vector<uint64_t>{text.size()}) + text);

  seeds.Check(WriteNpy<double>(seeds.Path("npy", "f64"), {{2, 3}}, std::vector<double>(6, 0.5)));
  seeds.Check(WriteNpy<int32_t>(seeds.Path("npy", "i32"), {4}, std::vector<int32_t>{1, 2, 3, 4}));
  seeds.Check(WriteNpy<uint8_t>(seeds.Path("npy", "u8"), {{2, 2, 2}}, std::vector<uint8_t>(8, 9)));
  seeds.Check(WriteNpy<float>(seeds.Path("npy", "empty"), {{0, 3}}, std::vector<float>()));
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds DIRECTORY\n");
    return 2;
  }
  leeway::Seeds seeds(argv[1]);
  leeway::WriteWire(seeds);
  leeway::WriteFiles(seeds);
  return seeds.ok() ? 0 : 1;
}
