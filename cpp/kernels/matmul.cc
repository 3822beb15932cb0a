// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/blas.h"
#include "kernels/cpu_kernels.h"
#include "kernels/panel_product.h"
#include "kernels/parallel.h"
#include "kernels/patches.h"

namespace memc {

namespace {

constexpr int64_t kSmallLeft = int64_t{64} * 1024;  // Elements of a left factor that stay near.

// Products that OpenBLAS spends much of its time on packing: many small ones, as in attention.
bool IsSmall(const MatmulShape& s) {
  return !s.transpose_a && s.m >= 2 * kPanelRows && s.n >= kPanelColumns && s.m * s.k <= kSmallLeft;
}

// One product's rows [row, row + rows) and columns [column, column + columns).
struct Part {
  int64_t product;
  int64_t row, rows;
  int64_t column, columns;
};

void RunSmall(const MatmulShape& s, const Part& part, const MatmulOperands& o) {
  alignas(64) float scratch[kStackPanel];
  const int64_t block = CeilDiv(s.k, CeilDiv(s.k, kPanelDepth));
  const int64_t width = kStackPanel / block / kPanelColumns * kPanelColumns;
  const int64_t ldb = s.transpose_b ? s.k : s.n;
  PanelProduct p{};
  p.rows = part.rows;
  p.a_row = s.k;
  p.b = scratch;
  p.b_term = kPanelColumns;
  p.c_row = s.n;
  p.low = s.limits.low;
  p.high = s.limits.high;
  for (int64_t at = 0; at < part.columns; at += width) {
    const int64_t column = part.column + at;
    const int64_t out = (part.product * s.m + part.row) * s.n + column;
    p.columns = std::min(width, part.columns - at);
    p.c = o.c + out;
    p.add = o.add == nullptr ? nullptr : o.add + out;
    p.column_bias = o.bias == nullptr ? nullptr : o.bias + column;
    for (int64_t term = 0; term < s.k; term += block) {
      p.depth = std::min(block, s.k - term);
      p.a = o.a + s.a_at[part.product] + part.row * s.k + term;
      p.b_panel = p.depth * kPanelColumns;
      p.first = term == 0;
      p.last = term + p.depth == s.k;
      const int64_t from = s.transpose_b ? column * ldb + term : term * ldb + column;
      PackColumns(o.b + s.b_at[part.product] + from, ldb, s.transpose_b, p.depth, p.columns,
                  scratch);
      Multiply(p);
    }
  }
}

void RunPart(const MatmulShape& s, const Part& part, const MatmulOperands& o) {
  const int64_t lda = s.transpose_a ? s.m : s.k;
  const int64_t ldb = s.transpose_b ? s.k : s.n;
  const float* a = o.a + s.a_at[part.product] + (s.transpose_a ? part.row : part.row * lda);
  const float* b = o.b + s.b_at[part.product] + (s.transpose_b ? part.column * ldb : part.column);
  const int64_t at = (part.product * s.m + part.row) * s.n + part.column;
  float* to = o.c + at;
  if (o.add != nullptr && o.add != o.c) {
    // The sums begin with what is added.
    for (int64_t r = 0; r < part.rows; ++r) {
      std::copy_n(o.add + at + r * s.n, part.columns, to + r * s.n);
    }
  }
  if (s.k > 0) {
    Gemm(s.transpose_a, s.transpose_b, part.rows, part.columns, s.k, a, lda, b, ldb,
         o.add == nullptr ? 0.0F : 1.0F, to, s.n);
  }
  Epilogue(to, part.rows, part.columns, s.n, nullptr,
           o.bias == nullptr ? nullptr : o.bias + part.column, s.limits);
}

}  // namespace

void Matmul(const MatmulShape& s, const MatmulOperands& o) {
  const auto batch = static_cast<int64_t>(s.a_at.size());
  if (batch == 0 || s.m == 0 || s.n == 0) return;
  RequireBlas(std::max({s.m, s.n, s.k}));
  if (s.k == 0 && o.add == nullptr) std::fill(o.c, o.c + batch * s.m * s.n, 0.0F);
  const bool small = s.k > 0 && IsSmall(s);

  ParallelFor(batch * s.m * s.n * s.k < kSerialWork, [&](int64_t task, int64_t tasks) {
    // Each product is cut along its longer side, into as many parts as give every thread one.
    const int64_t parts = batch >= 4 * tasks || batch % tasks == 0 ? 1 : tasks;
    const bool cut_rows = s.m > s.n;
    const int64_t extent = cut_rows ? s.m : s.n;
    const int64_t step = CeilDiv(CeilDiv(extent, parts), 16) * 16;
    const int64_t items = batch * parts;
    for (int64_t item = task * items / tasks; item < (task + 1) * items / tasks; ++item) {
      const int64_t begin = item % parts * step;
      const int64_t end = std::min(begin + step, extent);
      if (begin >= end) continue;
      Part part{item / parts, 0, s.m, 0, s.n};
      if (cut_rows) {
        part.row = begin;
        part.rows = end - begin;
      } else {
        part.column = begin;
        part.columns = end - begin;
      }
      if (small) {
        RunSmall(s, part, o);
      } else {
        RunPart(s, part, o);
      }
    }
  });
}

}  // namespace memc
