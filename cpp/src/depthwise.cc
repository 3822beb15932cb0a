// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "memc/cpu_kernels.h"
#include "memc/parallel.h"

namespace memc {

namespace {

MEMC_CLONES void MultiplyAdd(float* y, const float* x, float weight, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += weight * x[i];
}

MEMC_CLONES void MultiplyAddStride2(float* y, const float* x, float weight, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += weight * x[2 * i];
}

MEMC_CLONES void MultiplyAddStrided(float* y, const float* x, float weight, int64_t n,
                                    int64_t stride) {
  for (int64_t i = 0; i < n; ++i) y[i] += weight * x[i * stride];
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One output plane from one input plane and its taps.
void RunPlane(const Conv2dShape& s, const float* x, const float* w, float bias, float* y) {
  for (int64_t row = 0; row < s.out_h; ++row) {
    float* out = y + row * s.out_w;
    std::fill(out, out + s.out_w, bias);
    for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
      const int64_t in_row = row * s.stride_h + kh * s.dilation_h - s.pad_top;
      if (in_row < 0 || in_row >= s.in_h) continue;
      for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
        // Output columns whose tap lies inside the image.
        const int64_t shift = kw * s.dilation_w - s.pad_left;
        const int64_t low = shift >= 0 ? 0 : CeilDiv(-shift, s.stride_w);
        const int64_t high =
            shift >= s.in_w ? 0 : std::min(s.out_w, CeilDiv(s.in_w - shift, s.stride_w));
        if (low >= high) continue;
        const float weight = w[kh * s.kernel_w + kw];
        const float* in = x + in_row * s.in_w + low * s.stride_w + shift;
        if (s.stride_w == 1) {
          MultiplyAdd(out + low, in, weight, high - low);
        } else if (s.stride_w == 2) {
          MultiplyAddStride2(out + low, in, weight, high - low);
        } else {
          MultiplyAddStrided(out + low, in, weight, high - low, s.stride_w);
        }
      }
    }
  }
}

}  // namespace

void DepthwiseConv2d(const Conv2dShape& s, const float* x, const float* w, const float* bias,
                     float* y) {
  const int64_t planes = s.batch * s.out_channels;
  const int64_t pixels = s.Pixels();
  const int64_t taps = s.kernel_h * s.kernel_w;
  if (planes == 0 || pixels == 0) return;
  ParallelFor(planes * pixels * taps < kSerialWork, [&](int64_t task, int64_t tasks) {
    for (int64_t plane = task * planes / tasks; plane < (task + 1) * planes / tasks; ++plane) {
      const int64_t image = plane / s.out_channels;
      const int64_t channel = plane % s.out_channels;
      const int64_t in_channel = image * s.in_channels + channel / s.GroupOut();
      RunPlane(s, x + in_channel * s.in_h * s.in_w, w + channel * taps,
               bias == nullptr ? 0.0F : bias[channel], y + plane * pixels);
      Epilogue(y + plane * pixels, 1, pixels, pixels, nullptr, nullptr, s.activation);
    }
  });
}

}  // namespace memc
