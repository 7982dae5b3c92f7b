// Finds a positive number of which only "is it above t?" can be asked, for many t
// at a time: each round of questions narrows the interval 64-fold on a log scale.
// So the largest L_c of any client is found from counts, which are sums. A value.
#ifndef LEEWAY_SERVER_THRESHOLD_SEARCH_H_
#define LEEWAY_SERVER_THRESHOLD_SEARCH_H_

#include <cmath>
#include <vector>

namespace leeway {

class ThresholdSearch {
 public:
  ThresholdSearch() = default;
  ThresholdSearch(double low, double high, int rounds) : low_(low), high_(high), rounds_(rounds) {}

  // The number is above low() (or low() is 0: it is below every threshold) and at
  // most high().
  double low() const { return low_; }
  double high() const { return high_; }
  int rounds() const { return rounds_; }
  bool done() const { return rounds_ >= 5 || high_ <= low_ * (1 + 1e-9); }

  std::vector<double> thresholds() const {
    std::vector<double> out;
    const double start = low_ > 0 ? low_ : kSmallest;
    for (int j = 0; j < kQuestions; ++j) {
      out.push_back(start * std::pow(high_ / start, j / static_cast<double>(kQuestions)));
    }
    return out;
  }

  // Answers to those questions, in order.
  void Narrow(const std::vector<bool>& above) {
    const std::vector<double> asked = thresholds();
    double low = 0;
    for (size_t j = 0; j < asked.size(); ++j) {
      if (!above[j]) {
        high_ = asked[j];
        break;
      }
      low = asked[j];
    }
    low_ = low;
    rounds_ = low_ > 0 ? rounds_ + 1 : 5;  // below every threshold: as good as zero
  }

 private:
  static constexpr int kQuestions = 64;
  static constexpr double kSmallest = 1e-15;
  double low_ = 0;
  double high_ = 1e15;
  int rounds_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_THRESHOLD_SEARCH_H_
