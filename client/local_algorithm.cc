#include "client/local_algorithm.h"

namespace leeway {

template <typename T>
std::unique_ptr<LocalAlgorithm<T>> MakeLocalAlgorithm(const v1::LocalRule& rule) {
  switch (rule.algorithm_case()) {
    case v1::LocalRule::kFedprox:
      return MakeFedProx<T>(rule.fedprox());
    default:
      return nullptr;
  }
}

template std::unique_ptr<LocalAlgorithm<float>> MakeLocalAlgorithm<float>(const v1::LocalRule&);
template std::unique_ptr<LocalAlgorithm<double>> MakeLocalAlgorithm<double>(const v1::LocalRule&);

}  // namespace leeway
