// SPDX-License-Identifier: Apache-2.0
#include "kernels/blas.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <stdexcept>

namespace memc {

namespace {

// cblas.h of the scipy-openblas32 wheel: 32-bit integers, names prefixed with scipy_.
using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                       const float* a, int lda, const float* b, int ldb, float beta, float* c,
                       int ldc);
using Sgemv = void (*)(int order, int trans, int m, int n, float alpha, const float* a, int lda,
                       const float* x, int incx, float beta, float* y, int incy);
using SetNumThreads = void (*)(int threads);

constexpr int kRowMajor = 101;
constexpr int kNoTrans = 111;
constexpr int kTrans = 112;

struct Blas {
  Sgemm sgemm = nullptr;
  Sgemv sgemv = nullptr;
};

Blas blas;
std::atomic<bool> ready{false};  // Whether `blas` may be read.
std::mutex loading;

void* Symbol(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    throw std::runtime_error(std::string("OpenBLAS lacks ") + name + ": " + dlerror());
  }
  return symbol;
}

}  // namespace

void LoadBlas(const std::string& path) {
  const std::lock_guard<std::mutex> guard(loading);
  if (ready) return;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(std::string("cannot load OpenBLAS: ") + dlerror());
  }
  reinterpret_cast<SetNumThreads>(Symbol(library, "scipy_openblas_set_num_threads"))(1);
  blas.sgemv = reinterpret_cast<Sgemv>(Symbol(library, "scipy_cblas_sgemv"));
  blas.sgemm = reinterpret_cast<Sgemm>(Symbol(library, "scipy_cblas_sgemm"));
  ready = true;
}

void RequireBlas(int64_t largest_extent) {
  if (largest_extent > std::numeric_limits<int32_t>::max()) {
    throw std::overflow_error("a matrix extent exceeds 2^31 - 1");
  }
  if (ready) return;
  const char* path = std::getenv("MEMC_OPENBLAS");
  if (path == nullptr) path = "libscipy_openblas.so";
  LoadBlas(path);
}

namespace {

constexpr int64_t kTerms = 1024;  // That OpenBLAS adds up one after another; see `GemmOfMany`.
constexpr int64_t kStrip = 1024;  // Elements of the result at a time.

int Extent(int64_t extent) { return static_cast<int>(std::max<int64_t>(extent, 1)); }

// As `Gemm`, however many terms there are.
void GemmOfFew(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
               int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 1 && ldc >= n) {
    // A row times a matrix: c' = op(b)' a'.
    const auto rows = transpose_b ? n : k;
    const auto columns = transpose_b ? k : n;
    blas.sgemv(kRowMajor, transpose_b ? kNoTrans : kTrans, Extent(rows), Extent(columns), 1.0F, b,
               Extent(ldb), a, transpose_a ? Extent(lda) : 1, beta, c, 1);
  } else if (n == 1) {
    // A matrix times a column.
    const auto rows = transpose_a ? k : m;
    const auto columns = transpose_a ? m : k;
    blas.sgemv(kRowMajor, transpose_a ? kTrans : kNoTrans, Extent(rows), Extent(columns), 1.0F, a,
               Extent(lda), b, transpose_b ? 1 : Extent(ldb), beta, c, Extent(ldc));
  } else {
    blas.sgemm(kRowMajor, transpose_a ? kTrans : kNoTrans, transpose_b ? kTrans : kNoTrans,
               Extent(m), Extent(n), static_cast<int>(k), 1.0F, a, Extent(lda), b, Extent(ldb),
               beta, c, Extent(ldc));
  }
}

// OpenBLAS adds up all terms of a vector's product, or a small matrix's, one after another in
// single precision: the error grows with their number. Here blocks of terms are, and their sums in
// double.
void GemmOfMany(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
                int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  float part[kStrip];
  double sums[kStrip];
  const int64_t step_n = std::min(n, kStrip);
  const int64_t step_m = std::min(m, kStrip / step_n);
  for (int64_t row = 0; row < m; row += step_m) {
    for (int64_t column = 0; column < n; column += step_n) {
      const int64_t rows = std::min(step_m, m - row);
      const int64_t columns = std::min(step_n, n - column);
      float* to = c + row * ldc + column;
      for (int64_t i = 0; i < rows * columns; ++i) {
        sums[i] = beta == 0.0F ? 0.0 : beta * to[i / columns * ldc + i % columns];
      }
      for (int64_t term = 0; term < k; term += kTerms) {
        GemmOfFew(transpose_a, transpose_b, rows, columns, std::min(kTerms, k - term),
                  a + (transpose_a ? term * lda + row : row * lda + term), lda,
                  b + (transpose_b ? column * ldb + term : term * ldb + column), ldb, 0.0F, part,
                  columns);
        for (int64_t i = 0; i < rows * columns; ++i) sums[i] += part[i];
      }
      for (int64_t i = 0; i < rows * columns; ++i) {
        to[i / columns * ldc + i % columns] = static_cast<float>(sums[i]);
      }
    }
  }
}

}  // namespace

void Gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  // A dense row lies in memory like the column that is its transpose; along rows it is faster.
  if (m == 1 && transpose_a && lda == 1) {
    transpose_a = false;
    lda = k;
  }
  if (n == 1 && !transpose_b && ldb == 1) {
    transpose_b = true;
    ldb = k;
  }
  const bool vector = m == 1 || n == 1;
  const bool many = k > 2 * kTerms && (vector || m * n <= kStrip);
  (many ? GemmOfMany : GemmOfFew)(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

}  // namespace memc
