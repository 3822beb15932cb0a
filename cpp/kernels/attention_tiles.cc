// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_tiles.h"

#include <cmath>
#include <limits>

#include "kernels/panel_product.h"
#include "kernels/patches.h"

namespace memc {

namespace {

namespace portable {
constexpr int64_t kLanes = 4;
#include "attention_rows.inc"
}  // namespace portable

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MEMC_X86_ROWS

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
constexpr int64_t kLanes = 8;
#include "attention_rows.inc"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,prefer-vector-width=512")
namespace avx512 {
constexpr int64_t kLanes = 16;
#include "attention_rows.inc"
}  // namespace avx512
#pragma GCC pop_options
#endif

struct Kernels {
  float (*exponentiate)(SoftmaxRow&);
  void (*gradients)(float, const float*, const float*, float*, float*);
};

Kernels Choose() {
#ifdef MEMC_X86_ROWS
  if (__builtin_cpu_supports("avx512f")) return {avx512::Exponentiate, avx512::WeightsAndGradients};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {avx2::Exponentiate, avx2::WeightsAndGradients};
  }
#endif
  return {portable::Exponentiate, portable::WeightsAndGradients};
}

const Kernels& Chosen() {
  static const Kernels kernels = Choose();
  return kernels;
}

}  // namespace

void MultiplyTile(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_row,
                  const float* panels, bool more, float* c, int64_t c_row) {
  PanelProduct p{};
  p.rows = rows;
  p.columns = columns;
  p.depth = depth;
  p.a = a;
  p.a_row = a_row;
  p.b = panels;
  p.b_term = kPanelColumns;
  p.b_panel = depth * kPanelColumns;
  p.c = c;
  p.c_row = c_row;
  p.first = true;
  p.last = true;
  p.add = more ? c : nullptr;
  p.low = -std::numeric_limits<float>::infinity();
  p.high = std::numeric_limits<float>::infinity();
  Multiply(p);
}

float Exponentiate(SoftmaxRow& row) { return Chosen().exponentiate(row); }

void WeightsAndGradients(float scale, const float* log_sum, const float* share, float* scores,
                         float* products) {
  Chosen().gradients(scale, log_sum, share, scores, products);
}

}  // namespace memc
