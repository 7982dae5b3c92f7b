// FedAdagrad (Reddi et al. 2020, algorithm 2), with u the average displacement:
// m <- beta1 m + (1 - beta1) u, v <- v + u^2, w <- w - rate * m / (sqrt(v) + epsilon).
// v starts as epsilon^2.
#include "server/server_optimizer.h"

namespace leeway {
namespace {

class AdagradOptimizer : public ServerOptimizer {
 public:
  AdagradOptimizer(double rate, double beta1, double epsilon)
      : ServerOptimizer({0, epsilon * epsilon}), rate_(rate), beta1_(beta1), epsilon_(epsilon) {}

  void Step(size_t begin, VectorRef<double> displacement, VectorRef<double> w) override {
    auto m = Kept(0, begin, displacement.size());
    auto v = Kept(1, begin, displacement.size());
    m = beta1_ * m + (1 - beta1_) * displacement;
    v += displacement.cwiseAbs2();
    w.array() -= rate_ * m.array() / (v.array().sqrt() + epsilon_);
  }

 private:
  const double rate_;
  const double beta1_;
  const double epsilon_;
};

}  // namespace

std::unique_ptr<ServerOptimizer> MakeAdagradOptimizer(const v1::ServerOptimizer& config) {
  return std::make_unique<AdagradOptimizer>(config.rate(), config.adagrad().beta1(),
                                            ValueOr(config.adagrad().epsilon(), 1e-3));
}

}  // namespace leeway
