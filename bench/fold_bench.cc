// Folding a report into the tally, beside a double axpy over the same arrays.
#include <benchmark/benchmark.h>

#include <vector>

#include "common/rng.h"
#include "common/tally.h"

namespace leeway {
namespace {

std::vector<float> Values(size_t n) {
  Rng rng(1, 0, 0, Purpose::kTest);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(rng.Normal());
  return values;
}

void Fold(benchmark::State& state) {
  const auto n = static_cast<size_t>(state.range(0));
  Workers workers(static_cast<size_t>(state.range(1)));
  TallyShape shape;
  shape.dimension = n;
  const int bits = FractionBits(256, static_cast<uint64_t>(state.range(2)));
  shape.vectors = {{"displacement", bits, 256}};
  Tally tally(shape);
  const std::vector<float> values = Values(n);
  for (auto _ : state) {
    benchmark::DoNotOptimize(tally.Add<float>(0, 1, {}, values, &workers));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * n * sizeof(float)));
}
BENCHMARK(Fold)
    // With few clients a unit is so small that many values need all 62 bits.
    ->ArgNames({"d", "threads", "clients"})
    ->ArgsProduct({{1000, 1000000, 10000000}, {1, 2}, {10, 1000}})
    ->UseRealTime();

void Axpy(benchmark::State& state) {
  const auto n = static_cast<size_t>(state.range(0));
  const std::vector<float> x = Values(n);
  std::vector<double> y(n, 0.0);
  for (auto _ : state) {
    for (size_t i = 0; i < n; ++i) y[i] += 0.5 * static_cast<double>(x[i]);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * n * sizeof(float)));
}
BENCHMARK(Axpy)->ArgName("d")->Arg(1000)->Arg(1000000)->Arg(10000000)->UseRealTime();

}  // namespace
}  // namespace leeway

BENCHMARK_MAIN();
