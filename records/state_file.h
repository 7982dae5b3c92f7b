// StateFile: the numbers of an optimizer's state (momentum, L-BFGS pairs) where they are
// too many for a row of the database, which would be rewritten in every round. One file,
// named by its content; the saved state names the one that it belongs to. It is written
// before the end of the transaction that refers to it, and the one before it is removed
// after. Only the run store includes this file. Not thread-safe.
#ifndef LEEWAY_RECORDS_STATE_FILE_H_
#define LEEWAY_RECORDS_STATE_FILE_H_

#include <google/protobuf/repeated_field.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/digest.h"
#include "common/durable_file.h"
#include "common/status.h"
#include "proto/record.pb.h"

namespace leeway {

class StateFile {
 public:
  explicit StateFile(std::string directory) : directory_(std::move(directory) + "/optimizer") {}

  void set_sync(bool sync) { sync_ = sync; }

  // Before the transaction: takes the numbers out of a state that has too many. They wait
  // for Write, which must come before the transaction's end.
  void Take(v1::ScriptState& state) {
    Forget();
    if (static_cast<size_t>(state.optimizer_size()) * sizeof(double) <= kLargestRow) {
      newest_.clear();
      return;
    }
    numbers_.Swap(state.mutable_optimizer());
    newest_ = Sha256Hex(Bytes());
    state.set_optimizer_sha256(newest_);
  }
  absl::Status Write() {
    if (!numbers_.empty() && newest_ != current_) {
      std::error_code error;
      if (std::filesystem::create_directory(directory_, error) && sync_) {
        LEEWAY_RETURN_IF_ERROR(SyncDirectory(std::filesystem::path(directory_).parent_path()));
      }
      LEEWAY_RETURN_IF_ERROR(WriteFile(Path(newest_), Bytes(), sync_));
    }
    numbers_.Clear();
    return absl::OkStatus();
  }
  // After the transaction: removes the file that it replaced.
  void RemoveStale() {
    if (newest_ != current_ && !current_.empty()) unlink(Path(current_).c_str());
    current_ = newest_;
  }
  // The transaction was taken back.
  void Forget() {
    numbers_.Clear();
    newest_ = current_;
  }

  // At the start: what a crash may have left.
  void RemoveLeftovers(const v1::ScriptState& state) {
    current_ = newest_ = state.optimizer_sha256();
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
      if (entry.path() != Path(current_)) std::filesystem::remove(entry.path(), error);
    }
  }

  // Puts the numbers back into a state. DataLoss if they are not those that were saved.
  absl::Status Load(v1::ScriptState& state) const {
    if (state.optimizer_sha256().empty()) return absl::OkStatus();
    const std::string path = Path(state.optimizer_sha256());
    std::ifstream file(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    if (Sha256Hex(bytes) != state.optimizer_sha256() || bytes.size() % sizeof(double) != 0) {
      return absl::DataLossError(
          absl::StrCat(path, " is damaged or missing; restore it from a copy or start a new run"));
    }
    state.mutable_optimizer()->Resize(static_cast<int>(bytes.size() / sizeof(double)), 0);
    std::memcpy(state.mutable_optimizer()->mutable_data(), bytes.data(), bytes.size());
    state.clear_optimizer_sha256();
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kLargestRow = size_t{1} << 20;

  absl::string_view Bytes() const {
    return {reinterpret_cast<const char*>(numbers_.data()),
            static_cast<size_t>(numbers_.size()) * sizeof(double)};
  }
  std::string Path(absl::string_view sha256) const {
    return absl::StrCat(directory_, "/", sha256, ".f64");
  }

  const std::string directory_;
  bool sync_ = true;
  google::protobuf::RepeatedField<double> numbers_;  // of the newest state, until written
  std::string newest_;                               // its sha256; empty: it has few numbers
  std::string current_;                              // of the file that the database refers to
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_STATE_FILE_H_
