// A client's report by name: tests build and read reports without knowing where a sum
// stands. A name that the task does not ask for throws std::out_of_range.
#ifndef LEEWAY_TESTS_NAMED_REPORT_H_
#define LEEWAY_TESTS_NAMED_REPORT_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/client_report.h"
#include "common/sums.h"
#include "common/tally.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

// The place of a sum, for indexing.
inline size_t PlaceOf(int place, absl::string_view name) {
  if (place == TaskSums::kNone) throw std::out_of_range("no sum " + std::string(name));
  return static_cast<size_t>(place);
}

template <typename T = double>
class NamedReport {
 public:
  // All zeros. `sums` must outlive this.
  explicit NamedReport(const TaskSums& sums, uint64_t weight = 1) : sums_(sums) {
    report_.weight = weight;
    report_.numbers.resize(sums.numbers());
    report_.vectors.resize(sums.vectors() * sums.shape().dimension);
  }
  // What a client computed.
  NamedReport(const TaskSums& sums, ClientReport<T> report)
      : sums_(sums), report_(std::move(report)) {}

  NamedReport& Set(absl::string_view name, double value, uint32_t steps = 0) {
    report_.numbers.at(PlaceOf(sums_.number(name, steps), name)) = value;
    return *this;
  }
  NamedReport& Set(absl::string_view name, const Vector<T>& value, uint32_t steps = 0) {
    Map(name, steps) = value;
    return *this;
  }
  // Fills in what follows from the rest.
  NamedReport& Derive() {
    sums_.Derive<T>(report_.weight, report_.vectors, absl::MakeSpan(report_.numbers));
    return *this;
  }

  double number(absl::string_view name, uint32_t steps = 0) const {
    return report_.numbers.at(PlaceOf(sums_.number(name, steps), name));
  }
  Vector<T> vector(absl::string_view name, uint32_t steps = 0) const {
    return const_cast<NamedReport*>(this)->Map(name, steps);
  }
  ClientReport<T>& report() { return report_; }
  const ClientReport<T>& report() const { return report_; }

  absl::Status AddTo(Tally& tally, size_t group = 0) const {
    return tally.Add<T>(group, report_.weight, report_.numbers, report_.vectors);
  }
  // Fills in a header and returns the payload, of a task without a short encoding.
  std::string Write(v1::ReportHeader& header) const {
    header.set_encoding(sizeof(T) == sizeof(double) ? v1::FLOAT64 : v1::FLOAT32);
    header.set_weight(report_.weight);
    header.clear_numbers();
    for (const double number : sums_.Sent(report_.numbers)) header.add_numbers(number);
    const auto* bytes = reinterpret_cast<const char*>(report_.vectors.data());
    header.set_payload_size(report_.vectors.size() * sizeof(T));
    return std::string(bytes, report_.vectors.size() * sizeof(T));
  }

 private:
  Eigen::Map<Vector<T>> Map(absl::string_view name, uint32_t steps) {
    const size_t dimension = sums_.shape().dimension;
    const size_t begin = PlaceOf(sums_.vector(name, steps), name) * dimension;
    return {&report_.vectors.at(begin), static_cast<Eigen::Index>(dimension)};
  }

  const TaskSums& sums_;
  ClientReport<T> report_;
};

// The sums of a tally by name.
inline double NumberIn(const Tally& tally, const TaskSums& sums, absl::string_view name,
                       uint32_t steps = 0) {
  return tally.number(PlaceOf(sums.number(name, steps), name));
}
inline Vector<double> VectorIn(const Tally& tally, const TaskSums& sums, absl::string_view name,
                               uint32_t steps = 0) {
  return tally.vector(PlaceOf(sums.vector(name, steps), name));
}

// Sets what may be of a task's vectors to `largest`, and their units for clients of this
// weight in all.
inline void SetRange(double largest, uint64_t total_weight, v1::Task& task) {
  for (v1::Sum& sum : *task.mutable_sums()) {
    if (sum.shape() != v1::NUMBER) sum.set_largest(largest);
  }
  SetUnits(total_weight, task);
}

}  // namespace leeway

#endif  // LEEWAY_TESTS_NAMED_REPORT_H_
