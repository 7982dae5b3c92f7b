// Training steps of the networks against what this CPU can do at all: in the same
// run and interleaved with them, single-thread products of 512 x 512 matrices by
// Eigen and by our own kernels. The limit is the better of the two.
//
//   flops  useful floating-point operations per second of a training step
//          (forward, gradient in inputs, gradient in parameters)
//   share  of the limit measured just before and just after
//
// On a shared machine compare shares, not rates: --benchmark_repetitions=5.
#include <benchmark/benchmark.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "client/networks/architectures.h"
#include "client/networks/gemm.h"
#include "client/objective.h"
#include "common/model_layout.h"
#include "common/npy.h"
#include "common/rng.h"
#include "google/protobuf/text_format.h"

namespace leeway::networks {
namespace {

using benchmark::Counter;

// Time this thread has computed: waiting for a shared core does not count.
double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Operations per second of the best of a few runs.
template <typename Work>
double BestRate(double operations, Work work) {
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    const double start = Seconds();
    work();
    best = std::max(best, operations / (Seconds() - start));
  }
  return best;
}

constexpr Index kN = 512;
constexpr double kProductFlops = 2.0 * kN * kN * kN;

struct Square {
  Matrix<float> a = Matrix<float>::Random(kN, kN);
  Matrix<float> b = Matrix<float>::Random(kN, kN);
  Matrix<float> c = Matrix<float>::Zero(kN, kN);
  void ByEigen() { c.noalias() = a * b; }
  void ByUs() {
    const Matrix<float>&x = a, &y = b;
    Multiply<float>(View(x.data(), kN, kN), View(y.data(), kN, kN), View(c.data(), kN, kN),
                    Write::kSet);
  }
};

double Limit() {
  static Square square;
  return std::max(BestRate(kProductFlops, [] { square.ByEigen(); }),
                  BestRate(kProductFlops, [] { square.ByUs(); }));
}

void BM_SgemmEigen(benchmark::State& state) {
  Square square;
  for (auto _ : state) square.ByEigen();
  state.counters["flops"] = Counter(kProductFlops, Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_SgemmEigen)->Unit(benchmark::kMillisecond);

void BM_SgemmLeeway(benchmark::State& state) {
  Square square;
  for (auto _ : state) square.ByUs();
  state.counters["flops"] = Counter(kProductFlops, Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_SgemmLeeway)->Unit(benchmark::kMillisecond);

v1::Model Parse(const std::string& text) {
  v1::Model model;
  google::protobuf::TextFormat::ParseFromString(text, &model);
  return model;
}

v1::DataSchema Schema(std::initializer_list<uint64_t> shape) {
  v1::DataSchema schema;
  for (uint64_t extent : shape) schema.add_feature_shape(extent);
  schema.set_labels(true);
  return schema;
}

// Through a file, as a client would have it.
template <typename T>
NpyArray InFile(const std::vector<uint64_t>& shape, const std::vector<T>& values) {
  const std::string path = "/tmp/leeway_networks_bench_" + std::to_string(getpid()) + ".npy";
  if (!WriteNpy<T>(path, shape, values).ok()) std::abort();
  NpyArray array = NpyArray::Map(path).value();
  unlink(path.c_str());
  return array;
}

// One training step after the other on a random batch that stays the same.
void TrainSteps(benchmark::State& state, const v1::Model& model, const v1::DataSchema& schema,
                Index batch, int32_t classes, double flops) {
  const auto network = MakeNetwork<float>(model, schema, batch);
  const ModelLayout layout = LayoutOf(model, schema).value();
  const auto w = std::get<Vector<float>>(InitialModel(layout, 1));
  Vector<float> gradient(w.size());
  const Extent extent = network->largest();
  Rng rng(1, 2, 3, Purpose::kTest);
  Vector<float> inputs(extent.rows() * network->inputs());
  for (float& x : inputs) x = static_cast<float>(rng.Uniform());
  for (Index i = 0; i < extent.rows(); ++i) {
    const auto label = [&] {
      return 1 + static_cast<int32_t>(rng.Below(static_cast<uint64_t>(classes - 1)));
    };
    if (network->takes_tokens()) network->tokens()[i] = label();
    network->targets()[i] = label();
  }
  const float scale = 1 / static_cast<float>(extent.rows());
  const double limit_before = Limit();
  double best = 1e9;
  for (auto _ : state) {
    if (!network->takes_tokens()) std::copy_n(inputs.data(), inputs.size(), network->batch());
    const double start = Seconds();
    network->Train(w.data(), extent, scale, nullptr, gradient.data(), Write::kSet);
    best = std::min(best, Seconds() - start);
    benchmark::DoNotOptimize(gradient.data());
  }
  state.counters["flops"] = Counter(flops, Counter::kIsIterationInvariantRate);
  state.counters["best_flops"] = flops / best;
  const double limit = std::max(limit_before, Limit());
  state.counters["limit"] = limit;
  state.counters["share"] = flops / best / limit;
}

void BM_CnnTraining(benchmark::State& state) {
  const double conv1 = 2.0 * 26 * 26 * 9 * 32, conv2 = 2.0 * 24 * 24 * 9 * 32 * 64;
  const double dense = 2.0 * (9216 * 128 + 128 * 62);
  const auto batch = static_cast<double>(state.range(0));
  // The gradient in the image itself is not needed.
  TrainSteps(state, Parse("cnn { classes: 62 }"), Schema({28, 28}), state.range(0), 62,
             batch * (2 * conv1 + 3 * conv2 + 3 * dense));
}
BENCHMARK(BM_CnnTraining)->Arg(20)->Arg(32)->Unit(benchmark::kMillisecond);

double LstmFlops(double inputs, double hidden) { return 2 * (inputs + hidden) * 4 * hidden; }

void BM_NextCharacterTraining(benchmark::State& state) {
  const double step = LstmFlops(8, 256) + LstmFlops(256, 256) + 2.0 * 256 * 90;
  TrainSteps(state, Parse("lstm { vocabulary: 90 embedding: 8 hidden: 256 hidden: 256 }"),
             Schema({80}), state.range(0), 90, 3 * static_cast<double>(state.range(0)) * 80 * step);
}
BENCHMARK(BM_NextCharacterTraining)->Arg(16)->Unit(benchmark::kMillisecond);

void BM_NextWordTraining(benchmark::State& state) {
  const double step = LstmFlops(96, 670) + 2.0 * 670 * 96 + 2.0 * 96 * 10004;
  TrainSteps(state, Parse("lstm { vocabulary: 10004 embedding: 96 hidden: 670 projection: 96 }"),
             Schema({20}), state.range(0), 10004,
             3 * static_cast<double>(state.range(0)) * 20 * step);
}
BENCHMARK(BM_NextWordTraining)->Arg(16)->Unit(benchmark::kMillisecond);

// Softmax regression in float32: a perceptron without hidden layers. At 62
// classes it is bound by arithmetic, not memory.
void BM_SoftmaxTraining(benchmark::State& state) {
  TrainSteps(state, Parse("mlp { classes: 62 }"), Schema({784}), state.range(0), 62,
             static_cast<double>(state.range(0)) * 2 * 2.0 * 784 * 62);
}
BENCHMARK(BM_SoftmaxTraining)->Arg(20)->Arg(256)->Unit(benchmark::kMillisecond);

// The convex model, in float64, over a client's whole data: against what binds it,
// products of 512 x 512 matrices of doubles by Eigen, or reading its inputs once.
// Arguments: examples, classes.
void BM_SoftmaxRegression(benchmark::State& state) {
  const auto rows = static_cast<uint64_t>(state.range(0));
  const auto classes = static_cast<uint64_t>(state.range(1));
  const uint64_t features = 784;
  Dataset data;
  data.id = "bench";
  std::vector<double> x(rows * features);
  std::vector<int32_t> y(rows);
  Rng rng(1, 2, 3, Purpose::kTest);
  for (double& value : x) value = rng.Uniform();
  for (int32_t& label : y) label = static_cast<int32_t>(rng.Below(classes));
  data.train = {InFile<double>({rows, features}, x), InFile<int32_t>({rows}, y)};
  auto objective = std::get<std::unique_ptr<Objective<double>>>(
      MakeObjective(Parse("softmax_regression { classes: " + std::to_string(classes) + " }"), data)
          .value());
  const Vector<double> w = Vector<double>::Zero(static_cast<Index>((features + 1) * classes));
  Vector<double> gradient(w.size());

  const Matrix<double> a = Matrix<double>::Random(kN, kN), b = a;
  Matrix<double> c(kN, kN);
  const auto product = [&] { c.noalias() = a * b; };
  const double before = BestRate(kProductFlops, product);
  double best = 1e9;
  for (auto _ : state) {
    const double start = Seconds();
    benchmark::DoNotOptimize(objective->Evaluate(w, {}, gradient));
    best = std::min(best, Seconds() - start);
  }
  const double flops = 2 * 2.0 * static_cast<double>(rows * features * classes);
  const double limit = std::max(before, BestRate(kProductFlops, product));
  const Eigen::Map<const Vector<double>> inputs(x.data(), static_cast<Index>(x.size()));
  const double values =
      BestRate(static_cast<double>(x.size()), [&] { benchmark::DoNotOptimize(inputs.sum()); });
  const double least = std::max(flops / limit, static_cast<double>(x.size()) / values);
  state.counters["flops"] = Counter(flops, Counter::kIsIterationInvariantRate);
  state.counters["best_flops"] = flops / best;
  state.counters["limit"] = limit;
  state.counters["memory_binds"] = least > flops / limit ? 1 : 0;
  state.counters["share"] = least / best;
}
BENCHMARK(BM_SoftmaxRegression)
    ->Args({140, 62})
    ->Args({2000, 62})
    ->Args({2000, 10})
    ->Args({20000, 10})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace leeway::networks

BENCHMARK_MAIN();
