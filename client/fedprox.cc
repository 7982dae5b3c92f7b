// FedProx (Li et al. 2018): the gradient of mu/2 |x - w|^2 at x = w - u is -mu u.
#include "client/local_algorithm.h"

namespace leeway {
namespace {

template <typename T>
class FedProx : public LocalAlgorithm<T> {
 public:
  explicit FedProx(double mu) : mu_(static_cast<T>(mu)) {}

  void Correct(const Vector<T>& u, Vector<T>& gradient) const override { gradient -= mu_ * u; }

 private:
  const T mu_;
};

}  // namespace

template <typename T>
std::unique_ptr<LocalAlgorithm<T>> MakeFedProx(const v1::FedProx& config) {
  return std::make_unique<FedProx<T>>(config.mu());
}

template std::unique_ptr<LocalAlgorithm<float>> MakeFedProx<float>(const v1::FedProx&);
template std::unique_ptr<LocalAlgorithm<double>> MakeFedProx<double>(const v1::FedProx&);

}  // namespace leeway
