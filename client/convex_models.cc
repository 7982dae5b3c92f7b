#include "client/convex_models.h"

#include <Eigen/Core>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace leeway {
namespace {

using Index = Eigen::Index;
using Rows = absl::Span<const uint32_t>;
using View = Eigen::Map<const Matrix<double>>;

Matrix<double> Inputs(const DataPart& part) {
  const std::vector<double> values = part.x.As<double>();
  const Index rows = static_cast<Index>(part.examples());
  const Index features = rows == 0 ? 0 : static_cast<Index>(values.size()) / rows;
  return View(values.data(), rows, features);
}

Vector<double> Targets(const DataPart& part) {
  const std::vector<double> values = part.y.As<double>();
  return Eigen::Map<const Vector<double>>(values.data(), static_cast<Index>(values.size()));
}

// Scratch space that only grows, so that the last, smaller batch of a pass does
// not free what the next one needs. Eigen's own storage, hence aligned: where
// vector instructions start, and with it rounding, is the same in every process.
class Scratch {
 public:
  Eigen::Map<Matrix<double>> Shaped(Index rows, Index columns) {
    if (storage_.size() < rows * columns) storage_.resize(rows * columns);
    return {storage_.data(), rows, columns};
  }
  Eigen::Map<Vector<double>> Column(Index rows) { return {Shaped(rows, 1).data(), rows}; }

 private:
  Vector<double> storage_;
};

// The inputs of `rows`, or of all examples if empty.
View Gather(const Matrix<double>& x, Rows rows, Scratch& scratch) {
  if (rows.empty()) return {x.data(), x.rows(), x.cols()};
  Eigen::Map<Matrix<double>> batch = scratch.Shaped(static_cast<Index>(rows.size()), x.cols());
  for (size_t i = 0; i < rows.size(); ++i) {
    batch.row(static_cast<Index>(i)) = x.row(static_cast<Index>(rows[i]));
  }
  return {batch.data(), batch.rows(), batch.cols()};
}

class LinearRegression final : public Objective<double> {
 public:
  LinearRegression(const v1::LinearRegression& model, const Dataset& data)
      : l2_(model.l2()), x_(Inputs(data.train)), y_(Targets(data.train)) {
    if (!data.test) return;
    test_x_ = Inputs(*data.test);
    test_y_ = Targets(*data.test);
  }

  uint64_t examples() const override { return static_cast<uint64_t>(x_.rows()); }

  double Evaluate(ConstVectorRef<double> w, Rows rows, VectorRef<double> gradient) override {
    const View x = Gather(x_, rows, batch_);
    const double count = static_cast<double>(x.rows());
    const Eigen::Map<Vector<double>> residual = Residual(x, w, rows);
    // From residuals: w'Aw - 2b'w + y'y would cancel near the optimum.
    const double loss = residual.squaredNorm() / (2 * count) + 0.5 * l2_ * w.squaredNorm();
    if (rows.empty() && UsesGram()) {
      GramGradient(w, gradient);
    } else {
      ResidualGradient(x, residual, w, gradient);
    }
    return loss;
  }

  void FullGradient(ConstVectorRef<double> w, VectorRef<double> gradient) override {
    if (UsesGram()) return GramGradient(w, gradient);
    const View x = Gather(x_, {}, batch_);
    ResidualGradient(x, Residual(x, w, {}), w, gradient);
  }

  double DifferenceStep() const override { return 1; }

  TestResult Test(ConstVectorRef<double> w) override {
    TestResult result;
    result.examples = static_cast<uint64_t>(test_x_.rows());
    if (result.examples == 0) return result;
    Eigen::Map<Vector<double>> residual = residual_.Column(test_x_.rows());
    residual.noalias() = test_x_ * w;
    residual -= test_y_;
    result.loss_sum = 0.5 * residual.squaredNorm();
    return result;
  }

 private:
  // d^2 multiplications instead of 2nd; the limit bounds memory and the n d^2
  // that the matrix costs once.
  bool UsesGram() const { return 2 * x_.rows() > x_.cols() && x_.cols() <= 2048; }

  void GramGradient(const ConstVectorRef<double>& w, VectorRef<double>& gradient) {
    if (gram_.size() == 0) {
      const double count = static_cast<double>(x_.rows());
      gram_.noalias() = x_.transpose() * x_;
      gram_ /= count;
      gram_.diagonal().array() += l2_;
      moment_.noalias() = x_.transpose() * y_;
      moment_ /= count;
    }
    gradient.noalias() = gram_ * w;
    gradient -= moment_;
  }

  // X w - y
  Eigen::Map<Vector<double>> Residual(const View& x, const ConstVectorRef<double>& w, Rows rows) {
    Eigen::Map<Vector<double>> residual = residual_.Column(x.rows());
    residual.noalias() = x * w;
    if (rows.empty()) residual -= y_;
    for (size_t i = 0; i < rows.size(); ++i) {
      residual[static_cast<Index>(i)] -= y_[static_cast<Index>(rows[i])];
    }
    return residual;
  }

  void ResidualGradient(const View& x, const Eigen::Map<Vector<double>>& residual,
                        const ConstVectorRef<double>& w, VectorRef<double>& gradient) {
    gradient.noalias() = x.transpose() * residual;
    gradient /= static_cast<double>(x.rows());
    if (l2_ != 0) gradient += l2_ * w;
  }

  const double l2_;
  const Matrix<double> x_;
  const Vector<double> y_;
  Matrix<double> test_x_;
  Vector<double> test_y_;

  Matrix<double> gram_;    // X'X/n + l2 I, made when first needed
  Vector<double> moment_;  // X'y/n
  Scratch batch_;
  Scratch residual_;
};

// Labels as indices, checked.
absl::StatusOr<std::vector<Index>> Labels(const DataPart& part, uint32_t classes,
                                          absl::string_view file) {
  const std::vector<double> values = part.y.As<double>();
  std::vector<Index> labels;
  labels.reserve(values.size());
  for (size_t row = 0; row < values.size(); ++row) {
    const double value = values[row];
    if (!(value >= 0 && value < classes) || value != std::floor(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": the label in row ", row, " (counted from 0) is ", value,
                       ", expected an integer from 0 to ", classes - 1,
                       "; number the classes from 0 and check model.softmax_regression.classes"));
    }
    labels.push_back(static_cast<Index>(value));
  }
  return labels;
}

class SoftmaxRegression final : public Objective<double> {
 public:
  SoftmaxRegression(const v1::SoftmaxRegression& model, const Dataset& data,
                    std::vector<Index> labels, std::vector<Index> test_labels)
      : l2_(model.l2()),
        classes_(static_cast<Index>(model.classes())),
        x_(Inputs(data.train)),
        labels_(std::move(labels)),
        test_labels_(std::move(test_labels)) {
    if (data.test) test_x_ = Inputs(*data.test);
  }

  uint64_t examples() const override { return static_cast<uint64_t>(x_.rows()); }

  double Evaluate(ConstVectorRef<double> w, Rows rows, VectorRef<double> gradient) override {
    const View x = Gather(x_, rows, batch_);
    const double count = static_cast<double>(x.rows());
    picked_.clear();
    for (uint32_t row : rows) picked_.push_back(labels_[row]);
    const std::vector<Index>& labels = rows.empty() ? labels_ : picked_;

    Eigen::Map<Matrix<double>> errors = logits_.Shaped(x.rows(), classes_);
    Logits(x, w, errors);
    double loss = CrossEntropy(labels, errors) / count;
    // From probabilities to the gradient of the mean loss in the logits.
    for (Index i = 0; i < errors.rows(); ++i) errors(i, labels[static_cast<size_t>(i)]) -= 1;
    errors /= count;

    Eigen::Map<Matrix<double>>(gradient.data(), classes_, x.cols()).noalias() =
        errors.transpose() * x;
    gradient.tail(classes_) = errors.colwise().sum().transpose();
    if (l2_ != 0) {
      loss += 0.5 * l2_ * w.squaredNorm();
      gradient += l2_ * w;
    }
    return loss;
  }

  TestResult Test(ConstVectorRef<double> w) override {
    TestResult result;
    result.examples = static_cast<uint64_t>(test_x_.rows());
    if (result.examples == 0) return result;
    const View x = Gather(test_x_, {}, batch_);
    Eigen::Map<Matrix<double>> logits = logits_.Shaped(x.rows(), classes_);
    Logits(x, w, logits);
    for (Index i = 0; i < x.rows(); ++i) {
      Index answer;
      logits.row(i).maxCoeff(&answer);
      result.correct += answer == test_labels_[static_cast<size_t>(i)] ? 1 : 0;
    }
    result.loss_sum = CrossEntropy(test_labels_, logits);
    return result;
  }

 private:
  void Logits(const View& x, const ConstVectorRef<double>& w, Eigen::Map<Matrix<double>>& logits) {
    const View weight(w.data(), classes_, x.cols());
    logits.noalias() = x * weight.transpose();
    logits.rowwise() += w.tail(classes_).transpose();
  }

  // Summed cross-entropy; turns logits into probabilities in place. The largest
  // logit of a row is subtracted first, so no exponential overflows.
  double CrossEntropy(const std::vector<Index>& labels, Eigen::Map<Matrix<double>>& logits) {
    Eigen::Map<Vector<double>> column = column_.Column(logits.rows());
    column = logits.rowwise().maxCoeff();
    logits.colwise() -= column;
    double loss = 0;
    for (Index i = 0; i < logits.rows(); ++i) loss -= logits(i, labels[static_cast<size_t>(i)]);
    logits = logits.array().exp().matrix();
    column = logits.rowwise().sum();
    loss += column.array().log().sum();
    logits.array().colwise() /= column.array();
    return loss;
  }

  const double l2_;
  const Index classes_;
  const Matrix<double> x_;
  const std::vector<Index> labels_;
  const std::vector<Index> test_labels_;
  Matrix<double> test_x_;

  Scratch batch_;
  Scratch logits_;
  Scratch column_;
  std::vector<Index> picked_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Objective<double>>> MakeLinearRegression(
    const v1::LinearRegression& model, const Dataset& data) {
  return std::make_unique<LinearRegression>(model, data);
}

absl::StatusOr<std::unique_ptr<Objective<double>>> MakeSoftmaxRegression(
    const v1::SoftmaxRegression& model, const Dataset& data) {
  LEEWAY_ASSIGN_OR_RETURN(std::vector<Index> labels,
                          Labels(data.train, model.classes(), "train_y.npy"));
  std::vector<Index> test_labels;
  if (data.test) {
    LEEWAY_ASSIGN_OR_RETURN(test_labels, Labels(*data.test, model.classes(), "test_y.npy"));
  }
  return std::make_unique<SoftmaxRegression>(model, data, std::move(labels),
                                             std::move(test_labels));
}

}  // namespace leeway
