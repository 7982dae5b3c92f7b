// Plain averaging, with heavy-ball momentum if there is any (paper, eq. (2)):
// m <- momentum * m + average displacement, w <- w - rate * m.
#include "server/server_optimizer.h"

namespace leeway {
namespace {

class MomentumOptimizer : public ServerOptimizer {
 public:
  MomentumOptimizer(double rate, double momentum)
      : ServerOptimizer(std::vector<double>(momentum > 0 ? 1 : 0, 0.0)),
        rate_(rate),
        momentum_(momentum) {}

  void Step(size_t begin, VectorRef<double> displacement, VectorRef<double> w) override {
    if (momentum_ > 0) {
      auto m = Kept(0, begin, displacement.size());
      m = momentum_ * m + displacement;
      displacement = m;
    }
    w -= rate_ * displacement;
  }

 private:
  const double rate_;
  const double momentum_;
};

}  // namespace

std::unique_ptr<ServerOptimizer> MakeMomentumOptimizer(const v1::ServerOptimizer& config) {
  return std::make_unique<MomentumOptimizer>(config.rate(), config.momentum());
}

}  // namespace leeway
