#include "cli/scale.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace leeway {
namespace {

constexpr double kLargest = 1e300;  // so that no difference or product overflows
constexpr double kSmallest = 1e-300;
constexpr double kMargin = 0.02;  // of the width, where ends are not round
constexpr double kSlack = 1e-9;   // for comparing multiples of steps
constexpr double kAbout = 6;      // steps between linear ticks
constexpr int kMostDecades = 8;   // with a label each
constexpr int kMostFineDecades = 6;
constexpr double kLabelAll = 3.2;  // decades up to which 1, 2 and 5 get a label

// The largest of 1, 2, 5 times a power of ten that is at most `value`, and the
// smallest that is at least it.
double RoundDown(double value) {
  const double power = std::pow(10, std::floor(std::log10(value) + kSlack));
  for (const double factor : {5.0, 2.0}) {
    if (factor * power <= value * (1 + kSlack)) return factor * power;
  }
  return power;
}
double RoundUp(double value) {
  const double down = RoundDown(value);
  if (down >= value * (1 - kSlack)) return down;
  const double power = std::pow(10, std::floor(std::log10(value) + kSlack));
  return down >= 4.5 * power ? 10 * power : down >= 1.5 * power ? 5 * power : 2 * power;
}

}  // namespace

std::string PowerOfTen(int exponent) {
  static constexpr const char* kDigits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "10⁻" : "10";
  for (const char digit : absl::StrCat(std::abs(exponent))) text += kDigits[digit - '0'];
  return text;
}

std::string ShortNumber(double value) {
  if (value == 0) return "0";
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (size >= 1e-3 && size < 1e5) return absl::StrFormat("%.4g", value);
  int exponent = static_cast<int>(std::floor(std::log10(size)));
  double mantissa = value / std::pow(10, exponent);
  if (std::abs(mantissa) >= 9.9995) {
    mantissa /= 10;
    ++exponent;
  }
  const std::string digits = absl::StrFormat("%.4g", mantissa);
  if (digits == "1") return PowerOfTen(exponent);
  return absl::StrCat(digits, "×", PowerOfTen(exponent));
}

bool Scale::Shows(bool log, double value) {
  return std::abs(value) <= kLargest && (!log || value >= kSmallest);
}

Scale::Scale(bool log, double low, double high, bool round_ends)
    : log_(log), low_(low), high_(high) {
  if (log_) {
    if (high_ < low_ * 1.01) low_ /= 2, high_ *= 2;
    const double decades = Decades();
    if (round_ends && decades > kLabelAll) {
      low_ = std::pow(10, std::floor(std::log10(low_) + kSlack));
      high_ = std::pow(10, std::ceil(std::log10(high_) - kSlack));
    } else if (round_ends) {
      low_ = RoundDown(low_);
      high_ = RoundUp(high_);
    } else {
      low_ *= std::pow(10, -kMargin * decades);
      high_ *= std::pow(10, kMargin * decades);
    }
    LogTicks();
    return;
  }
  const double size = std::max(std::abs(low_), std::abs(high_));
  if (high_ - low_ <= 1e-12 * size || size == 0) {
    low_ -= size == 0 ? 1 : size / 2;
    high_ += size == 0 ? 1 : size / 2;
  }
  const double step = RoundUp((high_ - low_) / kAbout);
  const double margin = kMargin * (high_ - low_);
  low_ = round_ends ? step * std::floor(low_ / step + kSlack) : low_ - margin;
  high_ = round_ends ? step * std::ceil(high_ / step - kSlack) : high_ + margin;
  LinearTicks(step);
}

double Scale::At(double value) const {
  if (log_) return (std::log10(value) - std::log10(low_)) / Decades();
  return (value - low_) / (high_ - low_);
}

// Not the logarithm of the ratio, which may overflow.
double Scale::Decades() const { return std::log10(high_) - std::log10(low_); }

void Scale::AddTick(double value) { ticks_.push_back({value, ShortNumber(value)}); }

void Scale::LinearTicks(double step) {
  const double leading = step / std::pow(10, std::floor(std::log10(step) + kSlack));
  const int parts = std::abs(leading - 2) < 0.1 ? 4 : 5;
  const double fine = step / parts;
  for (double i = std::ceil(low_ / fine - kSlack); i <= high_ / fine + kSlack; ++i) {
    if (std::fmod(i, parts) == 0) {
      AddTick(std::abs(i) < 0.5 ? 0 : i / parts * step);
    } else {
      minor_.push_back(i * fine);
    }
  }
}

void Scale::LogTicks() {
  const double decades = Decades();
  if (decades > kLabelAll) {
    constexpr int kSteps[] = {1, 2, 3, 5, 10, 20, 50};
    const auto* every = std::find_if(std::begin(kSteps), std::prev(std::end(kSteps)),
                                     [&](int step) { return decades <= step * kMostDecades; });
    DecadeTicks(*every);
    return;
  }
  const auto first = static_cast<int>(std::floor(std::log10(low_)));
  const auto last = static_cast<int>(std::ceil(std::log10(high_)));
  for (int exponent = first; exponent <= last; ++exponent) {
    for (int digit = 1; digit < 10; ++digit) {
      const double value = digit * std::pow(10, exponent);
      if (value < low_ * (1 - kSlack) || value > high_ * (1 + kSlack)) continue;
      if (digit == 1 || digit == 2 || digit == 5) {
        AddTick(value);
      } else {
        minor_.push_back(value);
      }
    }
  }
  if (ticks_.size() >= 3) return;
  ticks_.clear();
  minor_.clear();
  LinearTicks(RoundUp((high_ - low_) / 4));
}

void Scale::DecadeTicks(int every) {
  const auto first = static_cast<int>(std::ceil(std::log10(low_) - kSlack));
  const auto last = static_cast<int>(std::floor(std::log10(high_) + kSlack));
  // Small powers read better in full, but all labels should look alike.
  const bool plain = first >= -3 && last <= 4;
  for (int exponent = first; exponent <= last; ++exponent) {
    const double value = std::pow(10, exponent);
    if (exponent % every != 0) {
      minor_.push_back(value);
      continue;
    }
    ticks_.push_back({value, plain ? absl::StrFormat("%g", value) : PowerOfTen(exponent)});
    for (int digit = 2; last - first <= kMostFineDecades && digit < 10; ++digit) {
      if (digit * value < high_) minor_.push_back(digit * value);
    }
  }
}

}  // namespace leeway
