#include "common/lanczos.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "common/rng.h"

namespace leeway {
namespace {

Eigen::VectorXd RitzValues(const std::vector<double>& diagonal, const std::vector<double>& off) {
  const auto n = static_cast<Eigen::Index>(diagonal.size());
  const Eigen::Map<const Eigen::VectorXd> d(diagonal.data(), n);
  const Eigen::Map<const Eigen::VectorXd> e(off.data(), n - 1);
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver;
  solver.computeFromTridiagonal(d, e, Eigen::EigenvaluesOnly);
  return solver.eigenvalues();
}

}  // namespace

Lanczos::Lanczos(Eigen::Index dimension, uint32_t iterations, Keep keep)
    : iterations_(std::min<uint32_t>(iterations, static_cast<uint32_t>(dimension))), keep_(keep) {
  // A fixed random start: it meets every eigenvector, and results repeat.
  Rng rng(0, 0, static_cast<uint64_t>(dimension), Purpose::kLanczos);
  Vector<double> start(dimension);
  for (double& x : start) x = rng.Normal();
  basis_.push_back(start.normalized());
}

void Lanczos::Observe(const Vector<double>& product) {
  const double alpha = product.dot(basis_.back());
  diagonal_.push_back(alpha);
  Vector<double> next = product;
  for (int pass = 0; pass < 2; ++pass) {  // twice is enough (Kahan)
    for (const Vector<double>& q : basis_) next -= q.dot(next) * q;
  }
  const double beta = next.norm();
  const double scale = std::max(std::abs(largest()), std::abs(smallest()));
  done_ = diagonal_.size() >= iterations_ || beta <= 1e-12 * scale;
  if (done_) return;
  off_diagonal_.push_back(beta);
  basis_.push_back(next / beta);
  if (keep_ == Keep::kLastTwo && basis_.size() > 2) basis_.erase(basis_.begin());
}

double Lanczos::smallest() const { return RitzValues(diagonal_, off_diagonal_).minCoeff(); }
double Lanczos::largest() const { return RitzValues(diagonal_, off_diagonal_).maxCoeff(); }

std::vector<double> Lanczos::Save() const {
  std::vector<double> out = {static_cast<double>(diagonal_.size()),
                             static_cast<double>(off_diagonal_.size()),
                             static_cast<double>(basis_.size()), static_cast<double>(done_)};
  out.insert(out.end(), diagonal_.begin(), diagonal_.end());
  out.insert(out.end(), off_diagonal_.begin(), off_diagonal_.end());
  for (const Vector<double>& q : basis_) out.insert(out.end(), q.data(), q.data() + q.size());
  return out;
}

absl::Status Lanczos::Restore(const std::vector<double>& state) {
  const auto wrong = [] { return absl::DataLossError("saved Lanczos state has a wrong length"); };
  if (state.size() < 4) return wrong();
  const auto diagonal = static_cast<size_t>(state[0]);
  const auto off = static_cast<size_t>(state[1]);
  const auto vectors = static_cast<size_t>(state[2]);
  const auto n = static_cast<size_t>(basis_[0].size());
  if (state.size() != 4 + diagonal + off + vectors * n || vectors == 0) return wrong();
  done_ = state[3] != 0;
  const double* next = state.data() + 4;
  diagonal_.assign(next, next + diagonal);
  off_diagonal_.assign(next + diagonal, next + diagonal + off);
  next += diagonal + off;
  basis_.clear();
  for (size_t i = 0; i < vectors; ++i, next += n) {
    basis_.emplace_back(Eigen::Map<const Vector<double>>(next, static_cast<Eigen::Index>(n)));
  }
  return absl::OkStatus();
}

}  // namespace leeway
