// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu_kernels.h"
#include "kernels/panel_product.h"
#include "kernels/parallel.h"
#include "kernels/patches.h"

namespace memc {

namespace {

// Rows [row, row + rows) of the columns [begin, end), multiples of 16.
void RunPart(const MatmulShape& s, int64_t row, int64_t rows, int64_t begin, int64_t end,
             const MatmulOperands& o) {
  PanelProduct p{};
  p.rows = rows;
  p.columns = end - begin;
  p.a_row = s.k;
  p.b_term = kPanelColumns;
  p.b_panel = s.k * kPanelColumns;
  p.c = o.c + row * s.n + begin;
  p.c_row = s.n;
  p.add = o.add == nullptr ? nullptr : o.add + row * s.n + begin;
  p.column_bias = o.bias == nullptr ? nullptr : o.bias + begin;
  p.low = s.limits.low;
  p.high = s.limits.high;
  const int64_t block = CeilDiv(s.k, CeilDiv(s.k, kPanelDepth));
  for (int64_t term = 0; term < s.k; term += block) {
    p.depth = std::min(block, s.k - term);
    p.a = o.a + row * s.k + term;
    p.b = o.b + begin * s.k + term * kPanelColumns;
    p.first = term == 0;
    p.last = term + p.depth == s.k;
    Multiply(p);
  }
}

}  // namespace

void PackedMatmul(const MatmulShape& s, const MatmulOperands& o) {
  if (s.m == 0 || s.n == 0 || s.k == 0) return;
  ParallelFor(s.m * s.n * s.k < kSerialWork, [&](int64_t task, int64_t tasks) {
    // To cut columns has each weight read once.
    const bool cut_rows = s.n / kPanelColumns < tasks;
    const int64_t extent = cut_rows ? s.m : s.n;
    const int64_t grain = cut_rows ? kPanelRows : kPanelColumns;
    const int64_t grains = CeilDiv(extent, grain);
    const int64_t begin = task * grains / tasks * grain;
    const int64_t end = std::min((task + 1) * grains / tasks * grain, extent);
    if (begin >= end) return;
    if (cut_rows) {
      RunPart(s, begin, end - begin, 0, s.n, o);
    } else {
      RunPart(s, 0, s.m, begin, end, o);
    }
  });
}

}  // namespace memc
