// Tally: the sum of client reports, as integers. A commutative monoid: empty,
// add a report, merge two. Because integer addition is exact, associative and
// commutative, the sum has the same bits in whatever order, through whatever
// processes, it was formed.
//
// A vector coordinate x of a client with weight v enters as round(v*x*2^f), with an f
// for each vector; a number v*x takes eight limbs of 32 bits, value = sum limb_k *
// 2^(32k-128). Tally is a value; it is not thread-safe.
#ifndef LEEWAY_COMMON_TALLY_H_
#define LEEWAY_COMMON_TALLY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/vectors.h"
#include "common/workers.h"

namespace leeway {

// A vector of every report, and how its coordinates become integers.
struct VectorSum {
  std::string name;       // for messages, such as "drift after 4 steps"
  int fraction_bits = 0;  // f
  double largest = 256;   // R: largest |x| of a coordinate

  bool operator==(const VectorSum&) const = default;
};

// A number of every report.
struct NumberSum {
  std::string name;
  double smallest = -kMostNumber;  // of one client, before its weight
  double largest = kMostNumber;

  bool operator==(const NumberSum&) const = default;

  static constexpr double kMostNumber = 0x1p126;  // so that it can be taken apart
};

// Everything that fixes the meaning of a tally's integers.
struct TallyShape {
  size_t dimension = 0;            // coordinates per vector
  std::vector<VectorSum> vectors;  // of each group
  std::vector<NumberSum> numbers;  // of each group
  size_t groups = 1;               // sums kept apart

  // Integers per group: clients, weight, numbers, vectors.
  size_t group_size() const { return vectors_begin() + vectors.size() * dimension; }
  size_t flat_size() const { return groups * group_size(); }
  // Where a group's vectors begin.
  size_t vectors_begin() const { return 2 + kLimbs * numbers.size(); }
  bool operator==(const TallyShape&) const = default;

  static constexpr size_t kLimbs = 8;
};

// What is known beforehand of the clients in a sum: those of one group.
struct GroupShare {
  uint64_t clients = 0;
  uint64_t weight = 0;
  uint64_t test_examples = 0;
};

// Largest f such that largest * total_weight * 2^f < 2^62.
int FractionBits(double largest, uint64_t total_weight);

// A number of one group in the integers of a tally of this shape.
double NumberIn(absl::Span<const int64_t> flat, const TallyShape& shape, size_t group,
                size_t index);

class Tally {
 public:
  // An empty tally (all zeros). The default one has no room for anything.
  Tally() = default;
  explicit Tally(const TallyShape& shape) { Reset(shape); }
  // Empty again, with another shape, in the same memory if it fits.
  void Reset(const TallyShape& shape, Workers* workers = nullptr);

  // Adds one client's report to `group`. T is float or double; `vectors` holds one
  // vector after the other. On any error (NaN, Inf, a value beyond its sum's largest,
  // a wrong length, weight < 1) the tally is unchanged and the status names the sum.
  // `workers` share long vectors among them.
  template <typename T>
  absl::Status Add(size_t group, uint64_t weight, absl::Span<const double> numbers,
                   absl::Span<const T> vectors, Workers* workers = nullptr);

  // Adds another tally of the same shape.
  absl::Status Merge(const Tally& other);
  // Adds the integers of another tally, given flat. Checks them against what
  // `clients` clients of total weight `weight` can have sent; unchanged on error.
  absl::Status MergeFlat(absl::Span<const int64_t> flat, uint64_t clients, uint64_t weight);

  const TallyShape& shape() const { return shape_; }
  // What is sent, masked, merged, reduced.
  absl::Span<const int64_t> flat() const { return flat_; }

  // The sums, over one group or (without an argument) all groups.
  uint64_t clients(size_t group) const;
  uint64_t clients() const;
  uint64_t weight(size_t group) const;
  uint64_t weight() const;
  double number(size_t group, size_t index) const;
  double number(size_t index) const;
  Vector<double> vector(size_t group, size_t index) const;
  Vector<double> vector(size_t index) const;
  // out.size() coordinates of that vector over all groups, from `begin` on.
  void Read(size_t index, size_t begin, absl::Span<double> out) const;

 private:
  // Can one group's integers, with so many clients and that weight, be a sum of reports?
  absl::Status CheckSums(absl::Span<const int64_t> in, size_t group) const;
  int64_t* group_begin(size_t group) { return flat_.data() + group * shape_.group_size(); }
  const int64_t* group_begin(size_t group) const {
    return flat_.data() + group * shape_.group_size();
  }

  TallyShape shape_;
  std::vector<int64_t> flat_;
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_TALLY_H_
