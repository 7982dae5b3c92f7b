#include "common/synthetic.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rng.h"
#include "common/status.h"
#include "common/uniforms.h"

namespace leeway {
namespace {

constexpr double kLargestScale = 5;  // nu_c ~ U(0, 5)
constexpr uint64_t kMostNumbers = uint64_t{1} << 31;

// The stream of a client's scale and inputs.
Rng InputStream(const SyntheticProblem& problem, absl::string_view id) {
  return Rng(problem.seed, 0, ClientKey(id), Purpose::kSyntheticClient);
}

// nu_c, from the first number of the client's stream.
double Scale(const SyntheticProblem& problem, double uniform) {
  return problem.condition > 0 ? kLargestScale - uniform : kLargestScale * uniform;
}
double DrawScale(const SyntheticProblem& problem, Rng& rng) {
  return Scale(problem, rng.Uniform());
}

// y[i] = <w, row i of x>. Each sum goes from the first coordinate to the last; several rows
// at a time, so that no addition waits for the one before it.
void SetProducts(const std::vector<double>& w, const std::vector<double>& x,
                 std::vector<double>& y) {
  constexpr size_t kRows = 8;
  const size_t d = w.size();
  size_t i = 0;
  for (; i + kRows <= y.size(); i += kRows) {
    const double* rows = x.data() + i * d;
    double sums[kRows] = {};
    for (size_t j = 0; j < d; ++j) {
      for (size_t r = 0; r < kRows; ++r) sums[r] += w[j] * rows[r * d + j];
    }
    std::copy_n(sums, kRows, y.data() + i);
  }
  for (; i < y.size(); ++i) {
    y[i] = std::inner_product(w.begin(), w.end(), x.data() + i * d, 0.0);
  }
}

// Adds sd * N(0, 1) to each value, as Rng::Normal draws it.
void AddNoise(double sd, Uniforms& stream, std::vector<double>& values) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  std::vector<double> uniforms(2 * values.size());
  stream.Fill(absl::MakeSpan(uniforms));
  for (size_t i = 0; i < values.size(); ++i) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniforms[2 * i]));
    values[i] += sd * (radius * std::cos(kTwoPi * uniforms[2 * i + 1]));
  }
}

// Scales of the coordinates: squares fall geometrically from 1 to 1 / condition.
std::vector<double> CoordinateScales(const SyntheticProblem& problem) {
  std::vector<double> scales(problem.dimension, 1);
  if (problem.condition == 0 || problem.dimension == 1) return scales;
  for (size_t j = 0; j < scales.size(); ++j) {
    const double place = static_cast<double>(j) / (problem.dimension - 1);
    scales[j] = std::pow(problem.condition, -0.5 * place);
  }
  return scales;
}

// Reads or writes every field, by its name.
template <typename Problem, typename Visit>
void EachField(Problem& p, const Visit& visit) {
  visit("clients", p.clients);
  visit("samples", p.samples);
  visit("dimension", p.dimension);
  visit("noise_sd", p.noise_sd);
  visit("truth_sd", p.truth_sd);
  visit("seed", p.seed);
  visit("conflict", p.conflict);
  visit("identical", p.identical);
  visit("equal_hessians", p.equal_hessians);
  visit("condition", p.condition);
}

}  // namespace

absl::Status CheckSynthetic(const SyntheticProblem& problem) {
  for (const auto& [flag, value] :
       {std::pair("--clients", problem.clients), std::pair("--samples", problem.samples),
        std::pair("--dimension", problem.dimension)}) {
    if (value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " is 0; it must be at least 1"));
    }
  }
  for (const auto& [flag, value] :
       {std::pair("--noise-sd", problem.noise_sd), std::pair("--truth-sd", problem.truth_sd)}) {
    if (!std::isfinite(value) || value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " is ", value, "; it must be a number of at least 0"));
    }
  }
  if (!std::isfinite(problem.conflict)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--conflict is ", problem.conflict, "; it must be a number"));
  }
  if (problem.condition != 0 && !(problem.condition >= 1 && std::isfinite(problem.condition))) {
    return absl::InvalidArgumentError(absl::StrCat("--condition is ", problem.condition,
                                                   "; a condition number is at least 1 (0: off)"));
  }
  if ((problem.conflict != 0) + problem.identical + problem.equal_hessians > 1) {
    return absl::InvalidArgumentError(
        "--conflict, --identical and --equal-hessians exclude each other; choose one");
  }
  if (uint64_t{problem.samples} * problem.dimension > kMostNumbers) {
    return absl::InvalidArgumentError(absl::StrCat("--samples times --dimension is more than ",
                                                   kMostNumbers,
                                                   "; use more clients with fewer samples"));
  }
  return absl::OkStatus();
}

std::vector<double> SyntheticTruth(const SyntheticProblem& problem) {
  Rng rng(problem.seed, 0, 0, Purpose::kSyntheticTruth);
  std::vector<double> truth(problem.dimension);
  for (double& w : truth) w = problem.truth_sd * rng.Normal();
  return truth;
}

SyntheticClient MakeSyntheticClient(const SyntheticProblem& problem,
                                    const std::vector<double>& truth, absl::string_view id) {
  Uniforms inputs(InputStream(
      problem, problem.equal_hessians ? SyntheticClientName(0, problem.clients) : std::string(id)));
  SyntheticClient client;
  client.scale = Scale(problem, inputs.Next());
  std::vector<double> scales = CoordinateScales(problem);
  for (double& scale : scales) scale = client.scale * scale;
  const double centre = problem.condition > 0 ? 0.5 : 0;
  const size_t d = problem.dimension;
  client.x.resize(problem.samples * d);
  inputs.Fill(absl::MakeSpan(client.x));
  for (size_t i = 0; i < problem.samples; ++i) {
    double* x = client.x.data() + i * d;
    for (size_t j = 0; j < d; ++j) x[j] = scales[j] * (x[j] - centre);
  }
  // The noise comes last and is always drawn: the inputs do not depend on it.
  client.y.resize(problem.samples);
  if (!problem.equal_hessians) {
    SetProducts(truth, client.x, client.y);
    AddNoise(problem.noise_sd, inputs, client.y);
    return client;
  }
  Uniforms own(Rng(problem.seed, 1, ClientKey(id), Purpose::kSyntheticClient));
  std::vector<double> shifts(d, 0.0);
  AddNoise(1, own, shifts);
  std::vector<double> own_truth = truth;
  for (size_t j = 0; j < d; ++j) own_truth[j] += shifts[j];
  SetProducts(own_truth, client.x, client.y);
  AddNoise(problem.noise_sd, own, client.y);
  return client;
}

std::string SyntheticClientName(uint32_t client, uint32_t clients) {
  const int width = std::max<int>(3, static_cast<int>(std::to_string(clients - 1).size()));
  return absl::StrFormat("client_%0*d", width, client);
}

SyntheticClients::SyntheticClients(const SyntheticProblem& problem)
    : problem_(problem), truth_(SyntheticTruth(problem)) {
  if (problem_.conflict == 0) return;
  for (uint32_t c = 0; c < problem_.clients; ++c) {
    Rng rng = InputStream(problem_, Name(c));
    mean_scale_ += DrawScale(problem_, rng);
  }
  mean_scale_ /= problem_.clients;
}

SyntheticClient SyntheticClients::Make(uint32_t client) const {
  const std::string id = Name(problem_.identical ? 0 : client);
  if (problem_.conflict == 0) return MakeSyntheticClient(problem_, truth_, id);
  Rng rng = InputStream(problem_, id);
  const double shift =
      problem_.conflict * (DrawScale(problem_, rng) - mean_scale_) / std::sqrt(problem_.dimension);
  std::vector<double> own = truth_;
  for (double& w : own) w += shift;
  return MakeSyntheticClient(problem_, own, id);
}

std::string SyntheticJson(const SyntheticProblem& problem) {
  nlohmann::ordered_json json;
  EachField(problem, [&](const char* name, const auto& value) { json[name] = value; });
  return json.dump(1) + "\n";
}

absl::StatusOr<SyntheticProblem> ReadSynthetic(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read; check the path"));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const std::string remedy = "; write it with `leeway data synthetic --on-the-fly`";
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": this is not a JSON object", remedy));
  }
  SyntheticProblem problem;
  std::string wrong;
  size_t known = 0;
  EachField(problem, [&](const char* name, auto& value) {
    using Value = std::decay_t<decltype(value)>;
    const auto found = json.find(name);
    const bool fits =
        found != json.end() && (std::is_same_v<Value, bool>     ? found->is_boolean()
                                : std::is_same_v<Value, double> ? found->is_number()
                                                                : found->is_number_unsigned());
    if (!fits ||
        (std::is_same_v<Value, uint32_t> && found->template get<uint64_t>() > ~uint32_t{0})) {
      wrong = name;
      return;
    }
    value = found->template get<Value>();
    ++known;
  });
  if (!wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": '", wrong, "' is missing or has a wrong value", remedy));
  }
  if (known != json.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": there is an unknown field", remedy));
  }
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckSynthetic(problem), path));
  return problem;
}

}  // namespace leeway
