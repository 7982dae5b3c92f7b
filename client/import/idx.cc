#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/import/byte_stream.h"
#include "client/import/importers.h"
#include "client/import/progress.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr uint64_t kRowsAtOnce = 4096;
constexpr uint64_t kBytesAtOnce = uint64_t{16} << 20;
constexpr uint64_t kMostColumns = 1024;  // of a label file

// The types of IDX's third byte that hold whole numbers, and their size in bytes.
struct IdxType {
  unsigned code;
  unsigned bytes;
};
constexpr IdxType kUnsignedByte = {0x08, 1};
constexpr IdxType kWholeNumbers[] = {kUnsignedByte, {0x0b, 2}, {0x0c, 4}};

struct IdxFile {
  ByteStream stream;
  unsigned item_bytes = 1;
  std::vector<uint64_t> shape;

  // Values of one item.
  uint64_t row() const {
    uint64_t product = 1;
    for (size_t i = 1; i < shape.size(); ++i) product *= shape[i];
    return product;
  }

  // Exactly `size` bytes.
  absl::Status Read(std::vector<char>* bytes, uint64_t size) {
    bytes->resize(size);
    LEEWAY_ASSIGN_OR_RETURN(const size_t count, stream.Read(bytes->data(), size));
    if (count == size) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(stream.path(), ": ends before the ", shape.empty() ? 0 : shape[0],
                     " items that its header announces; get the file again"));
  }

  absl::Status CheckEnd() {
    char extra = 0;
    LEEWAY_ASSIGN_OR_RETURN(const size_t count, stream.Read(&extra, 1));
    if (count == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(stream.path(), ": goes on after the ", shape[0], " items of its header"));
  }
};

absl::StatusOr<IdxFile> OpenIdx(const std::string& path, absl::Span<const IdxType> types,
                                size_t least, size_t most) {
  LEEWAY_ASSIGN_OR_RETURN(ByteStream stream, ByteStream::Open(path));
  IdxFile idx{std::move(stream), 1, {}};
  std::vector<char> bytes;
  LEEWAY_RETURN_IF_ERROR(idx.Read(&bytes, 4));
  const auto byte = [&bytes](size_t i) { return static_cast<unsigned>(bytes[i]) & 0xffU; };
  if (byte(0) != 0 || byte(1) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not an IDX file"));
  }
  const auto* type = std::find_if(types.begin(), types.end(),
                                  [&](const IdxType& one) { return one.code == byte(2); });
  if (type == types.end() || byte(3) < least || byte(3) > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has type ", byte(2), " in ", byte(3), " dimensions; expected unsigned bytes (8)",
        types.size() > 1 ? " or big-endian integers (11, 12)" : "", " in ", least, " to ", most));
  }
  idx.item_bytes = type->bytes;
  const size_t dimensions = byte(3);
  LEEWAY_RETURN_IF_ERROR(idx.Read(&bytes, 4 * dimensions));
  for (size_t i = 0; i < dimensions; ++i) {
    uint64_t value = 0;
    for (size_t j = 0; j < 4; ++j) value = value << 8 | byte(4 * i + j);
    idx.shape.push_back(value);
    if (i > 0 && (value == 0 || value > 65536 || idx.row() > (uint64_t{1} << 26))) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": dimension ", i, " is ", value));
    }
  }
  return idx;
}

// Big-endian whole numbers; one byte is unsigned, more are signed.
std::vector<int64_t> Decode(const std::vector<char>& bytes, unsigned item_bytes) {
  std::vector<int64_t> values(bytes.size() / item_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t value = 0;
    for (unsigned j = 0; j < item_bytes; ++j) {
      value = value << 8 | (static_cast<uint64_t>(bytes[i * item_bytes + j]) & 0xff);
    }
    const unsigned shift = item_bytes == 1 ? 0 : 64 - 8 * item_bytes;
    values[i] = static_cast<int64_t>(value << shift) >> shift;
  }
  return values;
}

// One part: images and, row by row, their class and client.
class IdxPart {
 public:
  IdxPart(const IdxOptions& options, Part part, FederationWriter* writer)
      : options_(options), part_(part), writer_(writer) {}

  absl::Status Copy(const std::string& images_path, const std::string& labels_path) {
    LEEWAY_ASSIGN_OR_RETURN(IdxFile images,
                            OpenIdx(images_path, absl::MakeConstSpan(&kUnsignedByte, 1), 2, 4));
    LEEWAY_ASSIGN_OR_RETURN(IdxFile labels, OpenIdx(labels_path, kWholeNumbers, 1, 2));
    if (images.shape[0] != labels.shape[0]) {
      return absl::InvalidArgumentError(absl::StrCat(images_path, ": has ", images.shape[0],
                                                     " images, but ", labels_path, " has ",
                                                     labels.shape[0], " labels"));
    }
    columns_ = labels.row();
    if (columns_ > kMostColumns) {
      return absl::InvalidArgumentError(absl::StrCat(labels_path, ": has ", columns_,
                                                     " columns, expected at most ", kMostColumns));
    }
    LEEWAY_RETURN_IF_ERROR(CheckColumn("--label-column", options_.label_column, labels_path));
    LEEWAY_RETURN_IF_ERROR(
        CheckColumn("--client-column", options_.client_column.value_or(0), labels_path));
    row_shape_.assign(images.shape.begin() + 1, images.shape.end());
    Progress progress(absl::StrCat("reading ", PartName(part_)), "images", images.shape[0]);
    // A header may announce more than there is: memory is for some of it at a time.
    const uint64_t at_once = std::clamp<uint64_t>(kBytesAtOnce / images.row(), 1, kRowsAtOnce);
    std::vector<char> pixels;
    std::vector<char> numbers;
    for (uint64_t done = 0; done < images.shape[0];) {
      const uint64_t count = std::min(at_once, images.shape[0] - done);
      LEEWAY_RETURN_IF_ERROR(images.Read(&pixels, count * images.row()));
      LEEWAY_RETURN_IF_ERROR(labels.Read(&numbers, count * columns_ * labels.item_bytes));
      LEEWAY_RETURN_IF_ERROR(
          Annotate(Append(pixels, Decode(numbers, labels.item_bytes)), labels_path));
      done += count;
      progress.Step(count);
    }
    LEEWAY_RETURN_IF_ERROR(images.CheckEnd());
    return labels.CheckEnd();
  }

  uint64_t columns() const { return columns_; }

 private:
  absl::Status CheckColumn(const char* option, uint32_t column, const std::string& path) const {
    if (column < columns_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(option, " is ", column, ", but ", path, " has ",
                                                   columns_, columns_ == 1 ? " column" : " columns",
                                                   "; give a number from 0 to ", columns_ - 1));
  }

  // Samples of one client.
  struct Samples {
    std::vector<float> x;
    std::vector<int64_t> y;
  };

  absl::Status Append(const std::vector<char>& pixels, const std::vector<int64_t>& numbers) {
    std::map<std::string, Samples> clients;
    const size_t rows = numbers.size() / columns_;
    const size_t row = pixels.size() / rows;
    for (size_t i = 0; i < rows; ++i) {
      const int64_t* label = &numbers[i * columns_];
      Samples& samples =
          clients[options_.client_column.has_value() ? absl::StrCat(label[*options_.client_column])
                                                     : "all"];
      samples.y.push_back(label[options_.label_column]);
      for (size_t j = 0; j < row; ++j) {
        samples.x.push_back(static_cast<float>(static_cast<unsigned char>(pixels[i * row + j])) /
                            255.0F);
      }
    }
    for (const auto& [client, samples] : clients) {
      const Rows x = RowsOf(samples.x, samples.y.size(), row_shape_);
      const Rows y = RowsOf(samples.y, samples.y.size(), {});
      const bool central = part_ == Part::kTest && options_.central_test;
      LEEWAY_RETURN_IF_ERROR(central ? writer_->AppendCentral(x, y)
                                     : writer_->Append(client, part_, x, y));
    }
    return absl::OkStatus();
  }

  const IdxOptions& options_;
  const Part part_;
  FederationWriter* const writer_;
  uint64_t columns_ = 1;  // of the label file
  std::vector<uint64_t> row_shape_;
};

}  // namespace

absl::StatusOr<Json> ImportIdx(const IdxOptions& options) {
  if (options.test_images.empty() != options.test_labels.empty()) {
    return absl::InvalidArgumentError("--test-images and --test-labels go together");
  }
  if (options.central_test && options.test_images.empty()) {
    return absl::InvalidArgumentError("--central-test needs --test-images and --test-labels");
  }
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<FederationWriter> writer,
                          FederationWriter::Create(options.writer));
  IdxPart train(options, Part::kTrain, writer.get());
  LEEWAY_RETURN_IF_ERROR(train.Copy(options.images, options.labels));
  if (!options.test_images.empty()) {
    IdxPart test(options, Part::kTest, writer.get());
    LEEWAY_RETURN_IF_ERROR(test.Copy(options.test_images, options.test_labels));
  }
  Json description = {{"kind", "idx"}, {"source", options.images}};
  description["options"] = {{"labels", options.labels},
                            {"test_images", options.test_images},
                            {"test_labels", options.test_labels},
                            {"pixels", "float32, the byte divided by 255"}};
  if (train.columns() > 1) {
    description["options"]["label_column"] = options.label_column;
    if (options.client_column) description["options"]["client_column"] = *options.client_column;
  }
  if (train.columns() > 1 && !options.client_column) {
    description["notes"] = Json::array({absl::StrCat(
        "the label file has ", train.columns(), " columns; column ", options.label_column,
        " is taken as the class, and all images as one client; --client-column makes one client "
        "of each value of another column (2, the writer, in QMNIST's files)")});
  }
  return writer->Finish(std::move(description));
}

}  // namespace leeway
