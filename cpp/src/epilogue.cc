// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "memc/cpu_kernels.h"

namespace memc {

namespace {

MEMC_CLONES void AddScalar(float* c, int64_t n, float value) {
  for (int64_t i = 0; i < n; ++i) c[i] += value;
}

MEMC_CLONES void AddVector(float* c, int64_t n, const float* values) {
  for (int64_t i = 0; i < n; ++i) c[i] += values[i];
}

// NaN stays NaN.
MEMC_CLONES void Relu(float* c, int64_t n) {
  for (int64_t i = 0; i < n; ++i) c[i] = c[i] < 0.0F ? 0.0F : c[i];
}

}  // namespace

void Epilogue(float* c, int64_t rows, int64_t columns, int64_t stride, const float* row_bias,
              const float* column_bias, Activation activation) {
  for (int64_t row = 0; row < rows; ++row) {
    float* at = c + row * stride;
    if (row_bias != nullptr) AddScalar(at, columns, row_bias[row]);
    if (column_bias != nullptr) AddVector(at, columns, column_bias);
    if (activation == Activation::kRelu) Relu(at, columns);
  }
}

}  // namespace memc
