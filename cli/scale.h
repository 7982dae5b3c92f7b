// An axis: from values to places, with its ticks. A value.
#ifndef LEEWAY_CLI_SCALE_H_
#define LEEWAY_CLI_SCALE_H_

#include <string>
#include <vector>

namespace leeway {

struct Tick {
  double value = 0;
  std::string label;
};

class Scale {
 public:
  // An axis that shows [low, high]; both are finite and, if `log`, positive. It ends
  // at round values if `round_ends`, else close to low and high.
  Scale(bool log, double low, double high, bool round_ends);

  // Whether an axis of this kind can show a value at all.
  static bool Shows(bool log, double value);

  bool log() const { return log_; }
  double low() const { return low_; }
  double high() const { return high_; }
  const std::vector<Tick>& ticks() const { return ticks_; }
  // Values of fine gridlines, between those of the ticks.
  const std::vector<double>& minor() const { return minor_; }
  // Its place: 0 at the low end, 1 at the high end. The value is one that is shown.
  double At(double value) const;

 private:
  double Decades() const;  // from low to high
  void LinearTicks(double step);
  void LogTicks();
  void DecadeTicks(int every);
  void AddTick(double value);

  bool log_;
  double low_;
  double high_;
  std::vector<Tick> ticks_;
  std::vector<double> minor_;
};

// 0.25, 1500, 2×10⁻⁷: short, for people.
std::string ShortNumber(double value);
// 10⁻⁷.
std::string PowerOfTen(int exponent);

}  // namespace leeway

#endif  // LEEWAY_CLI_SCALE_H_
