// FedAdam (Reddi et al. 2020, algorithm 2), with u the average displacement:
// m <- beta1 m + (1 - beta1) u, v <- beta2 v + (1 - beta2) u^2,
// w <- w - rate * m / (sqrt(v) + epsilon). v starts as epsilon^2; there is no bias
// correction, as in the paper.
#include "server/server_optimizer.h"

namespace leeway {
namespace {

class AdamOptimizer : public ServerOptimizer {
 public:
  AdamOptimizer(double rate, double beta1, double beta2, double epsilon)
      : ServerOptimizer({0, epsilon * epsilon}),
        rate_(rate),
        beta1_(beta1),
        beta2_(beta2),
        epsilon_(epsilon) {}

  void Step(size_t begin, VectorRef<double> displacement, VectorRef<double> w) override {
    auto m = Kept(0, begin, displacement.size());
    auto v = Kept(1, begin, displacement.size());
    m = beta1_ * m + (1 - beta1_) * displacement;
    v = beta2_ * v + (1 - beta2_) * displacement.cwiseAbs2();
    w.array() -= rate_ * m.array() / (v.array().sqrt() + epsilon_);
  }

 private:
  const double rate_;
  const double beta1_;
  const double beta2_;
  const double epsilon_;
};

}  // namespace

std::unique_ptr<ServerOptimizer> MakeAdamOptimizer(const v1::ServerOptimizer& config) {
  const v1::Adam& adam = config.adam();
  return std::make_unique<AdamOptimizer>(config.rate(), ValueOr(adam.beta1(), 0.9),
                                         ValueOr(adam.beta2(), 0.99),
                                         ValueOr(adam.epsilon(), 1e-3));
}

}  // namespace leeway
