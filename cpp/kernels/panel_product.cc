// SPDX-License-Identifier: Apache-2.0
#include "kernels/panel_product.h"

#include <algorithm>
#include <limits>

namespace memc {

namespace {

namespace portable {
constexpr int64_t kLanes = 4;
constexpr int64_t kPanelsAtOnce = 1;
#include "panel_kernels.inc"
}  // namespace portable

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MEMC_X86_PANELS

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
constexpr int64_t kLanes = 8;
constexpr int64_t kPanelsAtOnce = 1;
#include "panel_kernels.inc"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,prefer-vector-width=512")
namespace avx512 {
constexpr int64_t kLanes = 16;
constexpr int64_t kPanelsAtOnce = 2;
#include "panel_kernels.inc"
}  // namespace avx512
#pragma GCC pop_options
#endif

using Kernel = void (*)(const PanelProduct&);

Kernel Choose() {
#ifdef MEMC_X86_PANELS
  if (__builtin_cpu_supports("avx512f")) return avx512::MultiplyPanels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::MultiplyPanels;
#endif
  return portable::MultiplyPanels;
}

}  // namespace

void Multiply(const PanelProduct& product) {
  static const Kernel kernel = Choose();
  if (product.rows > 0 && product.columns > 0) kernel(product);
}

void PackColumns(const float* b, int64_t row, bool transposed, int64_t depth, int64_t columns,
                 float* to) {
  for (int64_t column = 0; column < columns; column += kPanelColumns) {
    const int64_t width = std::min(kPanelColumns, columns - column);
    const float* from = b + (transposed ? column * row : column);
    for (int64_t k = 0; k < depth; ++k, to += kPanelColumns) {
      if (transposed) {
        for (int64_t n = 0; n < width; ++n) to[n] = from[n * row + k];
      } else {
        std::copy_n(from + k * row, width, to);
      }
      std::fill(to + width, to + kPanelColumns, 0.0F);
    }
  }
}

}  // namespace memc
