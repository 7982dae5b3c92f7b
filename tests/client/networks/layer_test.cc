// Every layer's gradients in parameters and in inputs, by finite differences in
// double; the loss is a random linear function of the layer's output.
#include "client/networks/layer.h"

#include <gtest/gtest.h>

#include "client/networks/convolution.h"
#include "client/networks/cross_entropy.h"
#include "client/networks/recurrent.h"
#include "tests/client/networks/check.h"

namespace leeway::networks {
namespace {

void ExpectGradients(Layer<double>& layer, Extent extent) {
  const Index rows = extent.rows();
  const Vector<double> w = Random<double>(layer.parameters(), 1);
  const Vector<double> x = Random<double>(rows * layer.inputs(), 2);
  const Vector<double> dy = Random<double>(rows * layer.outputs(), 3);
  const auto loss = [&](const Vector<double>& at_w, const Vector<double>& at_x) {
    Vector<double> y(rows * layer.outputs());
    layer.Forward(at_w.data(), extent, nullptr, at_x.data(), y.data());
    return y.dot(dy);
  };

  Vector<double> y(dy.size()), dx(x.size()), dw = Vector<double>::Ones(w.size());
  layer.Forward(w.data(), extent, nullptr, x.data(), y.data());
  layer.Backward(w.data(), extent, x.data(), y.data(), dy.data(), dx.data(), dw.data(),
                 Write::kSet);
  ExpectSlopes([&](const Vector<double>& at) { return loss(w, at); }, x, dx);
  if (layer.parameters() == 0) return;
  ExpectSlopes([&](const Vector<double>& at) { return loss(at, x); }, w, dw);

  // Adding, and without the gradient in x.
  Vector<double> twice = dw;
  layer.Forward(w.data(), extent, nullptr, x.data(), y.data());
  layer.Backward(w.data(), extent, x.data(), y.data(), dy.data(), nullptr, twice.data(),
                 Write::kAdd);
  EXPECT_LT((twice - 2 * dw).cwiseAbs().maxCoeff(), 1e-12 * dw.cwiseAbs().maxCoeff() * 10);
}

TEST(DenseTest, GradientsMatchFiniteDifferences) {
  Dense<double> layer(7, 11);
  ExpectGradients(layer, {5});
}

TEST(ReluTest, GradientsMatchFiniteDifferences) {
  Relu<double> layer(19);
  ExpectGradients(layer, {4});
}

TEST(Conv3x3Test, GradientsMatchFiniteDifferences) {
  Conv3x3<double> one_channel({5, 6, 1}, 3);
  ExpectGradients(one_channel, {2});
  Conv3x3<double> square({6, 6, 2}, 9);
  ExpectGradients(square, {3});
  Conv3x3<double> wide({3, 9, 10}, 2);
  ExpectGradients(wide, {2});
}

// Channels and filters for which Winograd's algorithm is chosen; tiles that reach beyond the
// edge of the image, and more of them than are worked on together.
TEST(Conv3x3Test, WinogradGradientsMatchFiniteDifferences) {
  ASSERT_TRUE(Winograd3x3<double>::Suits({6, 9, 16}, 32));
  Conv3x3<double> uneven({6, 9, 16}, 32);
  ExpectGradients(uneven, {2});
}

// y, dx and dw of `layer` against sums by definition, within `share` of the largest.
template <typename T>
void ExpectPlainSums(ImageSize in, Index filters, double share) {
  const Index images = 3, height = in.height - 2, width = in.width - 2;
  Conv3x3<T> layer(in, filters);
  const Vector<T> w = Random<T>(layer.parameters(), 1), x = Random<T>(images * in.size(), 2);
  const Vector<T> dy = Random<T>(images * layer.outputs(), 3);
  Vector<T> y(dy.size()), dx(x.size()), dw(w.size());
  layer.Forward(w.data(), {images}, nullptr, x.data(), y.data());
  layer.Backward(w.data(), {images}, x.data(), y.data(), dy.data(), dx.data(), dw.data(),
                 Write::kSet);
  Vector<double> plain_y(y.size()), plain_dx = Vector<double>::Zero(x.size()),
                                    plain_dw = Vector<double>::Zero(w.size());
  for (Index pixel = 0; pixel < images * height * width; ++pixel) {
    const Index image = pixel / (height * width), row = pixel / width % height;
    const Index col = pixel % width;
    for (Index f = 0; f < filters; ++f) {
      double sum = w[9 * in.channels * filters + f];
      const double error = dy[pixel * filters + f];
      plain_dw[9 * in.channels * filters + f] += error;
      for (Index k = 0; k < 9 * in.channels; ++k) {
        const Index i = k / (3 * in.channels), j = k / in.channels % 3, c = k % in.channels;
        const Index from = image * in.size() + ((row + i) * in.width + col + j) * in.channels + c;
        sum += static_cast<double>(x[from]) * w[k * filters + f];
        plain_dx[from] += error * w[k * filters + f];
        plain_dw[k * filters + f] += error * x[from];
      }
      plain_y[pixel * filters + f] = sum;
    }
  }
  const auto error = [](const Vector<T>& found, const Vector<double>& plain) {
    return (found.template cast<double>() - plain).norm() / plain.norm();
  };
  EXPECT_LT(error(y, plain_y), share);
  EXPECT_LT(error(dx, plain_dx), share);
  EXPECT_LT(error(dw, plain_dw), share);
}

TEST(Conv3x3Test, WinogradIsThePlainSum) {
  const ImageSize in{31, 30, 16};  // 8 x 7 tiles: two bands, the last tiles cut off
  ASSERT_TRUE(Winograd3x3<double>::Suits(in, 32));
  ExpectPlainSums<double>(in, 32, 1e-14);
  ExpectPlainSums<float>(in, 32, 2e-6);
}

TEST(Conv3x3Test, WindowByWindowIsThePlainSum) {
  const ImageSize in{9, 8, 3};
  ASSERT_FALSE(Winograd3x3<double>::Suits(in, 5));
  ExpectPlainSums<double>(in, 5, 1e-14);
  ExpectPlainSums<float>(in, 5, 2e-6);
}

TEST(Conv3x3Test, IsTheCorrelationOfItsFormula) {
  const ImageSize in{5, 7, 2};
  Conv3x3<double> layer(in, 3);
  const Vector<double> w = Random<double>(layer.parameters(), 1), x = Random<double>(in.size(), 2);
  Vector<double> y(layer.outputs());
  layer.Forward(w.data(), {1}, nullptr, x.data(), y.data());
  for (Index row = 0; row < 3; ++row) {
    for (Index col = 0; col < 5; ++col) {
      for (Index f = 0; f < 3; ++f) {
        double sum = w[9 * 2 * 3 + f];
        for (Index i = 0; i < 3; ++i) {
          for (Index j = 0; j < 3; ++j) {
            for (Index c = 0; c < 2; ++c) {
              sum += x[((row + i) * 7 + col + j) * 2 + c] * w[((i * 3 + j) * 2 + c) * 3 + f];
            }
          }
        }
        EXPECT_NEAR(y[(row * 5 + col) * 3 + f], sum, 1e-12);
      }
    }
  }
}

TEST(MaxPool2Test, GradientsMatchFiniteDifferences) {
  MaxPool2<double> even({4, 6, 3});
  ExpectGradients(even, {2});
  MaxPool2<double> odd({5, 7, 2});
  ExpectGradients(odd, {2});
}

TEST(LstmLayerTest, GradientsMatchFiniteDifferences) {
  for (Index steps : {1, 2, 6}) {
    LstmLayer<double> layer(3, 5, {4, steps});
    ExpectGradients(layer, {4, steps});
  }
  LstmLayer<double> larger(9, 11, {8, 7});
  ExpectGradients(larger, {3, 4});  // less than its largest batch
}

TEST(EmbeddingTest, GradientIsTheSumOverOccurrences) {
  const Embedding<double> embedding(4, 2);
  const int32_t tokens[] = {3, 1, 3};
  const Vector<double> w = Random<double>(8, 1), dy = Random<double>(6, 2);
  Vector<double> y(6), dw = Vector<double>::Ones(8);
  embedding.Forward(w.data(), {3}, tokens, y.data());
  EXPECT_EQ(y.head(2), w.tail(2));
  EXPECT_EQ(y.segment(2, 2), w.segment(2, 2));
  embedding.Backward({3}, tokens, dy.data(), dw.data(), Write::kSet);
  EXPECT_EQ(dw.head(2).norm() + dw.segment(4, 2).norm(), 0);
  EXPECT_EQ(dw.segment(2, 2), dy.segment(2, 2));
  EXPECT_EQ(dw.tail(2), dy.head(2) + dy.tail(2));
}

TEST(DropoutTest, KeepsTheMeanAndItsGradientFollowsWhatWasDropped) {
  const Index size = 10'001;
  Dropout<double> layer(size, 0.25, {3});
  const Vector<double> ones = Vector<double>::Ones(3 * size);
  Vector<double> y = ones, dy = ones;
  Rng rng(1, 2, 3, Purpose::kDropout);
  layer.Forward(nullptr, {3}, &rng, y.data(), y.data());
  const auto kept = static_cast<double>((y.array() > 0).count());
  EXPECT_NEAR(kept / static_cast<double>(y.size()), 0.75, 0.01);
  EXPECT_NEAR(y.maxCoeff(), 4.0 / 3, 1e-12);
  layer.Backward(nullptr, {3}, y.data(), y.data(), dy.data(), dy.data(), nullptr, Write::kSet);
  EXPECT_EQ(dy, y);
}

TEST(DropoutTest, WithoutRandomNumbersDoesNothing) {
  Dropout<double> layer(5, 0.5, {1});
  Vector<double> y = Random<double>(5, 1), dy = Random<double>(5, 2);
  const Vector<double> y_before = y, dy_before = dy;
  layer.Forward(nullptr, {1}, nullptr, y.data(), y.data());
  layer.Backward(nullptr, {1}, y.data(), y.data(), dy.data(), dy.data(), nullptr, Write::kSet);
  EXPECT_EQ(y, y_before);
  EXPECT_EQ(dy, dy_before);
}

TEST(SoftmaxCrossEntropyTest, GradientMatchesFiniteDifferencesAndSkipsIgnoredRows) {
  const SoftmaxCrossEntropy<double> loss(0);
  const int32_t targets[] = {3, 0, 6, 1};
  const Vector<double> logits = Random<double>(4 * 7, 1, 5);
  const auto sum = [&](const Vector<double>& at) {
    Vector<double> copy = at;
    return loss.Score(View(copy.data(), 4, 7), targets).loss_sum / 3;
  };
  Vector<double> gradient = logits;
  const Outcome outcome = loss.Gradient(View(gradient.data(), 4, 7), targets, 1.0 / 3);
  EXPECT_EQ(outcome.rows, 3u);
  EXPECT_NEAR(outcome.loss_sum / 3, sum(logits), 1e-12);
  EXPECT_EQ(gradient.segment(7, 7).norm(), 0);
  ExpectSlopes(sum, logits, gradient);
}

TEST(SoftmaxCrossEntropyTest, CountsCorrectAnswersAndSurvivesHugeLogits) {
  const SoftmaxCrossEntropy<float> loss(0);
  const int32_t targets[] = {1, 2, 0};
  Vector<float> logits(9);
  logits << 0, 1e30f, -1e30f, 5, 4, 3, 9, 0, 0;
  const Outcome outcome = loss.Score(View(logits.data(), 3, 3), targets);
  EXPECT_EQ(outcome.rows, 2u);
  EXPECT_EQ(outcome.correct, 1u);
  EXPECT_NEAR(outcome.loss_sum, 2.4076, 1e-3);
}

}  // namespace
}  // namespace leeway::networks
