// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/cpu_kernels.h"

namespace memc {

namespace {

MEMC_CLONES void AddScalar(float* c, int64_t n, float value) {
  for (int64_t i = 0; i < n; ++i) c[i] += value;
}

MEMC_CLONES void AddVector(float* c, int64_t n, const float* values) {
  for (int64_t i = 0; i < n; ++i) c[i] += values[i];
}

MEMC_CLONES void Clamp(float* c, int64_t n, float low, float high) {
  for (int64_t i = 0; i < n; ++i) {
    const float raised = low > c[i] ? low : c[i];
    c[i] = high < raised ? high : raised;
  }
}

}  // namespace

void Epilogue(float* c, int64_t rows, int64_t columns, int64_t stride, const float* row_bias,
              const float* column_bias, const Limits& limits) {
  const bool clamp = std::isfinite(limits.low) || std::isfinite(limits.high);
  for (int64_t row = 0; row < rows; ++row) {
    float* at = c + row * stride;
    if (row_bias != nullptr) AddScalar(at, columns, row_bias[row]);
    if (column_bias != nullptr) AddVector(at, columns, column_bias);
    if (clamp) Clamp(at, columns, limits.low, limits.high);
  }
}

}  // namespace memc
