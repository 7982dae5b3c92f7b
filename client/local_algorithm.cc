#include "client/local_algorithm.h"

#include "common/status.h"
#include "common/sums.h"

namespace leeway {

// One maker for each kind, in a file of its own.
template <typename T>
std::unique_ptr<LocalAlgorithm<T>> MakeFedProx(const v1::FedProx& config);
template <typename T>
absl::StatusOr<std::unique_ptr<LocalAlgorithm<T>>> MakeScaffold(const LocalTask& task,
                                                                Vector<T>& state);
template <typename T>
std::unique_ptr<LocalAlgorithm<T>> MakeFedNova();
template <typename T>
absl::StatusOr<std::unique_ptr<LocalAlgorithm<T>>> MakeFedDyn(const LocalTask& task,
                                                              Vector<T>& state);
// Moves only some parameters, by what `rest` (or, if null, gradient descent) says.
template <typename T>
std::unique_ptr<LocalAlgorithm<T>> MakeMovedParameters(const Vector<T>& moved,
                                                       std::unique_ptr<LocalAlgorithm<T>> rest);

bool KeepsState(const v1::LocalRule& rule) { return rule.has_scaffold() || rule.has_feddyn(); }

namespace {

template <typename T>
absl::StatusOr<std::unique_ptr<LocalAlgorithm<T>>> OfRule(const LocalTask& task, Vector<T>& state) {
  const v1::LocalRule& rule = task.task().rule();
  switch (rule.algorithm_case()) {
    case v1::LocalRule::kFedprox:
      return MakeFedProx<T>(rule.fedprox());
    case v1::LocalRule::kScaffold:
      return MakeScaffold<T>(task, state);
    case v1::LocalRule::kFednova:
      return MakeFedNova<T>();
    case v1::LocalRule::kFeddyn:
      return MakeFedDyn<T>(task, state);
    default:
      return std::unique_ptr<LocalAlgorithm<T>>();
  }
}

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<LocalAlgorithm<T>>> MakeLocalAlgorithm(const LocalTask& task,
                                                                      Vector<T>& state) {
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<LocalAlgorithm<T>> algorithm, OfRule(task, state));
  if (!task.HasOther(kMovedParameters)) return algorithm;
  LEEWAY_ASSIGN_OR_RETURN(const Vector<T>* moved, task.Other<T>(kMovedParameters));
  return MakeMovedParameters<T>(*moved, std::move(algorithm));
}

template absl::StatusOr<std::unique_ptr<LocalAlgorithm<float>>> MakeLocalAlgorithm<float>(
    const LocalTask&, Vector<float>&);
template absl::StatusOr<std::unique_ptr<LocalAlgorithm<double>>> MakeLocalAlgorithm<double>(
    const LocalTask&, Vector<double>&);

}  // namespace leeway
