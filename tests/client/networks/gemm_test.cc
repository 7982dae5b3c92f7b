#include "client/networks/gemm.h"

#include <gtest/gtest.h>

#include "tests/client/networks/check.h"

namespace leeway::networks {
namespace {

template <typename T>
ConstBlock<T> Whole(const Matrix<T>& m) {
  return View(m.data(), m.rows(), m.cols());
}
template <typename T>
Block<T> Whole(Matrix<T>& m) {
  return View(m.data(), m.rows(), m.cols());
}

template <typename T>
Matrix<T> RandomMatrix(Index rows, Index cols, uint64_t seed) {
  return Random<T>(rows * cols, seed).reshaped(rows, cols);
}

struct Shape {
  Index m, n, k;
};
// Around the sizes of tiles (6), panels (8 doubles, 16 floats) and blocks.
constexpr Shape kShapes[] = {{1, 1, 1},
                             {5, 8, 3},
                             {6, 16, 7},
                             {7, 17, 256},
                             {20, 62, 9},
                             {13, 130, 257},
                             {97, 33, 300},
                             {200, 129, 31},
                             // Few rows or columns, which go their own ways.
                             {10, 50, 300},
                             {21, 10, 301},
                             {9, 3, 131},
                             {1, 1, 500},
                             {12, 12, 128}};

template <typename T>
class GemmTest : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(GemmTest, Scalars);

TYPED_TEST(GemmTest, AllProductsAgreeWithEigen) {
  using T = TypeParam;
  for (const auto& [m, n, k] : kShapes) {
    const Matrix<T> a = RandomMatrix<T>(m, k, 1), b = RandomMatrix<T>(k, n, 2);
    const Matrix<T> at = a.transpose(), bt = b.transpose(), before = RandomMatrix<T>(m, n, 3);
    const Matrix<T> product =
        (a.template cast<double>() * b.template cast<double>()).template cast<T>();
    const T tolerance = static_cast<T>(sizeof(T) == 4 ? 3e-5 : 1e-12);
    const auto expect = [&](const Matrix<T>& got, Write write, const char* what) {
      const Matrix<T> want = write == Write::kAdd ? Matrix<T>(before + product) : product;
      EXPECT_LT((got - want).cwiseAbs().maxCoeff(), tolerance)
          << what << " " << m << " " << n << " " << k;
    };
    Panels<T> panels(k, n);
    for (Write write : {Write::kSet, Write::kAdd}) {
      Matrix<T> c = before;
      Multiply<T>(Whole(a), Whole(b), Whole(c), write);
      expect(c, write, "A B");
      c = before;
      MultiplyTransposedA<T>(Whole(at), Whole(b), Whole(c), write);
      expect(c, write, "A' B");
      c = before;
      MultiplyTransposedB<T>(Whole(a), Whole(bt), Whole(c), write);
      expect(c, write, "A B'");
      c = before;
      panels.Pack(Whole(b));
      panels.Multiply(Whole(a), Whole(c), write);
      expect(c, write, "A packed");
      c = before;
      panels.PackTransposed(Whole(bt));
      panels.Multiply(Whole(a), Whole(c), write);
      expect(c, write, "A packed from transposed");
    }
  }
}

TYPED_TEST(GemmTest, BiasIsAddedOnceToEveryRow) {
  using T = TypeParam;
  const Matrix<T> a = RandomMatrix<T>(9, 600, 1), b = RandomMatrix<T>(600, 21, 2);
  const Vector<T> bias = Random<T>(21, 3);
  Matrix<T> c(9, 21);
  Multiply<T>(Whole(a), Whole(b), Whole(c), Write::kSet, bias.data());
  const Matrix<T> want = (a * b).rowwise() + bias.transpose();
  EXPECT_LT((c - want).cwiseAbs().maxCoeff(), static_cast<T>(1e-4));
}

TYPED_TEST(GemmTest, WritesNothingOutsideItsBlock) {
  using T = TypeParam;
  const Matrix<T> a = RandomMatrix<T>(7, 5, 1), b = RandomMatrix<T>(5, 19, 2);
  Matrix<T> large = Matrix<T>::Constant(9, 40, T(7));
  Multiply<T>(Whole(a), Whole(b), View(large.data() + 40 + 3, 7, 19, 40), Write::kSet);
  large.block(1, 3, 7, 19).setConstant(T(7));
  EXPECT_EQ(large, Matrix<T>::Constant(9, 40, T(7)).eval());
}

TYPED_TEST(GemmTest, SumRowsAddsEachColumn) {
  using T = TypeParam;
  const Matrix<T> a = RandomMatrix<T>(11, 5, 1);
  Vector<T> total = Vector<T>::Ones(5);
  SumRows<T>(Whole(a), total.data(), Write::kAdd);
  EXPECT_LT((total - Vector<T>::Ones(5) - a.colwise().sum().transpose()).norm(),
            static_cast<T>(1e-5));
}

}  // namespace
}  // namespace leeway::networks
