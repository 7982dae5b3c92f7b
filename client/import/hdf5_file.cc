#include "client/import/hdf5_file.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/import/client_name.h"
#include "common/status.h"

namespace leeway {
namespace {

// Against shapes in corrupt files that no memory could hold.
constexpr uint64_t kMostBytes = uint64_t{1} << 34;

// The innermost message of HDF5's error stack.
std::string LastError() {
  std::string message;
  const auto visit = [](unsigned, const H5E_error2_t* error, void* text) -> herr_t {
    if (error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, visit, &message);
  H5Eclear2(H5E_DEFAULT);
  return message.empty() ? "HDF5 error" : message;
}

absl::Status Corrupt(const std::string& what) {
  return absl::DataLossError(
      absl::StrCat(what, ": ", LastError(), "; the file is damaged or no HDF5 file"));
}

absl::StatusOr<std::vector<std::string>> LinkNames(hid_t group, const std::string& where) {
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5L_info_t*, void* list) -> herr_t {
    static_cast<std::vector<std::string>*>(list)->emplace_back(name);
    return 0;
  };
  hsize_t start = 0;
  if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &start, visit, &names) < 0) {
    return Corrupt(where);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Where(const std::string& path, const std::string& client, const std::string& feature) {
  return absl::StrCat(path, ": client ", Printable(client), ": ", feature);
}

std::string Unpadded(absl::string_view text, H5T_str_t padding) {
  if (padding == H5T_STR_NULLTERM) return std::string(text.substr(0, text.find('\0')));
  const size_t last = text.find_last_not_of(padding == H5T_STR_SPACEPAD ? ' ' : '\0');
  return std::string(text.substr(0, last == absl::string_view::npos ? 0 : last + 1));
}

// A compression that this HDF5 library cannot undo is no damage.
absl::Status CheckFilters(hid_t data) {
  const Hdf5Handle list(H5Dget_create_plist(data), H5Pclose);
  const int count = list.ok() ? H5Pget_nfilters(list.get()) : 0;
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0;
    size_t values = 0;
    char name[64] = "";
    const H5Z_filter_t filter = H5Pget_filter2(list.get(), static_cast<unsigned>(i), &flags,
                                               &values, nullptr, sizeof name, name, nullptr);
    if (filter < 0 || H5Zfilter_avail(filter) > 0) continue;
    H5Eclear2(H5E_DEFAULT);
    return absl::UnimplementedError(absl::StrCat(
        "is compressed with the HDF5 filter ", filter, " (", Printable(name),
        "), for which no plugin is installed; install it, or save the file with gzip"));
  }
  return absl::OkStatus();
}

constexpr char kOwnData[] =
    "; a file of data must hold its data itself (h5repack, or copy it with h5py)";

// Data that are stored in other files: whoever made this file would choose which files
// of this machine are read.
absl::Status CheckStorage(hid_t data) {
  const Hdf5Handle list(H5Dget_create_plist(data), H5Pclose);
  if (!list.ok()) return absl::InternalError("HDF5 cannot tell how it is stored");
  if (H5Pget_external_count(list.get()) != 0) {
    char name[256] = "";
    H5Pget_external(list.get(), 0, sizeof name - 1, name, nullptr, nullptr);
    return absl::PermissionDeniedError(
        absl::StrCat("is stored outside of the file, in ", Printable(name), kOwnData));
  }
  if (H5Pget_layout(list.get()) == H5D_VIRTUAL) {
    return absl::PermissionDeniedError(
        absl::StrCat("is a virtual data set made of other files", kOwnData));
  }
  return absl::OkStatus();
}

// A link into another file is refused like external storage. A soft link within the
// file may lead to one, so that HDF5 is also told to follow none (OpenObject).
absl::Status CheckLink(hid_t group, const std::string& name) {
  H5L_info_t info;
  if (H5Lget_info(group, name.c_str(), &info, H5P_DEFAULT) < 0) {
    H5Eclear2(H5E_DEFAULT);
    return absl::OkStatus();  // opening it says what is wrong
  }
  if (info.type == H5L_TYPE_HARD || info.type == H5L_TYPE_SOFT) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("is a link to another file", kOwnData));
}

// Opens what a link leads to, without ever following one into another file; -1 if it
// is not of this type.
Hdf5Handle OpenObject(hid_t group, const std::string& name, H5I_type_t type) {
  const Hdf5Handle links(H5Pcreate(H5P_LINK_ACCESS), H5Pclose);
  const auto refuse = [](const char*, const char*, const char*, const char*, unsigned*, hid_t,
                         void*) -> herr_t { return -1; };
  if (!links.ok() || H5Pset_elink_cb(links.get(), refuse, nullptr) < 0) return {};
  Hdf5Handle object(H5Oopen(group, name.c_str(), links.get()), H5Oclose);
  if (!object.ok() || H5Iget_type(object.get()) != type) return {};
  return object;
}

Hdf5Handle OpenGroup(hid_t parent, const std::string& name) {
  return OpenObject(parent, name, H5I_GROUP);
}

}  // namespace

absl::StatusOr<Hdf5File> Hdf5File::Open(const std::string& path) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  if (!std::filesystem::exists(path)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (!std::filesystem::is_regular_file(path)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  Hdf5File file;
  file.path_ = path;
  file.file_ = Hdf5Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!file.file_.ok()) return Corrupt(path);
  LEEWAY_RETURN_IF_ERROR(
      Annotate(CheckLink(file.file_.get(), "examples"), absl::StrCat(path, ": /examples")));
  file.examples_ = OpenGroup(file.file_.get(), "examples");
  if (!file.examples_.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has no group /examples; expected TFF's /examples/<client>/<feature>"));
  }
  return file;
}

absl::StatusOr<std::vector<std::string>> Hdf5File::Clients() const {
  return LinkNames(examples_.get(), path_ + ": /examples");
}

absl::StatusOr<Hdf5Handle> Hdf5File::OpenClient(const std::string& client) const {
  // "./": a name that starts with '/' would mean the root.
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckLink(examples_.get(), "./" + client),
                                  absl::StrCat(path_, ": client ", Printable(client))));
  Hdf5Handle group = OpenGroup(examples_.get(), "./" + client);
  if (group.ok()) return group;
  return absl::InvalidArgumentError(absl::StrCat(path_, ": client ", Printable(client),
                                                 ": cannot be opened as a group (", LastError(),
                                                 "); expected TFF's /examples/<client>/<feature>"));
}

absl::StatusOr<std::string> Hdf5File::FindFeature(const std::string& client,
                                                  const std::vector<std::string>& names) const {
  LEEWAY_ASSIGN_OR_RETURN(Hdf5Handle group, OpenClient(client));
  LEEWAY_ASSIGN_OR_RETURN(std::vector<std::string> found, LinkNames(group.get(), path_));
  for (const std::string& name : names) {
    if (std::binary_search(found.begin(), found.end(), name)) return name;
  }
  return absl::NotFoundError(absl::StrCat(
      path_, ": client ", Printable(client), ": has none of ", absl::StrJoin(names, ", "),
      "; it has ",
      absl::StrJoin(found, ", ",
                    [](std::string* out, const std::string& name) { *out += Printable(name); }),
      ": choose with --feature and --label"));
}

absl::StatusOr<Hdf5File::Feature> Hdf5File::OpenFeature(const std::string& client,
                                                        const std::string& feature) const {
  const std::string where = Where(path_, client, feature);
  LEEWAY_ASSIGN_OR_RETURN(Hdf5Handle group, OpenClient(client));
  if (H5Lexists(group.get(), feature.c_str(), H5P_DEFAULT) == 0) {
    return absl::NotFoundError(
        absl::StrCat(where, ": is not there, though the first client has it"));
  }
  Feature opened;
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckLink(group.get(), feature), where));
  opened.data = OpenObject(group.get(), feature, H5I_DATASET);
  if (!opened.data.ok()) return Corrupt(where);
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckStorage(opened.data.get()), where));
  opened.type = Hdf5Handle(H5Dget_type(opened.data.get()), H5Tclose);
  const Hdf5Handle space(H5Dget_space(opened.data.get()), H5Sclose);
  if (!opened.type.ok() || !space.ok()) return Corrupt(where);
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckFilters(opened.data.get()), where));
  const H5T_class_t type = H5Tget_class(opened.type.get());
  if (type != H5T_FLOAT && type != H5T_INTEGER && type != H5T_STRING) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": holds neither numbers nor strings"));
  }
  opened.kind = type == H5T_FLOAT     ? Kind::kReal
                : type == H5T_INTEGER ? Kind::kInteger
                                      : Kind::kText;
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 1) return absl::InvalidArgumentError(absl::StrCat(where, ": is not an array"));
  std::vector<hsize_t> shape(static_cast<size_t>(rank));
  H5Sget_simple_extent_dims(space.get(), shape.data(), nullptr);
  opened.values = 1;
  for (hsize_t dimension : shape) {
    opened.shape.push_back(dimension);
    const uint64_t size = 8 + H5Tget_size(opened.type.get());
    if (__builtin_mul_overflow(opened.values, dimension, &opened.values) ||
        opened.values > kMostBytes / size) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": is larger than 16 GiB"));
    }
  }
  return opened;
}

absl::StatusOr<Hdf5File::Kind> Hdf5File::FeatureKind(const std::string& client,
                                                     const std::string& feature) const {
  LEEWAY_ASSIGN_OR_RETURN(Feature opened, OpenFeature(client, feature));
  return opened.kind;
}

absl::StatusOr<Hdf5File::Numbers> Hdf5File::ReadReals(const std::string& client,
                                                      const std::string& feature) const {
  LEEWAY_ASSIGN_OR_RETURN(Feature opened, OpenFeature(client, feature));
  const std::string where = Where(path_, client, feature);
  if (opened.kind == Kind::kText) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": holds strings, expected numbers"));
  }
  Numbers numbers{std::move(opened.shape), opened.kind, std::vector<float>(opened.values), {}};
  if (opened.values > 0 && H5Dread(opened.data.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL,
                                   H5P_DEFAULT, numbers.reals.data()) < 0) {
    return Corrupt(where);
  }
  return numbers;
}

absl::StatusOr<Hdf5File::Numbers> Hdf5File::ReadIntegers(const std::string& client,
                                                         const std::string& feature) const {
  LEEWAY_ASSIGN_OR_RETURN(Feature opened, OpenFeature(client, feature));
  const std::string where = Where(path_, client, feature);
  if (opened.kind != Kind::kInteger) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected integers; save them as such"));
  }
  Numbers numbers{std::move(opened.shape), opened.kind, {}, std::vector<int64_t>(opened.values)};
  if (opened.values > 0 && H5Dread(opened.data.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL,
                                   H5P_DEFAULT, numbers.integers.data()) < 0) {
    return Corrupt(where);
  }
  return numbers;
}

absl::StatusOr<std::vector<std::string>> Hdf5File::ReadStrings(const std::string& client,
                                                               const std::string& feature) const {
  LEEWAY_ASSIGN_OR_RETURN(Feature opened, OpenFeature(client, feature));
  const std::string where = Where(path_, client, feature);
  if (opened.kind != Kind::kText) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": expected strings"));
  }
  std::vector<std::string> strings;
  if (opened.values == 0) return strings;
  const hid_t data = opened.data.get();
  const hid_t type = opened.type.get();
  if (H5Tis_variable_str(type) > 0) {
    std::vector<char*> pointers(opened.values, nullptr);
    const Hdf5Handle space(H5Dget_space(data), H5Sclose);
    if (H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()) < 0) {
      return Corrupt(where);
    }
    for (const char* text : pointers) strings.emplace_back(text == nullptr ? "" : text);
    H5Dvlen_reclaim(type, space.get(), H5P_DEFAULT, pointers.data());
    return strings;
  }
  const size_t size = H5Tget_size(type);
  std::string bytes(opened.values * size, '\0');
  if (H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0) return Corrupt(where);
  const H5T_str_t padding = H5Tget_strpad(type);
  for (uint64_t i = 0; i < opened.values; ++i) {
    strings.push_back(Unpadded(absl::string_view(bytes).substr(i * size, size), padding));
  }
  return strings;
}

}  // namespace leeway
