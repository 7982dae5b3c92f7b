// FedDyn (Acar et al. 2021), the client's part: local steps descend F_c(x) - g_c.x +
// alpha/2 |x - w|^2, whose gradient at x = w - u is that of F_c less g_c and alpha u. The client
// keeps g_c, which grows by alpha u in every round: where local steps have converged it is the
// gradient of F_c there.
#include "absl/strings/str_cat.h"
#include "client/local_algorithm.h"

namespace leeway {
namespace {

template <typename T>
class FedDyn : public LocalAlgorithm<T> {
 public:
  FedDyn(double alpha, Vector<T>& state) : alpha_(static_cast<T>(alpha)), state_(state) {}

  void Correct(const Vector<T>& u, Vector<T>& gradient) const override {
    gradient -= state_ + alpha_ * u;
  }

  void Finish(const Vector<T>& u, uint64_t /*steps*/,
              typename LocalAlgorithm<T>::Report /*report*/) override {
    state_ += alpha_ * u;
  }

 private:
  const T alpha_;
  Vector<T>& state_;  // g_c
};

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<LocalAlgorithm<T>>> MakeFedDyn(const LocalTask& task,
                                                              Vector<T>& state) {
  const auto size = static_cast<Eigen::Index>(task.sums().shape().dimension);
  if (state.size() == 0) state = Vector<T>::Zero(size);
  if (state.size() != size) {
    return absl::DataLossError(
        absl::StrCat("the client's state has ", state.size(), " values, the model ", size));
  }
  return std::make_unique<FedDyn<T>>(task.task().rule().feddyn().alpha(), state);
}

template absl::StatusOr<std::unique_ptr<LocalAlgorithm<float>>> MakeFedDyn<float>(const LocalTask&,
                                                                                  Vector<float>&);
template absl::StatusOr<std::unique_ptr<LocalAlgorithm<double>>> MakeFedDyn<double>(
    const LocalTask&, Vector<double>&);

}  // namespace leeway
