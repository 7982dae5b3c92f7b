#include "client/convex_models.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/networks/gemm.h"
#include "client/npy_values.h"
#include "common/lanczos.h"
#include "common/model_layout.h"
#include "common/status.h"

namespace leeway {
namespace {

using Index = Eigen::Index;
using Rows = absl::Span<const uint32_t>;
using View = Eigen::Map<const Matrix<double>>;

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

// The inputs of one part, one row per example, with a last column of ones if `ones`.
// Doubles are used where the file is mapped; other types, and those with ones, are
// copied, some rows at a time, when they are needed.
class Inputs {
 public:
  Inputs() = default;
  explicit Inputs(const DataPart& part, bool ones = false)
      : x_(part.x),
        ones_(ones),
        rows_(static_cast<Index>(part.examples())),
        width_(rows_ == 0 ? 0 : static_cast<Index>(part.x.size()) / rows_),
        cols_(width_ + (ones ? 1 : 0)),
        // Where vector instructions start, and with it rounding, must not depend on
        // the file's header.
        mapped_(!ones && part.x.type() == NpyType::kFloat64 &&
                reinterpret_cast<uintptr_t>(part.x.data()) % kAlignment == 0) {}

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  // Sizes stay; there are no examples until it is assigned again.
  void Release() { x_ = NpyArray(); }
  size_t held_bytes() const { return x_.data() == nullptr ? 0 : x_.size() * sizeof(double); }
  // Examples `first` .. `first + count - 1` of `rows`, or of all if it is empty.
  View Some(Rows rows, Index first, Index count, Scratch& scratch) const {
    if (rows.empty() && mapped_) {
      return {reinterpret_cast<const double*>(x_.data()) + first * cols_, count, cols_};
    }
    Eigen::Map<Matrix<double>> out = scratch.Shaped(count, cols_);
    if (rows.empty() && !ones_) {
      CopyValues(x_, first * cols_, count * cols_, out.data());
      return {out.data(), count, cols_};
    }
    for (Index i = 0; i < count; ++i) {
      const Index row =
          rows.empty() ? first + i : static_cast<Index>(rows[static_cast<size_t>(first + i)]);
      CopyValues(x_, row * width_, width_, out.data() + i * cols_);
      if (ones_) out(i, width_) = 1;
    }
    return {out.data(), count, cols_};
  }

 private:
  static constexpr size_t kAlignment = 64;
  NpyArray x_;
  bool ones_ = false;
  Index rows_ = 0;
  Index width_ = 0;  // without the ones
  Index cols_ = 0;
  bool mapped_ = false;
};

Vector<double> Targets(const DataPart& part) {
  const std::vector<double> values = part.y.As<double>();
  return Eigen::Map<const Vector<double>>(values.data(), static_cast<Index>(values.size()));
}

// Number of examples that `rows` stands for.
Index Count(Rows rows, const Inputs& x) {
  return rows.empty() ? x.rows() : static_cast<Index>(rows.size());
}

View All(const Inputs& x, Scratch& scratch) { return x.Some({}, 0, x.rows(), scratch); }

// out = a * w, where a is stored by columns of `rows`, a multiple of kPadding, values. Each sum
// goes from the first column to the last, as Eigen's product does for less than 128 columns; that
// one spends more time on setting out than on small matrices.
constexpr Index kPadding = 32;
void ColumnProduct(const double* a, Index rows, ConstVectorRef<double> w, double* out) {
  using Eigen::internal::ploadu, Eigen::internal::pmadd, Eigen::internal::pset1;
  using P = Eigen::internal::packet_traits<double>::type;
  constexpr Index kLanes = Eigen::internal::packet_traits<double>::size;
  constexpr Index kPackets = kPadding / kLanes;
  for (Index row = 0; row < rows; row += kPadding) {
    P sums[kPackets];
    std::fill_n(sums, kPackets, pset1<P>(0));
    for (Index j = 0; j < w.size(); ++j) {
      const double* column = a + j * rows + row;
      const P factor = pset1<P>(w[j]);
#pragma GCC unroll 16
      for (Index i = 0; i < kPackets; ++i) {
        sums[i] = pmadd(ploadu<P>(column + i * kLanes), factor, sums[i]);
      }
    }
    // Adding 0 makes 0 of -0, as Eigen does.
    for (Index i = 0; i < kPackets; ++i) {
      Eigen::internal::pstoreu(out + row + i * kLanes, Eigen::internal::padd(sums[i], pset1<P>(0)));
    }
  }
}

// The intercept is the weight of an input that is always 1. Where the examples can be made
// again, they are let go of when gradients and losses no longer need them.
class LinearRegression final : public Objective<double> {
 public:
  LinearRegression(const v1::LinearRegression& model, const Dataset& data)
      : l2_(model.l2()),
        ones_(HasIntercept(model)),
        make_again_(data.make_again),
        x_(data.train, ones_),
        y_(leeway::Targets(data.train)) {
    if (!data.test) return;
    test_x_ = Inputs(*data.test, ones_);
    test_y_ = leeway::Targets(*data.test);
  }

  uint64_t examples() const override { return static_cast<uint64_t>(x_.rows()); }

  double Evaluate(ConstVectorRef<double> w, Rows rows, VectorRef<double> gradient) override {
    if (rows.empty() && UsesGram()) {
      GramGradient(w, gradient);
      if (has_minimum_) return LossFromMinimum(w);
      const View x = All(x_, batch_);
      return ResidualLoss(Residual(x, w, rows), w);
    }
    Restore();
    const View x = x_.Some(rows, 0, Count(rows, x_), batch_);
    const Eigen::Map<Vector<double>> residual = Residual(x, w, rows);
    ResidualGradient(x, residual, w, gradient);
    return ResidualLoss(residual, w);
  }

  void FullGradient(ConstVectorRef<double> w, VectorRef<double> gradient) override {
    if (UsesGram()) return GramGradient(w, gradient);
    Restore();
    const View x = All(x_, batch_);
    ResidualGradient(x, Residual(x, w, {}), w, gradient);
  }

  double DifferenceStep() const override { return 1; }

  TargetSummary Targets() override {
    Restore();
    return {y_.mean(), y_.array().square().mean(), {}};
  }

  size_t held_bytes() const override {
    return x_.held_bytes() + static_cast<size_t>(y_.size() + quadratic_.size()) * sizeof(double);
  }

  void Release() override {
    if (!make_again_ || !has_minimum_) return;
    x_.Release();
    y_ = Vector<double>();
    batch_ = Scratch();
    residual_ = Scratch();
  }

  TestResult Test(ConstVectorRef<double> w) override {
    TestResult result;
    result.examples = static_cast<uint64_t>(test_x_.rows());
    if (result.examples == 0) return result;
    Eigen::Map<Vector<double>> residual = residual_.Column(test_x_.rows());
    residual.noalias() = All(test_x_, batch_) * w;
    residual -= test_y_;
    result.loss_sum = 0.5 * residual.squaredNorm();
    return result;
  }

 private:
  // d^2 multiplications instead of 2nd; the limit bounds memory and the n d^2
  // that the matrix costs once.
  bool UsesGram() const { return 2 * x_.rows() > x_.cols() && x_.cols() <= 2048; }

  // Makes the examples again if they have been let go of.
  void Restore() {
    if (y_.size() > 0) return;
    const DataPart train = make_again_();
    x_ = Inputs(train, ones_);
    y_ = leeway::Targets(train);
  }

  // Product with the Gram matrix, in scratch space of the calling thread.
  Eigen::Map<const Vector<double>> GramProduct(const ConstVectorRef<double>& w) {
    thread_local Scratch scratch;
    Eigen::Map<Vector<double>> product = scratch.Column(quadratic_.rows());
    if (x_.cols() < 128) {
      ColumnProduct(quadratic_.data(), quadratic_.rows(), w, product.data());
    } else {
      product.noalias() = gram() * w;
    }
    return {product.data(), x_.cols()};
  }

  void GramGradient(const ConstVectorRef<double>& w, VectorRef<double>& gradient) {
    if (quadratic_.size() == 0) Prepare();
    gradient = GramProduct(w) - moment();
  }

  // F(w) = F(m) + (w - m)'A(w - m)/2 with the minimum m: without a look at the data and,
  // unlike w'Aw - 2b'w + y'y, without cancelling.
  double LossFromMinimum(const ConstVectorRef<double>& w) {
    thread_local Scratch scratch;
    Eigen::Map<Vector<double>> way = scratch.Column(x_.cols());
    way = w - minimum();
    const double rise = 0.5 * way.dot(GramProduct(way));
    return minimum_loss_ + (rise < 0 ? 0 : rise);  // what is no number stays so
  }

  void Prepare() {
    const Index cols = x_.cols();
    const double count = static_cast<double>(x_.rows());
    const View x = All(x_, batch_);
    quadratic_.setZero((cols + kPadding - 1) / kPadding * kPadding, cols + 2);
    auto a = gram().topRows(cols);
    a.noalias() = x.transpose() * x;
    a /= count;
    a.diagonal().array() += l2_;
    moment().noalias() = x.transpose() * y_;
    moment() /= count;
    const Eigen::LLT<Eigen::MatrixXd> factor(a);
    // Where A is much flatter in one direction than in another, its rounding shows in a
    // loss, and that is found from residuals.
    has_minimum_ = factor.info() == Eigen::Success && factor.rcond() > kFlattest;
    if (!has_minimum_) return;
    minimum() = factor.solve(moment());
    minimum_loss_ = ResidualLoss(Residual(x, minimum(), {}), minimum());
    Release();
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

  double ResidualLoss(const Eigen::Map<Vector<double>>& residual,
                      const ConstVectorRef<double>& w) const {
    return residual.squaredNorm() / (2 * static_cast<double>(residual.size())) +
           0.5 * l2_ * w.squaredNorm();
  }

  void ResidualGradient(const View& x, const Eigen::Map<Vector<double>>& residual,
                        const ConstVectorRef<double>& w, VectorRef<double>& gradient) {
    gradient.noalias() = x.transpose() * residual;
    gradient /= static_cast<double>(x.rows());
    if (l2_ != 0) gradient += l2_ * w;
  }

  const double l2_;
  const bool ones_;
  const std::function<DataPart()> make_again_;  // or null
  Inputs x_;
  Vector<double> y_;  // empty while the examples are let go of
  Inputs test_x_;
  Vector<double> test_y_;

  // What the loss is as a quadratic, made when first needed, in one piece of memory. By
  // columns: a product then adds whole columns, without a sum across a register for
  // every row. Rows of zeros below, up to a multiple of kPadding: no column then ends in
  // single values, which would take as long as all others.
  static constexpr double kFlattest = 1e-5;  // reciprocal condition number
  Eigen::MatrixXd quadratic_;
  Eigen::Block<Eigen::MatrixXd> gram() {  // X'X/n + l2 I
    return quadratic_.block(0, 0, quadratic_.rows(), x_.cols());
  }
  using Part = Eigen::Block<Eigen::MatrixXd, Eigen::Dynamic, 1>;
  Part Column(Index index, Index rows) { return {quadratic_, 0, x_.cols() + index, rows, 1}; }
  Part moment() { return Column(0, x_.cols()); }   // X'y/n
  Part minimum() { return Column(1, x_.cols()); }  // if has_minimum_
  bool has_minimum_ = false;
  double minimum_loss_ = 0;
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
        x_(data.train),
        labels_(std::move(labels)),
        test_labels_(std::move(test_labels)) {
    if (data.test) test_x_ = Inputs(*data.test);
  }

  uint64_t examples() const override { return static_cast<uint64_t>(x_.rows()); }

  double Evaluate(ConstVectorRef<double> w, Rows rows, VectorRef<double> gradient) override {
    const Index count = Count(rows, x_);
    double loss = 0;
    gradient.setZero();
    for (Index first = 0; first < count; first += BlockRows()) {
      const Index size = std::min(BlockRows(), count - first);
      const View x = x_.Some(rows, first, size, batch_);
      picked_.resize(static_cast<size_t>(size));
      for (size_t i = 0; i < picked_.size(); ++i) {
        const size_t at = static_cast<size_t>(first) + i;
        picked_[i] = labels_[rows.empty() ? at : rows[at]];
      }
      Eigen::Map<Matrix<double>> errors = Logits(x, w);
      loss += CrossEntropy(picked_, errors);
      // From probabilities to the gradient of the mean loss in the logits.
      for (Index i = 0; i < size; ++i) errors(i, picked_[static_cast<size_t>(i)]) -= 1;
      errors /= static_cast<double>(count);
      networks::MultiplyTransposedA<double>(
          networks::View(std::as_const(errors).data(), size, classes_),
          networks::View(x.data(), size, x.cols()),
          networks::View(gradient.data(), classes_, x.cols()), networks::Write::kAdd);
      gradient.tail(classes_) += errors.colwise().sum().transpose();
    }
    loss /= static_cast<double>(count);
    if (l2_ != 0) {
      loss += 0.5 * l2_ * w.squaredNorm();
      gradient += l2_ * w;
    }
    return loss;
  }

  TargetSummary Targets() override {
    TargetSummary summary;
    summary.shares.resize(static_cast<size_t>(classes_));
    for (const Index label : labels_) summary.shares[static_cast<size_t>(label)] += 1;
    for (double& share : summary.shares) share /= static_cast<double>(labels_.size());
    return summary;
  }

  // diag(p) - pp' is at most 1/2 for any probabilities p, so that the Hessian is at most
  // X'X/(2n) for every class (X with its column of ones), whatever the model; with two
  // classes it gets there, at w = 0.
  std::optional<double> SmoothnessEverywhere() override {
    if (smoothness_) return smoothness_;
    const Index cols = x_.cols();
    Lanczos lanczos(cols + 1, kSmoothnessIterations);
    while (!lanczos.done()) {
      const Vector<double>& v = lanczos.direction();
      Vector<double> product = Vector<double>::Zero(cols + 1);
      for (Index first = 0; first < x_.rows(); first += BlockRows()) {
        const Index size = std::min(BlockRows(), x_.rows() - first);
        const View x = x_.Some({}, first, size, batch_);
        Eigen::Map<Vector<double>> along = column_.Column(size);
        along.noalias() = x * v.head(cols);
        along.array() += v[cols];
        product.head(cols).noalias() += x.transpose() * along;
        product[cols] += along.sum();
      }
      lanczos.Observe(product / static_cast<double>(x_.rows()));
    }
    smoothness_ = 0.5 * lanczos.largest() + l2_;
    return smoothness_;
  }

  // Adding the same to the weights of all classes changes no probability, so that the
  // penalty alone curves the loss in these directions.
  std::optional<double> ConvexityEverywhere() const override { return l2_; }

  TestResult Test(ConstVectorRef<double> w) override {
    TestResult result;
    result.examples = static_cast<uint64_t>(test_x_.rows());
    result.labels.resize(static_cast<size_t>(classes_));
    for (Index first = 0; first < test_x_.rows(); first += BlockRows()) {
      const Index size = std::min(BlockRows(), test_x_.rows() - first);
      Eigen::Map<Matrix<double>> logits = Logits(test_x_.Some({}, first, size, batch_), w);
      picked_.assign(test_labels_.begin() + first, test_labels_.begin() + first + size);
      for (Index i = 0; i < size; ++i) {
        Index answer;
        logits.row(i).maxCoeff(&answer);
        const Index label = picked_[static_cast<size_t>(i)];
        result.correct += answer == label ? 1 : 0;
        ++result.labels[static_cast<size_t>(label)];
        if (classes_ == 2) result.scores[label].push_back(logits(i, 1) - logits(i, 0));
      }
      result.loss_sum += CrossEntropy(picked_, logits);
    }
    return result;
  }

 private:
  static constexpr uint32_t kSmoothnessIterations = 60;

  // Examples at a time: their inputs (half a megabyte) stay in the cache from the
  // logits to the gradient, and memory does not grow with the data.
  Index BlockRows() const { return std::clamp<Index>(65536 / x_.cols(), 16, 256); }

  Eigen::Map<Matrix<double>> Logits(const View& x, const ConstVectorRef<double>& w) {
    Eigen::Map<Matrix<double>> logits = logits_.Shaped(x.rows(), classes_);
    logits.rowwise() = w.tail(classes_).transpose();
    networks::MultiplyTransposedB<double>(
        networks::View(x.data(), x.rows(), x.cols()), networks::View(w.data(), classes_, x.cols()),
        networks::View(logits.data(), x.rows(), classes_), networks::Write::kAdd);
    return logits;
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
  const Inputs x_;
  const std::vector<Index> labels_;
  const std::vector<Index> test_labels_;
  Inputs test_x_;

  std::optional<double> smoothness_;  // found when first asked for
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
  LEEWAY_ASSIGN_OR_RETURN(
      std::vector<Index> labels,
      Labels(data.train, model.classes(), absl::StrCat(data.train_name(), "_y.npy")));
  std::vector<Index> test_labels;
  if (data.test) {
    LEEWAY_ASSIGN_OR_RETURN(test_labels, Labels(*data.test, model.classes(), "test_y.npy"));
  }
  return std::make_unique<SoftmaxRegression>(model, data, std::move(labels),
                                             std::move(test_labels));
}

}  // namespace leeway
