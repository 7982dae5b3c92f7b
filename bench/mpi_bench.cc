// What the ranks of an MPI job do together beside bare MPI, in turn in one run: the sum of d
// integers (Ranks::Sum, MPI_Reduce) and a model of d floats (Ranks::Broadcast, MPI_Bcast).
// A line per d: medians in microseconds, and the bare call's time over ours, of medians and of
// the fastest, which a busy machine disturbs less.
//
//   mpirun -n 2 mpi_bench [repeats [d...]]        (default 15 1000 1000000 10000000)
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "engines/mpi/ranks.h"

namespace leeway {
namespace {

double Seconds(const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto began = std::chrono::steady_clock::now();
  call();
  MPI_Barrier(MPI_COMM_WORLD);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Pair {
  std::vector<double> ours, bare;
  void Take(const std::function<void()>& own, const std::function<void()>& other) {
    // Who comes second finds the values in the cache: they take turns.
    const bool own_first = ours.size() % 2 == 0;
    if (own_first) ours.push_back(Seconds(own));
    bare.push_back(Seconds(other));
    if (!own_first) ours.push_back(Seconds(own));
  }
};

void Print(const char* what, size_t d, Pair& pair) {
  const double ours = Median(pair.ours);
  const double bare = Median(pair.bare);
  const double fastest = *std::min_element(pair.ours.begin(), pair.ours.end());
  const double fastest_bare = *std::min_element(pair.bare.begin(), pair.bare.end());
  std::printf("%-9s d = %9zu  ours %10.1f us  bare %10.1f us  bare / ours %5.2f, fastest %5.2f\n",
              what, d, 1e6 * ours, 1e6 * bare, bare / ours, fastest_bare / fastest);
}

void Measure(const Ranks& ranks, size_t d, int repeats) {
  std::vector<int64_t> sums(d, 1);
  std::vector<int64_t> result(d);
  std::vector<float> model(d, 1);
  Pair sum;
  Pair broadcast;
  for (int i = 0; i < repeats + 2; ++i) {
    if (i == 2) sum = broadcast = {};  // the first map memory and make connections
    // In place on rank 0 in both: that is where the sum is needed.
    sum.Take([&] { ranks.Sum(absl::MakeSpan(sums)); },
             [&] {
               MPI_Reduce(ranks.first() ? MPI_IN_PLACE : result.data(), result.data(),
                          static_cast<int>(d), MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
             });
    broadcast.Take(
        [&] {
          ranks.Broadcast(absl::MakeSpan(reinterpret_cast<std::byte*>(model.data()),
                                         model.size() * sizeof(float)));
        },
        [&] { MPI_Bcast(model.data(), static_cast<int>(d), MPI_FLOAT, 0, MPI_COMM_WORLD); });
  }
  if (!ranks.first()) return;
  Print("sum", d, sum);
  Print("broadcast", d, broadcast);
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  leeway::Ranks ranks;
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  std::vector<size_t> sizes = {1000, 1000000, 10000000};
  if (argc > 2) sizes.clear();
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  for (const size_t d : sizes) leeway::Measure(ranks, d, repeats);
  ranks.Finish();
  return 0;
}
