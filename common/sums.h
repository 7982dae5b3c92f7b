// The sums that a task asks for, by name: what each is made of, where it stands in
// reports and tallies, and which numbers follow from the rest of a report. Client and
// server read a task through TaskSums; docs/wire-format.md is the same in words.
#ifndef LEEWAY_COMMON_SUMS_H_
#define LEEWAY_COMMON_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/known_sums.h"
#include "common/tally.h"
#include "proto/federation.pb.h"

namespace leeway {

// Adds a sum to a task, unless the task asks for it already, and returns it.
v1::Sum& Ask(absl::string_view name, v1::Task& task, uint32_t steps = 0);
// Adds a count of clients above `threshold`.
void AskAbove(absl::string_view name, double threshold, v1::Task& task);
// Does the task ask for it, after whatever number of steps?
bool Asks(const v1::Task& task, absl::string_view name);
// NAME of "metric/NAME"; empty if the sum is another.
absl::string_view MetricName(absl::string_view sum);
// Can these be the metrics of a task? The message completes "the list of metrics ...".
absl::Status CheckMetricNames(absl::Span<const std::string* const> names);
// Sets the unit of every vector to the finest with which the sum of clients of this
// weight cannot overflow.
void SetUnits(uint64_t total_weight, v1::Task& task);
// Every name is known, has its shape and comes with the sums that it needs; every unit is a
// power of two. A client that answers such a task leaves no sum out.
absl::Status CheckSums(const v1::Task& task);

// |x|^2 in float64. The same bits on every machine: the order of the additions is fixed.
template <typename T>
double SquaredNorm(absl::Span<const T> x);

// A task's sums. Constant after construction.
class TaskSums {
 public:
  static constexpr int kNone = -1;

  TaskSums() = default;
  // `dimension` is the number of the model's parameters.
  TaskSums(const v1::Task& task, size_t dimension);

  // Place of a sum among the numbers or the vectors of a report and of a tally; kNone
  // where the task does not ask for it. Of a matrix, and of counts, the first place.
  int number(absl::string_view name, uint32_t steps = 0) const;
  int vector(absl::string_view name, uint32_t steps = 0) const;
  // The steps at which the task asks for this vector, in its order.
  std::vector<uint32_t> StepsOf(absl::string_view name) const;

  const TallyShape& shape() const { return shape_; }
  size_t numbers() const { return shape_.numbers.size(); }
  size_t vectors() const { return shape_.vectors.size(); }

  // Fills in those of all numbers that follow from the rest of the report. With
  // `decoded`, the vectors have been through a short encoding: what follows from
  // vectors was sent and stays.
  template <typename T>
  void Derive(uint64_t weight, absl::Span<const T> vectors, absl::Span<double> numbers,
              bool decoded = false) const;
  // Is this number one of those that Derive fills in?
  bool Follows(size_t number) const;
  // Does its sum count clients, whatever they weigh? Then it is at most 1/v of one of them.
  bool CountsClients(size_t number) const;
  // The numbers of a report that are sent: all but those that Derive fills in.
  size_t sent_numbers() const;
  std::vector<double> Sent(absl::Span<const double> numbers) const;
  // All numbers, from those that were sent; the others are 0 until Derive.
  std::vector<double> Spread(absl::Span<const double> sent) const;

 private:
  struct Place {
    std::string name;
    uint32_t steps = 0;
    int at = 0;
  };
  // number = (source or 1), squared if so, times the weight if so. Of a count: 1 over the weight
  // if the norm of its source is above the threshold, else 0.
  struct Derived {
    size_t at = 0;
    bool from_vector = false;
    int source = kNone;
    bool squared = false;
    bool weighted = false;
    bool count = false;
    double threshold = 0;
  };

  static int Find(const std::vector<Place>& places, absl::string_view name, uint32_t steps);
  bool IsSent(size_t number) const { return sent_[number]; }

  TallyShape shape_;
  std::vector<Place> numbers_;
  std::vector<Place> vectors_;
  std::vector<Derived> derived_;
  std::vector<bool> sent_;  // of each number
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_SUMS_H_
