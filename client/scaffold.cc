// SCAFFOLD (Karimireddy et al. 2019, option II), the client's part: steps go against
// g - c_i + c, where c is the server's control variate and c_i the client's own, which it
// keeps between rounds. After K steps, with displacement u = w - y,
// c_i+ = c_i - c + u / (K eta).
#include "absl/strings/str_cat.h"
#include "client/local_algorithm.h"
#include "common/status.h"
#include "common/sums.h"

namespace leeway {
namespace {

template <typename T>
class Scaffold : public LocalAlgorithm<T> {
 public:
  Scaffold(const Vector<T>& control, Vector<T>& state, double step_size)
      : control_(control), state_(state), correction_(control - state), step_size_(step_size) {}

  void Correct(const Vector<T>& /*u*/, Vector<T>& gradient) const override {
    gradient += correction_;
  }

  void Finish(const Vector<T>& u, uint64_t steps,
              typename LocalAlgorithm<T>::Report report) override {
    const auto length = static_cast<T>(static_cast<double>(steps) * step_size_);
    const Vector<T> change = u / length - control_;
    state_ += change;
    report(kControlChange, change);
  }

 private:
  const Vector<T>& control_;
  Vector<T>& state_;
  const Vector<T> correction_;
  const double step_size_;
};

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<LocalAlgorithm<T>>> MakeScaffold(const LocalTask& task,
                                                                Vector<T>& state) {
  LEEWAY_ASSIGN_OR_RETURN(const Vector<T>* control, task.Other<T>("control"));
  if (state.size() == 0) state = Vector<T>::Zero(control->size());
  if (state.size() != control->size()) {
    return absl::DataLossError(absl::StrCat("the client's control variate has ", state.size(),
                                            " values, the model ", control->size()));
  }
  return std::make_unique<Scaffold<T>>(*control, state, task.task().rule().step_size());
}

template absl::StatusOr<std::unique_ptr<LocalAlgorithm<float>>> MakeScaffold<float>(
    const LocalTask&, Vector<float>&);
template absl::StatusOr<std::unique_ptr<LocalAlgorithm<double>>> MakeScaffold<double>(
    const LocalTask&, Vector<double>&);

}  // namespace leeway
