// Small files of all the formats that can be imported, made on the spot.
#ifndef LEEWAY_TESTS_CLIENT_IMPORT_TEST_FILES_H_
#define LEEWAY_TESTS_CLIENT_IMPORT_TEST_FILES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/import/federation.h"

namespace leeway {

// A directory that lives as long as the object.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string operator/(absl::string_view name) const;
  // Writes a file (and the directories above it); returns its path.
  std::string Write(absl::string_view name, absl::string_view content) const;
  // Names of all entries, for "nothing is left behind".
  std::vector<std::string> List() const;

 private:
  std::string path_;
};

std::string Gzip(absl::string_view content);

// An IDX file of unsigned bytes.
std::string Idx(const std::vector<uint32_t>& shape, const std::vector<uint8_t>& values);

// Writes /examples/<client>/<feature> of a TFF file.
class Hdf5Builder {
 public:
  explicit Hdf5Builder(const std::string& path);
  ~Hdf5Builder();
  Hdf5Builder(const Hdf5Builder&) = delete;
  Hdf5Builder& operator=(const Hdf5Builder&) = delete;

  void Floats(const std::string& client, const std::string& feature,
              const std::vector<uint64_t>& shape, const std::vector<float>& values);
  void Integers(const std::string& client, const std::string& feature,
                const std::vector<uint64_t>& shape, const std::vector<int32_t>& values);
  // Fixed-length NULLPAD strings, as long as the longest, deflated.
  void FixedStrings(const std::string& client, const std::string& feature,
                    const std::vector<std::string>& values);
  void VariableStrings(const std::string& client, const std::string& feature,
                       const std::vector<std::string>& values);

 private:
  int64_t Client(const std::string& client);
  void Dataset(const std::string& client, const std::string& feature, int64_t type,
               const std::vector<uint64_t>& shape, const void* values, bool deflate);
  int64_t file_;
  std::map<std::string, int64_t> clients_;
};

// The values of one file of a federation.
std::vector<int64_t> Integers(const std::string& path);
std::vector<float> Floats(const std::string& path);
std::vector<uint64_t> Shape(const std::string& path);

}  // namespace leeway

#endif  // LEEWAY_TESTS_CLIENT_IMPORT_TEST_FILES_H_
