#include "client/networks/cross_entropy.h"

#include <cmath>

namespace leeway::networks {
namespace {

template <typename T>
using Row = Eigen::Map<Eigen::Array<T, 1, Eigen::Dynamic>>;

// Turns one row of logits into exponentials, the largest being 1, and returns
// their sum. No exponential overflows.
template <typename T>
T Exponentials(Row<T>& row) {
  row = (row - row.maxCoeff()).exp();
  return row.sum();
}

}  // namespace

template <typename T>
Outcome SoftmaxCrossEntropy<T>::Gradient(Block<T> logits, const int32_t* targets, T scale) const {
  Outcome outcome;
  for (Index i = 0; i < logits.rows(); ++i) {
    Row<T> row(logits.data() + i * logits.outerStride(), logits.cols());
    if (targets[i] == ignored_) {
      row.setZero();
      continue;
    }
    const T largest = row.maxCoeff();
    const T margin = largest - row[targets[i]];
    const T sum = Exponentials(row);
    row *= scale / sum;
    row[targets[i]] -= scale;
    outcome.loss_sum += std::log(static_cast<double>(sum)) + static_cast<double>(margin);
    ++outcome.rows;
  }
  return outcome;
}

template <typename T>
Outcome SoftmaxCrossEntropy<T>::Score(Block<T> logits, const int32_t* targets) const {
  Outcome outcome;
  for (Index i = 0; i < logits.rows(); ++i) {
    if (targets[i] == ignored_) continue;
    Row<T> row(logits.data() + i * logits.outerStride(), logits.cols());
    Index answer;
    const T margin = row.maxCoeff(&answer) - row[targets[i]];
    const T sum = Exponentials(row);
    outcome.loss_sum += std::log(static_cast<double>(sum)) + static_cast<double>(margin);
    outcome.correct += answer == targets[i] ? 1 : 0;
    ++outcome.rows;
  }
  return outcome;
}

template class SoftmaxCrossEntropy<float>;
template class SoftmaxCrossEntropy<double>;

}  // namespace leeway::networks
