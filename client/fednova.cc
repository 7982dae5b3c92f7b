// FedNova (Wang et al. 2020), the client's part: local steps are those of gradient descent, and
// the displacement is reported per step, u / K. server/fednova_server.cc multiplies their mean by
// the mean of K.
#include "client/local_algorithm.h"
#include "common/sums.h"

namespace leeway {
namespace {

template <typename T>
class FedNova : public LocalAlgorithm<T> {
 public:
  void Correct(const Vector<T>& /*u*/, Vector<T>& /*gradient*/) const override {}

  void Finish(const Vector<T>& u, uint64_t steps,
              typename LocalAlgorithm<T>::Report report) override {
    report(kDisplacement, u / static_cast<T>(steps));
  }
};

}  // namespace

template <typename T>
std::unique_ptr<LocalAlgorithm<T>> MakeFedNova() {
  return std::make_unique<FedNova<T>>();
}

template std::unique_ptr<LocalAlgorithm<float>> MakeFedNova<float>();
template std::unique_ptr<LocalAlgorithm<double>> MakeFedNova<double>();

}  // namespace leeway
