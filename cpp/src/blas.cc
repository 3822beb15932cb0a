// SPDX-License-Identifier: Apache-2.0
#include "memc/blas.h"

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

void Gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const auto i = [](int64_t extent) { return static_cast<int>(std::max<int64_t>(extent, 1)); };
  if (m == 0 || n == 0) return;
  if (m == 1 && ldc >= n) {
    // A row times a matrix: c' = op(b)' a'.
    const auto rows = transpose_b ? n : k;
    const auto columns = transpose_b ? k : n;
    blas.sgemv(kRowMajor, transpose_b ? kNoTrans : kTrans, i(rows), i(columns), 1.0F, b, i(ldb), a,
               transpose_a ? i(lda) : 1, beta, c, 1);
    return;
  }
  blas.sgemm(kRowMajor, transpose_a ? kTrans : kNoTrans, transpose_b ? kTrans : kNoTrans, i(m),
             i(n), static_cast<int>(k), 1.0F, a, i(lda), b, i(ldb), beta, c, i(ldc));
}

}  // namespace memc
