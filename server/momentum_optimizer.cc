// Plain averaging, with momentum if there is any (paper, eq. (2)), u the average
// displacement: m <- momentum * m + u, w <- w - rate * m; Nesterov's kind looks one step
// ahead: w <- w - rate * (u + momentum * m).
#include "server/server_optimizer.h"

namespace leeway {
namespace {

class MomentumOptimizer : public ServerOptimizer {
 public:
  MomentumOptimizer(double rate, double momentum, bool nesterov)
      : ServerOptimizer(std::vector<double>(momentum > 0 ? 1 : 0, 0.0)),
        rate_(rate),
        momentum_(momentum),
        nesterov_(nesterov) {}

  void Step(size_t begin, VectorRef<double> displacement, VectorRef<double> w) override {
    if (momentum_ > 0) {
      auto m = Kept(0, begin, displacement.size());
      m = momentum_ * m + displacement;
      if (nesterov_) {
        displacement += momentum_ * m;
      } else {
        displacement = m;
      }
    }
    w -= rate_ * displacement;
  }

 private:
  const double rate_;
  const double momentum_;
  const bool nesterov_;
};

}  // namespace

std::unique_ptr<ServerOptimizer> MakeMomentumOptimizer(const v1::ServerOptimizer& config) {
  return std::make_unique<MomentumOptimizer>(config.rate(), config.momentum(), config.nesterov());
}

}  // namespace leeway
