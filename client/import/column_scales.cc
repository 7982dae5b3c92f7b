#include "client/import/column_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/import/client_name.h"

namespace leeway {
namespace {

// Ratios of mean squares: from kFarApart on training is slow enough to say so, if
// scaling makes it at least kGain times better. Rare categories alone stay below.
constexpr double kFarApart = 1000;
constexpr double kGain = 10;
// Typical sizes (roots of mean squares) between these need no scaling, ...
constexpr double kSmall = 0.1;
constexpr double kLarge = 10;
// ... and beyond these they are a problem even if all columns agree: updates come
// near the largest or the smallest number that a report can hold.
constexpr double kTiny = 1e-3;
constexpr double kHuge = 1e3;
// Wider inputs are images and the like, whose columns have no scale of their own.
constexpr size_t kMostColumns = 256;
constexpr size_t kMostNames = 5;

}  // namespace

void ColumnScales::Add(const Rows& rows) {
  if (rows.type.shape.size() != 1 || rows.type.shape[0] > kMostColumns) return;
  if (columns_.empty()) columns_.resize(rows.type.shape[0]);
  if (columns_.size() != rows.type.shape[0]) return;
  if (rows.type.type == NpyType::kFloat32) return AddRows<float>(rows);
  if (rows.type.type == NpyType::kFloat64) return AddRows<double>(rows);
  if (rows.type.type == NpyType::kInt64) return AddRows<int64_t>(rows);
}

template <typename T>
void ColumnScales::AddRows(const Rows& rows) {
  const std::byte* next = rows.bytes.data();
  for (uint64_t row = 0; row < rows.count; ++row) {
    for (Column& column : columns_) {
      T stored;
      std::memcpy(&stored, next, sizeof stored);
      next += sizeof stored;
      const auto value = static_cast<double>(stored);
      if (rows_ == 0) column.first = value;
      column.constant = column.constant && value == column.first;
      column.indicator = column.indicator && (value == 0 || value == 1);
      column.squares += value * value;
    }
    ++rows_;
  }
}

double ColumnScales::MeanSquare(const Column& column) const {
  return column.squares / static_cast<double>(rows_);
}

double ColumnScales::ConditionAtLeast() const {
  double least = 1;
  double most = 1;
  for (const Column& column : columns_) {
    const double square = rows_ == 0 ? 0 : MeanSquare(column);
    if (square > 0) least = std::min(least, square);
    most = std::max(most, square);
  }
  return most / least;
}

double ColumnScales::ConditionAfterScaling() const {
  double least = 1;
  for (const Column& column : columns_) {
    if (column.indicator && column.squares > 0) least = std::min(least, MeanSquare(column));
  }
  return 1 / least;
}

bool ColumnScales::OutOfScale(const Column& column) const {
  const double size = std::sqrt(MeanSquare(column));
  return size >= kLarge || (size > 0 && size <= kSmall && !column.indicator);
}

std::string ColumnScales::Advice(const std::vector<std::string>& names) const {
  if (rows_ == 0) return "";
  const double condition = ConditionAtLeast();
  double largest = 0;
  std::vector<size_t> named;  // columns out of scale, the farthest from 1 first
  std::string constant;
  const auto name = [&](size_t i) {
    return i < names.size() ? Printable(names[i]) : absl::StrCat("column ", i);
  };
  for (size_t i = 0; i < columns_.size(); ++i) {
    largest = std::max(largest, std::sqrt(MeanSquare(columns_[i])));
    if (!OutOfScale(columns_[i])) continue;
    named.push_back(i);
    if (columns_[i].constant && constant.empty()) constant = name(i);
  }
  const bool apart = condition >= kFarApart && condition >= kGain * ConditionAfterScaling();
  if (named.empty() || !(apart || largest >= kHuge || largest <= kTiny)) return "";
  std::stable_sort(named.begin(), named.end(), [this](size_t a, size_t b) {
    return std::abs(std::log(MeanSquare(columns_[a]))) >
           std::abs(std::log(MeanSquare(columns_[b])));
  });
  std::string text = "unscaled columns: ";
  for (size_t i = 0; i < std::min(named.size(), kMostNames); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", name(named[i]));
    absl::StrAppendFormat(&text, " (typical size %.3g)", std::sqrt(MeanSquare(columns_[named[i]])));
  }
  if (named.size() > kMostNames) {
    absl::StrAppend(&text, " and ", named.size() - kMostNames, " more");
  }
  if (apart) {
    absl::StrAppendFormat(&text,
                          "; beside the others they make the condition number kappa of a linear "
                          "model at least %.2g, and training that much slower",
                          condition);
  } else {
    absl::StrAppend(&text, "; updates may be too ", largest >= kHuge ? "large" : "small",
                    " for max_update and the searches' tolerances");
  }
  if (!constant.empty()) {
    absl::StrAppend(&text, "; ", constant, " is the same in all rows: leave it out");
  }
  return absl::StrCat(text,
                      "; import with --scale standard, or subtract each column's mean and divide "
                      "by its standard deviation, by the same numbers at all clients");
}

}  // namespace leeway
