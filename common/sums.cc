#include "common/sums.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace leeway {
namespace {

// In every round for every sum, so by a table.
const KnownSum* Know(absl::string_view name) {
  static const auto* const table = [] {
    auto* all = new absl::flat_hash_map<absl::string_view, const KnownSum*>();
    for (const KnownSum& known : kKnown) all->emplace(known.name, &known);
    return all;
  }();
  if (const auto found = table->find(name); found != table->end()) return found->second;
  return MetricName(name).empty() ? nullptr : &kKnownMetric;
}

// The sum without which a report cannot have this one; empty if there is none.
absl::string_view NeededBy(const KnownSum& known) {
  for (const auto& [name, vector] : kBesideVectors) {
    if (absl::string_view(known.name) == name) return vector;
  }
  return known.source == nullptr ? absl::string_view() : known.source;
}

bool IsCount(absl::string_view name) {
  return absl::EndsWith(name, "_above") && MetricName(name).empty();
}

// Values along the local path are drifts and what belongs to them.
bool HasSteps(const KnownSum& known) {
  return absl::string_view(known.name) == kDrift || NeededBy(known) == kDrift;
}

bool Asks(const v1::Task& task, absl::string_view name, uint32_t steps) {
  return std::any_of(task.sums().begin(), task.sums().end(), [&](const v1::Sum& sum) {
    return sum.name() == name && sum.steps() == steps;
  });
}

std::string Title(const v1::Sum& sum) {
  return sum.steps() == 0 ? sum.name() : absl::StrCat(sum.name(), " after ", sum.steps(), " steps");
}

v1::Sum& Add(absl::string_view name, v1::Task& task) {
  v1::Sum& sum = *task.add_sums();
  sum.set_name(std::string(name));
  if (const KnownSum* known = Know(name)) {
    sum.set_shape(known->shape);
    sum.set_smallest(known->smallest);
    sum.set_largest(known->largest);
  }
  return sum;
}

}  // namespace

v1::Sum& Ask(absl::string_view name, v1::Task& task, uint32_t steps) {
  for (v1::Sum& sum : *task.mutable_sums()) {
    if (sum.name() == name && sum.steps() == steps) return sum;
  }
  v1::Sum& sum = Add(name, task);
  sum.set_steps(steps);
  return sum;
}

void AskAbove(absl::string_view name, double threshold, v1::Task& task) {
  Add(name, task).set_threshold(threshold);
}

bool Asks(const v1::Task& task, absl::string_view name) {
  return std::any_of(task.sums().begin(), task.sums().end(),
                     [&](const v1::Sum& sum) { return sum.name() == name; });
}

absl::string_view MetricName(absl::string_view sum) {
  return absl::ConsumePrefix(&sum, kMetric) ? sum : absl::string_view();
}

absl::Status CheckMetricNames(absl::Span<const std::string* const> names) {
  if (names.size() > kMostMetrics) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", names.size(), " names; give at most ", kMostMetrics));
  }
  std::set<absl::string_view> seen;
  for (const std::string* name : names) {
    const bool plain = std::all_of(name->begin(), name->end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
    });
    if (name->empty() || name->size() > kLongestMetric || !plain) {
      return absl::InvalidArgumentError(absl::StrCat("has the name '", absl::CHexEscape(*name),
                                                     "'; give 1 to ", kLongestMetric,
                                                     " letters, digits, '_', '-' and '.'"));
    }
    if (!seen.insert(*name).second) {
      return absl::InvalidArgumentError(absl::StrCat("has '", *name, "' twice; give it once"));
    }
  }
  return absl::OkStatus();
}

void SetUnits(uint64_t total_weight, v1::Task& task) {
  for (v1::Sum& sum : *task.mutable_sums()) {
    if (sum.shape() == v1::NUMBER) continue;
    sum.set_unit(std::ldexp(1.0, -FractionBits(sum.largest(), total_weight)));
  }
}

absl::Status CheckSums(const v1::Task& task) {
  std::vector<std::pair<absl::string_view, uint32_t>> seen;
  seen.reserve(static_cast<size_t>(task.sums_size()));
  for (const v1::Sum& sum : task.sums()) {
    const KnownSum* known = Know(sum.name());
    if (known == nullptr || known->shape != sum.shape()) {
      return absl::UnimplementedError(absl::StrCat(
          "task.sums asks for '", sum.name(), "' as ", v1::SumShape_Name(sum.shape()),
          ", which this client does not know; install the server's version of Leeway"));
    }
    if (sum.steps() != 0 && !HasSteps(*known)) {
      return absl::UnimplementedError(
          absl::StrCat("task.sums asks for '", sum.name(), "' after ", sum.steps(),
                       " steps; this client reports it for the whole task only: ask for 0 steps"));
    }
    const absl::string_view needed = NeededBy(*known);
    if (!needed.empty() && !Asks(task, needed, sum.steps())) {
      return absl::UnimplementedError(
          absl::StrCat("task.sums asks for '", Title(sum), "' without '", needed,
                       "'; this client reports it with that one only: ask for both"));
    }
    const std::pair<absl::string_view, uint32_t> one(sum.name(), sum.steps());
    if (!IsCount(sum.name()) && absl::c_linear_search(seen, one)) {
      return absl::InvalidArgumentError(
          absl::StrCat("task.sums asks for '", Title(sum), "' twice; ask for it once"));
    }
    if (!IsCount(sum.name())) seen.push_back(one);
    int exponent = 0;
    if (sum.shape() != v1::NUMBER &&
        !(sum.unit() > 0 && std::frexp(sum.unit(), &exponent) == 0.5 && sum.largest() > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the unit of '", sum.name(), "' is ", sum.unit(), " and its largest value ",
                       sum.largest(), "; expected a power of two and a positive number"));
    }
  }
  return absl::OkStatus();
}

template <typename T>
double SquaredNorm(absl::Span<const T> x) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) {
      const auto value = static_cast<double>(x[i + k]);
      lanes[k] += value * value;
    }
  }
  for (size_t k = 0; i < x.size(); ++i, ++k) {
    const auto value = static_cast<double>(x[i]);
    lanes[k] += value * value;
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}
template double SquaredNorm<float>(absl::Span<const float>);
template double SquaredNorm<double>(absl::Span<const double>);

TaskSums::TaskSums(const v1::Task& task, size_t dimension) {
  shape_.dimension = dimension;
  shape_.groups = std::max<size_t>(1, task.groups());
  const auto numbers = static_cast<size_t>(
      absl::c_count_if(task.sums(), [](const v1::Sum& sum) { return sum.shape() == v1::NUMBER; }));
  numbers_.reserve(numbers);
  shape_.numbers.reserve(numbers);
  for (const v1::Sum& sum : task.sums()) {
    if (sum.shape() == v1::NUMBER) {
      numbers_.push_back({sum.name(), sum.steps(), static_cast<int>(shape_.numbers.size())});
      shape_.numbers.push_back({Title(sum), sum.smallest(), sum.largest()});
      continue;
    }
    const size_t count = sum.shape() == v1::MATRIX ? dimension : 1;
    vectors_.push_back({sum.name(), sum.steps(), static_cast<int>(shape_.vectors.size())});
    const int bits = sum.unit() > 0 ? -std::ilogb(sum.unit()) : 0;
    for (size_t k = 0; k < count; ++k) {
      shape_.vectors.push_back({Title(sum), bits, sum.largest()});
    }
  }
  sent_.assign(numbers_.size(), true);
  size_t i = 0;
  for (const v1::Sum& sum : task.sums()) {
    if (sum.shape() != v1::NUMBER) continue;
    const size_t at = i++;
    const KnownSum* known = Know(sum.name());
    if (known == nullptr || known->source == nullptr) continue;
    Derived derived{
        at, false, kNone, known->squared, known->weighted, IsCount(known->name), sum.threshold()};
    const absl::string_view source = known->source;
    if (!source.empty()) {
      derived.from_vector = Know(source)->shape == v1::VECTOR;
      derived.source =
          derived.from_vector ? vector(source, sum.steps()) : number(source, sum.steps());
      // Without its source in the report it is a number like others.
      if (derived.source == kNone) continue;
    }
    derived_.push_back(derived);
    // The server sees only what a short encoding leaves of a vector.
    sent_[at] = derived.from_vector && task.encoding() != v1::EXACT;
  }
}

int TaskSums::Find(const std::vector<Place>& places, absl::string_view name, uint32_t steps) {
  for (const Place& place : places) {
    if (place.steps == steps && place.name == name) return place.at;
  }
  return kNone;
}

int TaskSums::number(absl::string_view name, uint32_t steps) const {
  return Find(numbers_, name, steps);
}

int TaskSums::vector(absl::string_view name, uint32_t steps) const {
  return Find(vectors_, name, steps);
}

std::vector<uint32_t> TaskSums::StepsOf(absl::string_view name) const {
  std::vector<uint32_t> steps;
  for (const Place& place : vectors_) {
    if (place.name == name) steps.push_back(place.steps);
  }
  return steps;
}

template <typename T>
void TaskSums::Derive(uint64_t weight, absl::Span<const T> vectors, absl::Span<double> numbers,
                      bool decoded) const {
  int last = kNone;  // the vector whose squared norm is known: many counts are of one vector
  double last_squared = 0;
  double last_norm = 0;
  for (const Derived& one : derived_) {
    if (decoded && one.from_vector) continue;
    double value = 1;
    if (one.from_vector) {
      if (one.source != last) {
        last = one.source;
        last_squared = SquaredNorm(
            vectors.subspan(static_cast<size_t>(last) * shape_.dimension, shape_.dimension));
        last_norm = std::sqrt(last_squared);
      }
      value = last_squared;
      if (one.count) value = last_norm > one.threshold ? 1 / static_cast<double>(weight) : 0;
    } else if (one.source != kNone) {
      value = numbers[static_cast<size_t>(one.source)];
      if (one.squared) value *= value;
    }
    numbers[one.at] = one.weighted ? static_cast<double>(weight) * value : value;
  }
}
template void TaskSums::Derive<float>(uint64_t, absl::Span<const float>, absl::Span<double>,
                                      bool) const;
template void TaskSums::Derive<double>(uint64_t, absl::Span<const double>, absl::Span<double>,
                                       bool) const;

bool TaskSums::Follows(size_t number) const {
  return std::any_of(derived_.begin(), derived_.end(),
                     [&](const Derived& one) { return one.at == number; });
}

bool TaskSums::CountsClients(size_t number) const {
  const std::string& name = numbers_[number].name;
  return name == kDisplacementAbove || name == kLossDifferenceAbove ||
         name == kAccuracyDifferenceAbove;
}

size_t TaskSums::sent_numbers() const {
  return static_cast<size_t>(std::count(sent_.begin(), sent_.end(), true));
}

std::vector<double> TaskSums::Sent(absl::Span<const double> numbers) const {
  std::vector<double> sent;
  sent.reserve(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (IsSent(i)) sent.push_back(numbers[i]);
  }
  return sent;
}

std::vector<double> TaskSums::Spread(absl::Span<const double> sent) const {
  std::vector<double> numbers(sent_.size(), 0.0);
  size_t next = 0;
  for (size_t i = 0; i < numbers.size() && next < sent.size(); ++i) {
    if (IsSent(i)) numbers[i] = sent[next++];
  }
  return numbers;
}

}  // namespace leeway
