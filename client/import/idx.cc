#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/import/byte_stream.h"
#include "client/import/importers.h"
#include "client/import/progress.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr unsigned kUnsignedByte = 0x08;
constexpr uint64_t kRowsAtOnce = 4096;

struct IdxFile {
  ByteStream stream;
  std::vector<uint64_t> shape;

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

absl::StatusOr<IdxFile> OpenIdx(const std::string& path, size_t least, size_t most) {
  LEEWAY_ASSIGN_OR_RETURN(ByteStream stream, ByteStream::Open(path));
  IdxFile idx{std::move(stream), {}};
  std::vector<char> bytes;
  LEEWAY_RETURN_IF_ERROR(idx.Read(&bytes, 4));
  const auto byte = [&bytes](size_t i) { return static_cast<unsigned>(bytes[i]) & 0xffU; };
  if (byte(0) != 0 || byte(1) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not an IDX file"));
  }
  if (byte(2) != kUnsignedByte || byte(3) < least || byte(3) > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has type ", byte(2), " in ", byte(3),
                     " dimensions; expected unsigned bytes (8) in ", least,
                     least == most ? "" : absl::StrCat(" to ", most)));
  }
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

absl::Status ReadPart(const std::string& images_path, const std::string& labels_path, Part part,
                      FederationWriter* writer) {
  LEEWAY_ASSIGN_OR_RETURN(IdxFile images, OpenIdx(images_path, 2, 4));
  LEEWAY_ASSIGN_OR_RETURN(IdxFile labels, OpenIdx(labels_path, 1, 1));
  if (images.shape[0] != labels.shape[0]) {
    return absl::InvalidArgumentError(absl::StrCat(images_path, ": has ", images.shape[0],
                                                   " images, but ", labels_path, " has ",
                                                   labels.shape[0], " labels"));
  }
  const std::vector<uint64_t> row_shape(images.shape.begin() + 1, images.shape.end());
  Progress progress(absl::StrCat("reading ", PartName(part)), "images", images.shape[0]);
  std::vector<char> bytes;
  for (uint64_t done = 0; done < images.shape[0];) {
    const uint64_t count = std::min(kRowsAtOnce, images.shape[0] - done);
    LEEWAY_RETURN_IF_ERROR(images.Read(&bytes, count * images.row()));
    std::vector<float> x(bytes.size());
    std::transform(bytes.begin(), bytes.end(), x.begin(), [](char pixel) {
      return static_cast<float>(static_cast<unsigned char>(pixel)) / 255.0F;
    });
    LEEWAY_RETURN_IF_ERROR(labels.Read(&bytes, count));
    std::vector<int64_t> y(count);
    std::transform(bytes.begin(), bytes.end(), y.begin(),
                   [](char label) { return static_cast<unsigned char>(label); });
    LEEWAY_RETURN_IF_ERROR(
        Annotate(writer->Append("all", part, RowsOf(x, count, row_shape), RowsOf(y, count, {})),
                 labels_path));
    done += count;
    progress.Step(count);
  }
  LEEWAY_RETURN_IF_ERROR(images.CheckEnd());
  return labels.CheckEnd();
}

}  // namespace

absl::StatusOr<Json> ImportIdx(const IdxOptions& options) {
  if (options.test_images.empty() != options.test_labels.empty()) {
    return absl::InvalidArgumentError("--test-images and --test-labels go together");
  }
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<FederationWriter> writer,
                          FederationWriter::Create(options.writer));
  LEEWAY_RETURN_IF_ERROR(ReadPart(options.images, options.labels, Part::kTrain, writer.get()));
  if (!options.test_images.empty()) {
    LEEWAY_RETURN_IF_ERROR(
        ReadPart(options.test_images, options.test_labels, Part::kTest, writer.get()));
  }
  Json description = {{"kind", "idx"}, {"source", options.images}};
  description["options"] = {{"labels", options.labels},
                            {"test_images", options.test_images},
                            {"test_labels", options.test_labels},
                            {"pixels", "float32, the byte divided by 255"}};
  return writer->Finish(std::move(description));
}

}  // namespace leeway
