// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "memc/blas.h"
#include "memc/cpu_kernels.h"
#include "memc/parallel.h"

namespace memc {

namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void Matmul(const MatmulShape& shape, const MatmulOperands& o) {
  const int64_t m = shape.m;
  const int64_t n = shape.n;
  const int64_t k = shape.k;
  const auto batch = static_cast<int64_t>(shape.a_at.size());
  if (batch == 0 || m == 0 || n == 0) return;
  RequireBlas(std::max({m, n, k}));
  if (k == 0 && o.add == nullptr) std::fill(o.c, o.c + batch * m * n, 0.0F);
  const int64_t lda = shape.transpose_a ? m : k;
  const int64_t ldb = shape.transpose_b ? k : n;

  ParallelFor(batch * m * n * k < kSerialWork, [&](int64_t task, int64_t tasks) {
    // Each product is cut along its longer side, into as many parts as give every thread one.
    const int64_t parts = batch >= 4 * tasks ? 1 : tasks;
    const bool cut_rows = m > n;
    const int64_t step = CeilDiv(CeilDiv(cut_rows ? m : n, parts), 16) * 16;
    const int64_t items = batch * parts;
    for (int64_t item = task * items / tasks; item < (task + 1) * items / tasks; ++item) {
      const int64_t product = item / parts;
      const int64_t begin = item % parts * step;
      const int64_t end = std::min(begin + step, cut_rows ? m : n);
      if (begin >= end) continue;
      const int64_t row = cut_rows ? begin : 0;
      const int64_t rows = cut_rows ? end - begin : m;
      const int64_t column = cut_rows ? 0 : begin;
      const int64_t columns = cut_rows ? n : end - begin;
      const float* from_a = o.a + shape.a_at[product] + (shape.transpose_a ? row : row * lda);
      const float* from_b = o.b + shape.b_at[product] + (shape.transpose_b ? column * ldb : column);
      const int64_t at = (product * m + row) * n + column;
      float* to = o.c + at;
      if (o.add != nullptr && o.add != o.c) {
        // The sums begin with what is added.
        for (int64_t r = 0; r < rows; ++r) std::copy_n(o.add + at + r * n, columns, to + r * n);
      }
      if (k > 0) {
        Gemm(shape.transpose_a, shape.transpose_b, rows, columns, k, from_a, lda, from_b, ldb,
             o.add == nullptr ? 0.0F : 1.0F, to, n);
      }
      Epilogue(to, rows, columns, n, nullptr, o.bias == nullptr ? nullptr : o.bias + column,
               shape.limits);
    }
  });
}

}  // namespace memc
