#include "cli/data.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/npy.h"
#include "common/rng.h"
#include "common/status.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

constexpr double kLargestScale = 5;  // nu_c ~ U(0, 5)
constexpr uint64_t kMostNumbers = uint64_t{1} << 31;

absl::Status Validate(const SyntheticOptions& options) {
  for (const auto& [flag, value] :
       {std::pair("--clients", options.clients), std::pair("--samples", options.samples),
        std::pair("--dimension", options.dimension)}) {
    if (value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " is 0; it must be at least 1"));
    }
  }
  for (const auto& [flag, value] :
       {std::pair("--noise-sd", options.noise_sd), std::pair("--truth-sd", options.truth_sd)}) {
    if (!std::isfinite(value) || value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " is ", value, "; it must be a number of at least 0"));
    }
  }
  if (!std::isfinite(options.conflict)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--conflict is ", options.conflict, "; it must be a number"));
  }
  if (options.condition != 0 && !(options.condition >= 1 && std::isfinite(options.condition))) {
    return absl::InvalidArgumentError(absl::StrCat("--condition is ", options.condition,
                                                   "; a condition number is at least 1 (0: off)"));
  }
  if ((options.conflict != 0) + options.identical + options.equal_hessians > 1) {
    return absl::InvalidArgumentError(
        "--conflict, --identical and --equal-hessians exclude each other; choose one");
  }
  if (uint64_t{options.samples} * options.dimension > kMostNumbers) {
    return absl::InvalidArgumentError(absl::StrCat("--samples times --dimension is more than ",
                                                   kMostNumbers,
                                                   "; use more clients with fewer samples"));
  }
  if (options.out.empty()) return absl::InvalidArgumentError("--out is empty; name a directory");
  return absl::OkStatus();
}

absl::Status MakeDirectory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", path.string()));
}

// The stream of a client's scale and inputs.
Rng InputStream(const SyntheticOptions& options, absl::string_view id) {
  return Rng(options.seed, 0, ClientKey(id), Purpose::kSyntheticClient);
}

// nu_c: the first number of the client's stream.
double DrawScale(const SyntheticOptions& options, Rng& rng) {
  const double uniform = rng.Uniform();
  return options.condition > 0 ? kLargestScale - uniform : kLargestScale * uniform;
}

// Scales of the coordinates: squares fall geometrically from 1 to 1 / condition.
std::vector<double> CoordinateScales(const SyntheticOptions& options) {
  std::vector<double> scales(options.dimension, 1);
  if (options.condition == 0 || options.dimension == 1) return scales;
  for (size_t j = 0; j < scales.size(); ++j) {
    const double place = static_cast<double>(j) / (options.dimension - 1);
    scales[j] = std::pow(options.condition, -0.5 * place);
  }
  return scales;
}

// What generates the targets of a client: w*, or shifted along u = (1, ..., 1)/sqrt d
// by its scale.
std::vector<double> ClientTruth(const SyntheticOptions& options, std::vector<double> truth,
                                double scale_over_mean) {
  const double shift = options.conflict * scale_over_mean / std::sqrt(options.dimension);
  for (double& w : truth) w += shift;
  return truth;
}

absl::Status WriteClient(const SyntheticOptions& options, const std::vector<double>& truth,
                         const std::string& id, const fs::path& directory) {
  const SyntheticClient client = MakeSyntheticClient(options, truth, id);
  LEEWAY_RETURN_IF_ERROR(MakeDirectory(directory));
  LEEWAY_RETURN_IF_ERROR(
      WriteNpy<double>(directory / "train_x.npy", {options.samples, options.dimension}, client.x));
  return WriteNpy<double>(directory / "train_y.npy", {options.samples}, client.y);
}

absl::Status WriteAll(const SyntheticOptions& options, const fs::path& directory) {
  LEEWAY_RETURN_IF_ERROR(MakeDirectory(directory));
  const std::vector<double> truth = SyntheticTruth(options);
  LEEWAY_RETURN_IF_ERROR(WriteNpy<double>(directory / "truth.npy", {options.dimension}, truth));
  std::vector<double> scales;
  for (uint32_t c = 0; c < options.clients; ++c) {
    Rng rng = InputStream(options, SyntheticClientName(c, options.clients));
    scales.push_back(DrawScale(options, rng));
  }
  const double mean = std::accumulate(scales.begin(), scales.end(), 0.0) / options.clients;
  for (uint32_t c = 0; c < options.clients; ++c) {
    const std::string name = SyntheticClientName(c, options.clients);
    LEEWAY_RETURN_IF_ERROR(WriteClient(
        options, ClientTruth(options, truth, scales[c] - mean),
        options.identical ? SyntheticClientName(0, options.clients) : name, directory / name));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<double> SyntheticTruth(const SyntheticOptions& options) {
  Rng rng(options.seed, 0, 0, Purpose::kSyntheticTruth);
  std::vector<double> truth(options.dimension);
  for (double& w : truth) w = options.truth_sd * rng.Normal();
  return truth;
}

SyntheticClient MakeSyntheticClient(const SyntheticOptions& options,
                                    const std::vector<double>& truth, absl::string_view id) {
  Rng rng = InputStream(
      options, options.equal_hessians ? SyntheticClientName(0, options.clients) : std::string(id));
  SyntheticClient client;
  client.scale = DrawScale(options, rng);
  const std::vector<double> scales = CoordinateScales(options);
  const double centre = options.condition > 0 ? 0.5 : 0;
  client.x.resize(size_t{options.samples} * options.dimension);
  for (size_t i = 0; i < client.x.size(); ++i) {
    client.x[i] = client.scale * scales[i % options.dimension] * (rng.Uniform() - centre);
  }
  std::vector<double> own_truth = truth;
  if (options.equal_hessians) {
    rng = Rng(options.seed, 1, ClientKey(id), Purpose::kSyntheticClient);
    for (double& w : own_truth) w += rng.Normal();
  }
  // The noise comes last and is always drawn: the inputs do not depend on it.
  client.y.resize(options.samples);
  for (size_t i = 0; i < options.samples; ++i) {
    const double* x = client.x.data() + i * options.dimension;
    client.y[i] = std::inner_product(own_truth.begin(), own_truth.end(), x, 0.0) +
                  options.noise_sd * rng.Normal();
  }
  return client;
}

std::string SyntheticClientName(uint32_t client, uint32_t clients) {
  const int width = std::max<int>(3, static_cast<int>(std::to_string(clients - 1).size()));
  return absl::StrFormat("client_%0*d", width, client);
}

absl::Status WriteSynthetic(const SyntheticOptions& options) {
  LEEWAY_RETURN_IF_ERROR(Validate(options));
  // Without a trailing slash, so that the temporary name is beside it.
  fs::path out = fs::path(options.out).lexically_normal();
  if (!out.has_filename()) out = out.parent_path();
  std::error_code error;
  if (fs::exists(out, error) && !(fs::is_directory(out, error) && fs::is_empty(out, error))) {
    return absl::AlreadyExistsError(absl::StrCat(
        options.out, " exists and is not an empty directory; remove it or choose another --out"));
  }
  if (out.has_parent_path()) LEEWAY_RETURN_IF_ERROR(MakeDirectory(out.parent_path()));
  const std::string temporary = absl::StrCat(out.string(), ".tmp", getpid());
  const absl::Cleanup remove = [&] { fs::remove_all(temporary, error); };
  LEEWAY_RETURN_IF_ERROR(WriteAll(options, temporary));
  fs::rename(temporary, out, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot rename ", temporary, " to ", out.string()));
}

}  // namespace leeway
