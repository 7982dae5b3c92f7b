#include "tests/client/import/test_files.h"

#include <hdf5.h>
#include <stdlib.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "common/npy.h"

#ifdef __SANITIZE_ADDRESS__
// HDF5 1.10 itself leaks an object header now and then on a damaged file.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }
#endif

namespace leeway {
namespace {

namespace fs = std::filesystem;

void Must(bool ok) {
  if (!ok) throw std::runtime_error("test file cannot be made");
}

NpyArray Mapped(const std::string& path) {
  absl::StatusOr<NpyArray> array = NpyArray::Map(path);
  if (!array.ok()) throw std::runtime_error(std::string(array.status().message()));
  return *array;
}

}  // namespace

TempDir::TempDir() {
  std::string name = (fs::temp_directory_path() / "leeway_import_XXXXXX").string();
  Must(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TempDir::operator/(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

std::string TempDir::Write(absl::string_view name, absl::string_view content) const {
  const std::string path = *this / name;
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
  return path;
}

std::vector<std::string> TempDir::List() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Gzip(absl::string_view content) {
  z_stream zlib{};
  Must(deflateInit2(&zlib, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&zlib, content.size()) + 64, '\0');
  zlib.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(content.data()));
  zlib.avail_in = static_cast<unsigned>(content.size());
  zlib.next_out = reinterpret_cast<unsigned char*>(out.data());
  zlib.avail_out = static_cast<unsigned>(out.size());
  Must(deflate(&zlib, Z_FINISH) == Z_STREAM_END);
  out.resize(zlib.total_out);
  deflateEnd(&zlib);
  return out;
}

std::string Idx(const std::vector<uint32_t>& shape, const std::vector<uint8_t>& values) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (uint32_t dimension : shape) {
    for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(dimension >> shift & 0xff));
  }
  bytes.append(values.begin(), values.end());
  return bytes;
}

Hdf5Builder::Hdf5Builder(const std::string& path)
    : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {
  Must(file_ >= 0);
  H5Gclose(H5Gcreate2(file_, "examples", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
}

Hdf5Builder::~Hdf5Builder() {
  for (const auto& [name, group] : clients_) H5Gclose(group);
  H5Fclose(file_);
}

int64_t Hdf5Builder::Client(const std::string& client) {
  auto found = clients_.find(client);
  if (found != clients_.end()) return found->second;
  const hid_t group = H5Gcreate2(file_, absl::StrCat("examples/", client).c_str(), H5P_DEFAULT,
                                 H5P_DEFAULT, H5P_DEFAULT);
  Must(group >= 0);
  return clients_[client] = group;
}

void Hdf5Builder::Dataset(const std::string& client, const std::string& feature, int64_t type,
                          const std::vector<uint64_t>& shape, const void* values, bool deflate) {
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const hid_t space = H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
  const hid_t layout = H5Pcreate(H5P_DATASET_CREATE);
  if (deflate) {
    H5Pset_chunk(layout, static_cast<int>(dims.size()), dims.data());
    H5Pset_deflate(layout, 9);
  }
  const hid_t data =
      H5Dcreate2(Client(client), feature.c_str(), type, space, H5P_DEFAULT, layout, H5P_DEFAULT);
  Must(data >= 0);
  Must(H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(data);
  H5Pclose(layout);
  H5Sclose(space);
}

void Hdf5Builder::Floats(const std::string& client, const std::string& feature,
                         const std::vector<uint64_t>& shape, const std::vector<float>& values) {
  Dataset(client, feature, H5T_NATIVE_FLOAT, shape, values.data(), false);
}

void Hdf5Builder::Integers(const std::string& client, const std::string& feature,
                           const std::vector<uint64_t>& shape, const std::vector<int32_t>& values) {
  Dataset(client, feature, H5T_NATIVE_INT32, shape, values.data(), false);
}

void Hdf5Builder::FixedStrings(const std::string& client, const std::string& feature,
                               const std::vector<std::string>& values) {
  size_t longest = 1;
  for (const std::string& value : values) longest = std::max(longest, value.size());
  std::string bytes;
  for (std::string value : values) {
    value.resize(longest, '\0');
    bytes += value;
  }
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, longest);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  Dataset(client, feature, type, {values.size()}, bytes.data(), true);
  H5Tclose(type);
}

void Hdf5Builder::VariableStrings(const std::string& client, const std::string& feature,
                                  const std::vector<std::string>& values) {
  std::vector<const char*> pointers;
  for (const std::string& value : values) pointers.push_back(value.c_str());
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  Dataset(client, feature, type, {values.size()}, pointers.data(), false);
  H5Tclose(type);
}

std::vector<int64_t> Integers(const std::string& path) { return Mapped(path).As<int64_t>(); }
std::vector<float> Floats(const std::string& path) { return Mapped(path).As<float>(); }
std::vector<uint64_t> Shape(const std::string& path) { return Mapped(path).shape(); }

}  // namespace leeway
