// Fine-tuning of some tensors, such as the last layer: the others keep their values, because what
// a step would change of them is taken for 0.
#include "client/local_algorithm.h"

namespace leeway {
namespace {

template <typename T>
class MovedParameters : public LocalAlgorithm<T> {
 public:
  MovedParameters(const Vector<T>& moved, std::unique_ptr<LocalAlgorithm<T>> rest)
      : moved_(moved), rest_(std::move(rest)) {}

  void Correct(const Vector<T>& u, Vector<T>& gradient) const override {
    if (rest_) rest_->Correct(u, gradient);
    gradient.array() *= moved_.array();
  }

 private:
  const Vector<T>& moved_;  // 1 or 0 for each parameter; the task's
  const std::unique_ptr<LocalAlgorithm<T>> rest_;
};

}  // namespace

template <typename T>
std::unique_ptr<LocalAlgorithm<T>> MakeMovedParameters(const Vector<T>& moved,
                                                       std::unique_ptr<LocalAlgorithm<T>> rest) {
  return std::make_unique<MovedParameters<T>>(moved, std::move(rest));
}

template std::unique_ptr<LocalAlgorithm<float>> MakeMovedParameters<float>(
    const Vector<float>&, std::unique_ptr<LocalAlgorithm<float>>);
template std::unique_ptr<LocalAlgorithm<double>> MakeMovedParameters<double>(
    const Vector<double>&, std::unique_ptr<LocalAlgorithm<double>>);

}  // namespace leeway
