// SPDX-License-Identifier: Apache-2.0
// Single-precision matrix products of an OpenBLAS loaded at run time.
#ifndef MEMC_BLAS_H_
#define MEMC_BLAS_H_

#include <cstdint>
#include <string>

namespace memc {

// Loads OpenBLAS from `path` and makes it run each product on the calling thread. Throws
// std::runtime_error if it cannot be loaded. A second call changes nothing.
void LoadBlas(const std::string& path);

// c = a b + beta c in row-major order, with a m x k (k x m if transposed), b k x n (n x k if
// transposed); lda, ldb and ldc are row strides in elements. On the calling thread. With
// beta = 0, c need not be initialized. Throws std::runtime_error if there is no OpenBLAS, and
// std::overflow_error for an extent beyond 2^31 - 1.
void Gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

// Throws what Gemm would for want of OpenBLAS or for such an extent. To be called before going
// parallel, where exceptions cannot travel.
void RequireBlas(int64_t largest_extent);

}  // namespace memc

#endif  // MEMC_BLAS_H_
