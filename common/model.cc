#include "common/model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "common/digest.h"
#include "common/model_file.h"
#include "common/status.h"

namespace leeway {
namespace {

// The data section is the flat vector, at the end of the file.
template <typename T>
Vector<double> Tail(const ModelLayout& layout, absl::string_view file) {
  Vector<T> values(static_cast<Eigen::Index>(layout.size()));
  const size_t bytes = layout.size() * sizeof(T);
  std::memcpy(values.data(), file.data() + file.size() - bytes, bytes);
  return values.template cast<double>();
}

// The values from `begin` up to `end`, as `to` has them then.
template <typename T>
void Change(absl::FunctionRef<void(size_t, absl::Span<double>)> change, size_t begin, size_t end,
            const std::byte* from, std::byte* to) {
  T narrow[kMostChanged];
  double wide[kMostChanged];
  for (; begin < end; begin += kMostChanged) {
    const size_t n = std::min(kMostChanged, end - begin);
    std::memcpy(narrow, from + begin * sizeof(T), n * sizeof(T));
    std::copy(narrow, narrow + n, wide);
    change(begin, absl::MakeSpan(wide, n));
    std::transform(wide, wide + n, narrow, [](double x) { return static_cast<T>(x); });
    std::memcpy(to + begin * sizeof(T), narrow, n * sizeof(T));
  }
}

// The sha256 of a file whose blocks are completed in any order by several threads: each is
// hashed, while it is in the cache, as soon as those before it are.
class BlockHash {
 public:
  // `file` begins with a header of `header` bytes, which is complete.
  BlockHash(absl::string_view file, size_t header) : file_(file), hashed_(header) {
    hash_.Add(file.substr(0, header));
  }

  // The bytes from `begin` to `end` are there. If nobody is hashing, the caller does.
  void Completed(size_t begin, size_t end) {
    std::unique_lock lock(mu_);
    completed_[begin] = end;
    if (std::exchange(hashing_, true)) return;
    for (auto next = completed_.find(hashed_); next != completed_.end();
         next = completed_.find(hashed_)) {
      const auto [from, to] = *next;
      lock.unlock();
      hash_.Add(file_.substr(from, to - from));
      lock.lock();
      hashed_ = to;
    }
    hashing_ = false;
  }

  std::string Hex() { return hash_.Hex(); }  // when all are

 private:
  const absl::string_view file_;
  Sha256 hash_;  // whoever set hashing_ uses it
  std::mutex mu_;
  bool hashing_ = false;
  size_t hashed_;
  std::map<size_t, size_t> completed_;  // begin -> end
};

}  // namespace

Account& ModelsHeld() {
  static auto* const account = new Account;  // a model may outlive what is static
  return *account;
}

ModelPtr MakeModel(const ModelLayout& layout, const Parameters& parameters) {
  const std::string file = EncodeModel(layout.tensors, parameters);
  return std::make_shared<Model>(Model{Sha256Hex(file), Buffer(file, &ModelsHeld())});
}

ModelPtr MakeModel(const ModelLayout& layout, const Vector<double>& values) {
  if (layout.float64) return MakeModel(layout, Parameters(values));
  return MakeModel(layout, Parameters(Vector<float>(values.cast<float>())));
}

absl::StatusOr<ModelPtr> ParseModel(const ModelLayout& layout, absl::string_view file) {
  LEEWAY_RETURN_IF_ERROR(DecodeModel(file, layout.tensors, "model").status());
  return std::make_shared<Model>(Model{Sha256Hex(file), Buffer(file, &ModelsHeld())});
}

ModelPtr ChangeModel(const ModelLayout& layout, const Model& model, Workers* workers,
                     absl::FunctionRef<void(size_t begin, absl::Span<double> values)> change) {
  auto changed = std::make_shared<Model>();
  Buffer& file = changed->file;
  file.Resize(model.file.size());
  const size_t width = layout.float64 ? sizeof(double) : sizeof(float);
  const size_t header = file.size() - layout.size() * width;
  std::memcpy(file.data(), model.file.data(), header);
  BlockHash hash(file.view(), header);
  const std::byte* from = model.file.data() + header;
  std::byte* to = file.data() + header;
  ForBlocks(layout.size(), workers, [&](size_t begin, size_t n) {
    layout.float64 ? Change<double>(change, begin, begin + n, from, to)
                   : Change<float>(change, begin, begin + n, from, to);
    hash.Completed(header + begin * width, header + (begin + n) * width);
  });
  changed->sha256 = hash.Hex();
  return changed;
}

Vector<double> ValuesOf(const ModelLayout& layout, const Model& model) {
  const absl::string_view file = model.file.view();
  return layout.float64 ? Tail<double>(layout, file) : Tail<float>(layout, file);
}

}  // namespace leeway
