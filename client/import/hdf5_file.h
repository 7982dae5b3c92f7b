// A TFF HDF5 file, open for reading: /examples/<client>/<feature>, whose first
// dimension counts examples. Errors name file, client and feature; HDF5's own
// printing is silenced. Not thread-safe, like the library.
#ifndef LEEWAY_CLIENT_IMPORT_HDF5_FILE_H_
#define LEEWAY_CLIENT_IMPORT_HDF5_FILE_H_

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace leeway {

// An HDF5 identifier that closes itself.
class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Handle() = default;
  Hdf5Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept { *this = std::move(other); }
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Handle() {
    if (id_ >= 0) close_(id_);
  }

  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

class Hdf5File {
 public:
  enum class Kind { kReal, kInteger, kText };

  static absl::StatusOr<Hdf5File> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // Names of the clients, sorted.
  absl::StatusOr<std::vector<std::string>> Clients() const;
  // The first of `names` that the client has; NotFound lists what it has.
  absl::StatusOr<std::string> FindFeature(const std::string& client,
                                          const std::vector<std::string>& names) const;

  // A feature's numbers, converted to float or int64_t, and its shape.
  struct Numbers {
    std::vector<uint64_t> shape;
    Kind kind = Kind::kReal;
    std::vector<float> reals;
    std::vector<int64_t> integers;
  };
  absl::StatusOr<Kind> FeatureKind(const std::string& client, const std::string& feature) const;
  absl::StatusOr<Numbers> ReadReals(const std::string& client, const std::string& feature) const;
  absl::StatusOr<Numbers> ReadIntegers(const std::string& client, const std::string& feature) const;
  // A feature's strings, of fixed or variable length, without their padding.
  absl::StatusOr<std::vector<std::string>> ReadStrings(const std::string& client,
                                                       const std::string& feature) const;

 private:
  struct Feature {
    Hdf5Handle data;
    Hdf5Handle type;
    Kind kind = Kind::kReal;
    std::vector<uint64_t> shape;
    uint64_t values = 0;
  };
  absl::StatusOr<Hdf5Handle> OpenClient(const std::string& client) const;
  absl::StatusOr<Feature> OpenFeature(const std::string& client, const std::string& feature) const;

  std::string path_;
  Hdf5Handle file_;
  Hdf5Handle examples_;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_HDF5_FILE_H_
