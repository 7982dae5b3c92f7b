#include "client/model_fetch.h"

#include "absl/strings/str_cat.h"
#include "client/raw_stream.h"
#include "common/digest.h"
#include "common/status.h"
#include "common/wire.h"

namespace leeway {
namespace {

constexpr char kFetchMethod[] = "/leeway.v1.Federation/Fetch";
constexpr int kTransfers = 3;  // of one model, whose bytes are not what its name says
constexpr int kContinued = 5;  // times that one transfer may break off

}  // namespace

absl::StatusOr<OrderModels> ModelFetch::Get(const v1::Order& order) {
  OrderModels models;
  Kept used;
  LEEWAY_ASSIGN_OR_RETURN(models.model, GetOne(order.model(), used));
  for (const v1::NamedModel& other : order.others()) {
    LEEWAY_ASSIGN_OR_RETURN(models.others[other.name()], GetOne(other.model(), used));
  }
  kept_ = std::move(used);
  return models;
}

absl::StatusOr<std::shared_ptr<const Parameters>> ModelFetch::GetOne(const v1::ModelRef& ref,
                                                                     Kept& used) {
  std::shared_ptr<const Parameters>& model = used[ref.sha256()];
  if (model != nullptr) return model;
  if (const auto kept = kept_.find(ref.sha256()); kept != kept_.end()) {
    return model = kept->second;
  }
  absl::string_view file = ref.inline_();
  std::string fetched;
  for (int transfers = 0; Sha256Hex(file) != ref.sha256(); ++transfers) {
    if (transfers == kTransfers) {
      return absl::DataLossError(
          absl::StrCat("model ", ref.sha256(), " came with another sha256 ", kTransfers,
                       " times; check the network, and the server's disk with `leeway verify`"));
    }
    LEEWAY_RETURN_IF_ERROR(Transfer(ref, fetched));
    file = fetched;
  }
  LEEWAY_ASSIGN_OR_RETURN(Parameters decoded, worker_.Decode(file));
  return model = std::make_shared<const Parameters>(std::move(decoded));
}

absl::Status ModelFetch::Transfer(const v1::ModelRef& ref, std::string& file) const {
  file.resize(ref.size());
  size_t received = 0;
  for (int tries = 0; received < file.size(); ++tries) {
    const absl::Status status = Continue(ref, received, file);
    if (status.ok()) continue;
    if (!absl::IsUnavailable(status) || tries >= kContinued) return status;
  }
  return absl::OkStatus();
}

// `received` counts the bytes that have arrived.
absl::Status ModelFetch::Continue(const v1::ModelRef& ref, size_t& received,
                                  std::string& file) const {
  v1::FetchRequest request;
  request.set_sha256(ref.sha256());
  request.set_offset(received);
  RawStream stream(channel_, kFetchMethod);
  const grpc::Slice slice(request.SerializeAsString());
  if (stream.Write(grpc::ByteBuffer(&slice, 1)) && stream.WritesDone()) {
    grpc::ByteBuffer message;
    while (received < file.size() && stream.Read(message)) {
      LEEWAY_ASSIGN_OR_RETURN(
          const size_t n, ParseChunk(message, reinterpret_cast<std::byte*>(file.data()) + received,
                                     file.size() - received));
      received += n;
    }
  }
  if (received == file.size()) return absl::OkStatus();
  const absl::Status status = stream.Finish();
  return status.ok() ? absl::UnavailableError("the transfer ended early") : status;
}

}  // namespace leeway
