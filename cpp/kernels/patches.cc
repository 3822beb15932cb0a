// SPDX-License-Identifier: Apache-2.0
#include "kernels/patches.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace memc {

namespace {

constexpr int64_t kWidth = 384;   // Pixels for which a product runs near full speed.
constexpr int64_t kLanes = 16;    // Partial sums of a dot product.
constexpr int64_t kTerms = 4096;  // Of a dot product in single precision.

MEMC_CLONES void CopyStride2(float* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[2 * i];
}

void CopyStrided(float* to, const float* from, int64_t n, int64_t stride) {
  if (stride == 1) {
    std::memcpy(to, from, n * sizeof(float));
  } else if (stride == 2) {
    CopyStride2(to, from, n);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

MEMC_CLONES void AddDense(float* to, const float* from, float scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += scale * from[i];
}

void AddStrided(float* to, const float* from, float scale, int64_t n, int64_t stride) {
  if (stride == 1) {
    AddDense(to, from, scale, n);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * stride] += scale * from[i];
  }
}

MEMC_CLONES double DotPart(const float* a, const float* b, int64_t n) {
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float rest = 0.0F;
  for (; i < n; ++i) rest += a[i] * b[i];
  double total = rest;
  for (const float sum : sums) total += sum;
  return total;
}

double DotDense(const float* a, const float* b, int64_t n) {
  double total = 0.0;
  for (int64_t i = 0; i < n; i += kTerms) total += DotPart(a + i, b + i, std::min(kTerms, n - i));
  return total;
}

double DotStrided(const float* a, const float* b, int64_t n, int64_t stride) {
  if (stride == 1) return DotDense(a, b, n);
  double total = 0.0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(a[i * stride]) * b[i];
  return total;
}

// The output positions x in [0, extent) whose tap lies inside the image: 0 <= x stride + shift <
// in.
std::pair<int64_t, int64_t> Inside(int64_t extent, int64_t in, int64_t stride, int64_t shift) {
  const int64_t low = shift >= 0 ? 0 : std::min(extent, CeilDiv(-shift, stride));
  const int64_t high = in - shift <= 0 ? 0 : std::min(extent, CeilDiv(in - shift, stride));
  return {low, std::max(low, high)};
}

// Pixels [begin, end) of a row of the patch matrix, cut where the output's rows end. Calls
// visit(at, before, inside, after, source) for each run: `at` counts from `begin`; of its pixels
// the first `before` and the last `after` lie in the padding, and the tap of the first one inside
// is element `source` of the channel plane.
template <typename Visit>
void ForRuns(const Conv2dShape& s, int64_t kh, int64_t kw, int64_t begin, int64_t end,
             Visit&& visit) {
  const int64_t shift = kw * s.dilation_w - s.pad_left;
  const auto [low, high] = Inside(s.out_w, s.in_w, s.stride_w, shift);
  int64_t row = begin / s.out_w;
  int64_t column = begin % s.out_w;
  for (int64_t at = begin; at < end; ++row, column = 0) {
    const int64_t stop = std::min(s.out_w, column + end - at);
    const int64_t y = row * s.stride_h + kh * s.dilation_h - s.pad_top;
    const bool outside = y < 0 || y >= s.in_h;
    const int64_t first = outside ? stop : std::clamp(low, column, stop);
    const int64_t last = outside ? stop : std::clamp(high, first, stop);
    visit(at - begin, first - column, last - first, stop - last,
          y * s.in_w + first * s.stride_w + shift);
    at += stop - column;
  }
}

}  // namespace

Panel ChoosePanel(const Conv2dShape& s, int64_t elements) {
  const int64_t pixels = s.Pixels();
  const int64_t width = std::min({pixels, kWidth, std::max<int64_t>(elements / 16, 1)});
  const int64_t depth = std::min(s.Depth(), std::max<int64_t>(elements / width, 1));
  // Room left over by a shallow matrix goes to width.
  return {depth, std::min(pixels, std::max(width, elements / depth))};
}

void PatchRow(const Conv2dShape& s, const float* x, int64_t kh, int64_t kw, int64_t begin,
              int64_t end, float* to) {
  ForRuns(s, kh, kw, begin, end,
          [&](int64_t at, int64_t before, int64_t inside, int64_t after, int64_t source) {
            std::fill_n(to + at, before, 0.0F);
            if (inside > 0) CopyStrided(to + at + before, x + source, inside, s.stride_w);
            std::fill_n(to + at + before + inside, after, 0.0F);
          });
}

void AddPatchRow(const Conv2dShape& s, const float* from, float scale, int64_t kh, int64_t kw,
                 int64_t begin, int64_t end, float* x) {
  ForRuns(s, kh, kw, begin, end,
          [&](int64_t at, int64_t before, int64_t inside, int64_t /*after*/, int64_t source) {
            if (inside > 0) AddStrided(x + source, from + at + before, scale, inside, s.stride_w);
          });
}

double DotPatchRow(const Conv2dShape& s, const float* x, int64_t kh, int64_t kw, const float* g) {
  double total = 0.0;
  ForRuns(s, kh, kw, 0, s.Pixels(),
          [&](int64_t at, int64_t before, int64_t inside, int64_t /*after*/, int64_t source) {
            if (inside > 0) total += DotStrided(x + source, g + at + before, inside, s.stride_w);
          });
  return total;
}

}  // namespace memc
