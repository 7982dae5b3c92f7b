// FedYogi (Reddi et al. 2020, algorithm 2), with u the average displacement:
// m <- beta1 m + (1 - beta1) u, v <- v - (1 - beta2) u^2 sign(v - u^2),
// w <- w - rate * m / (sqrt(v) + epsilon). v starts as epsilon^2.
#include "server/server_optimizer.h"

namespace leeway {
namespace {

class YogiOptimizer : public ServerOptimizer {
 public:
  YogiOptimizer(double rate, double beta1, double beta2, double epsilon)
      : ServerOptimizer({0, epsilon * epsilon}),
        rate_(rate),
        beta1_(beta1),
        beta2_(beta2),
        epsilon_(epsilon) {}

  void Step(size_t begin, VectorRef<double> displacement, VectorRef<double> w) override {
    auto m = Kept(0, begin, displacement.size());
    auto v = Kept(1, begin, displacement.size());
    m = beta1_ * m + (1 - beta1_) * displacement;
    for (Eigen::Index i = 0; i < v.size(); ++i) {
      const double squared = displacement[i] * displacement[i];
      const double sign = v[i] > squared ? 1 : v[i] < squared ? -1 : 0;
      v[i] -= (1 - beta2_) * squared * sign;
    }
    w.array() -= rate_ * m.array() / (v.array().sqrt() + epsilon_);
  }

 private:
  const double rate_;
  const double beta1_;
  const double beta2_;
  const double epsilon_;
};

}  // namespace

std::unique_ptr<ServerOptimizer> MakeYogiOptimizer(const v1::ServerOptimizer& config) {
  const v1::Yogi& yogi = config.yogi();
  return std::make_unique<YogiOptimizer>(config.rate(), ValueOr(yogi.beta1(), 0.9),
                                         ValueOr(yogi.beta2(), 0.99),
                                         ValueOr(yogi.epsilon(), 1e-3));
}

}  // namespace leeway
