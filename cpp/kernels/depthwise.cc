// SPDX-License-Identifier: Apache-2.0
// Convolution with one input channel per group, a band of output rows at a time. The band's input,
// with its padding, is copied into a small buffer, sorted by its position modulo the strides:
//
//   image row   a b c d e f        phase 0   a c e
//   (stride 2)               ->    phase 1   b d f
//
// so that every tap reads consecutive elements, and rows can be run through as one long vector (the
// few sums that straddle two rows are dropped when the result is copied out).
#include <algorithm>

#include "kernels/cpu_kernels.h"
#include "kernels/parallel.h"

namespace memc {

namespace {

constexpr int64_t kLanes = 8;
constexpr int64_t kChunk = 8 * kLanes;              // Sums held in registers.
constexpr int64_t kInElements = int64_t{6} * 1024;  // Both buffers stay in the first-level cache.
constexpr int64_t kOutElements = int64_t{2} * 1024;
constexpr int64_t kMaxTaps = 256;
constexpr int64_t kMaxStride = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));
typedef float Half __attribute__((vector_size(kLanes / 2 * sizeof(float)), aligned(4)));

// Rows are short: what a loop over vectors leaves over is copied with some of the elements before
// it once more.
inline __attribute__((always_inline)) void Copy(float* to, const float* from, int64_t n) {
  if (n >= kLanes) {
    for (int64_t i = 0; i + kLanes <= n; i += kLanes) {
      *reinterpret_cast<Vector*>(to + i) = *reinterpret_cast<const Vector*>(from + i);
    }
    *reinterpret_cast<Vector*>(to + n - kLanes) =
        *reinterpret_cast<const Vector*>(from + n - kLanes);
  } else if (n >= kLanes / 2) {
    const Half first = *reinterpret_cast<const Half*>(from);
    const Half last = *reinterpret_cast<const Half*>(from + n - kLanes / 2);
    *reinterpret_cast<Half*>(to) = first;
    *reinterpret_cast<Half*>(to + n - kLanes / 2) = last;
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
  }
}

inline __attribute__((always_inline)) void Finish(Vector* out, const Vector& sum, const Vector& low,
                                                  const Vector& high) {
  const Vector raised = low > sum ? low : sum;
  *out = high < raised ? high : raised;
}

// to[i] = bias + sum over t of weights[t] * from[at[t] + i], within the limits, for i up to n
// rounded up to kChunk.
MEMC_CLONES void SumTaps(float* to, int64_t n, const float* from, const int64_t* at,
                         const float* weights, int64_t taps, float bias, const Limits& limits) {
  const Vector low = Vector{} + limits.low;
  const Vector high = Vector{} + limits.high;
  for (int64_t i = 0; i < n; i += kChunk) {
    Vector s0 = Vector{} + bias;
    Vector s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    for (int64_t t = 0; t < taps; ++t) {
      const Vector* in = reinterpret_cast<const Vector*>(from + at[t] + i);
      const float w = weights[t];
      s0 += w * in[0];
      s1 += w * in[1];
      s2 += w * in[2];
      s3 += w * in[3];
      s4 += w * in[4];
      s5 += w * in[5];
      s6 += w * in[6];
      s7 += w * in[7];
    }
    Vector* out = reinterpret_cast<Vector*>(to + i);
    Finish(out + 0, s0, low, high);
    Finish(out + 1, s1, low, high);
    Finish(out + 2, s2, low, high);
    Finish(out + 3, s3, low, high);
    Finish(out + 4, s4, low, high);
    Finish(out + 5, s5, low, high);
    Finish(out + 6, s6, low, high);
    Finish(out + 7, s7, low, high);
  }
}

// Columns of a phase whose pixel c stride + shift lies inside the image.
struct Columns {
  int64_t low, high;
};

// How the bands of one plane are laid out in the buffers.
struct Band {
  int64_t rows;           // Output rows of a band; 0 if not even one fits.
  int64_t height, width;  // Elements of one phase.
  int64_t at[kMaxTaps];   // Where each tap's first element lies.
  Columns columns[kMaxStride];
};

// A thread's copies of a band.
struct Buffers {
  float in[kInElements];
  float out[kOutElements];
  bool padded;  // Whether `in` holds zeros where the padding lies.
};

Columns Inside(const Conv2dShape& s, int64_t width, int64_t shift) {
  const int64_t low = std::min(width, shift >= 0 ? 0 : CeilDiv(-shift, s.stride_w));
  if (shift >= s.in_w) return {low, low};
  return {low, std::max(low, std::min(width, CeilDiv(s.in_w - shift, s.stride_w)))};
}

Band ChooseBand(const Conv2dShape& s) {
  Band band{};
  const int64_t phases = s.stride_h * s.stride_w;
  const int64_t reach = (s.kernel_h - 1) * s.dilation_h / s.stride_h;
  band.width = s.out_w + (s.kernel_w - 1) * s.dilation_w / s.stride_w;
  const int64_t in_rows = (kInElements - kChunk) / (phases * band.width) - reach;
  const int64_t out_rows = (kOutElements - kChunk) / band.width;
  band.rows = std::max<int64_t>(0, std::min({in_rows, out_rows, s.out_h}));
  if (s.kernel_h * s.kernel_w > kMaxTaps || s.stride_w > kMaxStride) band.rows = 0;
  if (band.rows == 0) return band;
  band.height = band.rows + reach;
  for (int64_t p = 0; p < s.stride_w; ++p) band.columns[p] = Inside(s, band.width, p - s.pad_left);
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
      const int64_t dh = kh * s.dilation_h;
      const int64_t dw = kw * s.dilation_w;
      const int64_t phase = dh % s.stride_h * s.stride_w + dw % s.stride_w;
      band.at[kh * s.kernel_w + kw] =
          (phase * band.height + dh / s.stride_h) * band.width + dw / s.stride_w;
    }
  }
  return band;
}

// Copies what output rows from `row` on need of the input plane `x`; not the zeros around it if
// they are there already.
MEMC_CLONES void Gather(const Conv2dShape& s, const Band& band, const float* x, int64_t row,
                        bool padded, float* to) {
  const int64_t phase_step = band.height * band.width;  // From one phase of columns to the next.
  for (int64_t phase_h = 0; phase_h < s.stride_h; ++phase_h) {
    for (int64_t r = 0; r < band.height; ++r) {
      float* first = to + phase_h * s.stride_w * phase_step + r * band.width;
      const int64_t y = (row + r) * s.stride_h + phase_h - s.pad_top;
      if (y < 0 || y >= s.in_h) {
        for (int64_t p = 0; p < s.stride_w && !padded; ++p) {
          std::fill_n(first + p * phase_step, band.width, 0.0F);
        }
        continue;
      }
      const float* from = x + y * s.in_w - s.pad_left;
      // With stride 2, the part that both phases have, in vectors: [low, split).
      int64_t split = 0;
      if (s.stride_w == 2) {
        const int64_t low = std::max(band.columns[0].low, band.columns[1].low);
        const int64_t high = std::min(band.columns[0].high, band.columns[1].high);
        for (split = low; split + kLanes <= high; split += kLanes) {
          const Vector* wide = reinterpret_cast<const Vector*>(from + 2 * split);
          *reinterpret_cast<Vector*>(first + split) =
              __builtin_shufflevector(wide[0], wide[1], 0, 2, 4, 6, 8, 10, 12, 14);
          *reinterpret_cast<Vector*>(first + phase_step + split) =
              __builtin_shufflevector(wide[0], wide[1], 1, 3, 5, 7, 9, 11, 13, 15);
        }
        for (; split + kLanes / 2 <= high; split += kLanes / 2) {
          const Half* half = reinterpret_cast<const Half*>(from + 2 * split);
          *reinterpret_cast<Half*>(first + split) =
              __builtin_shufflevector(half[0], half[1], 0, 2, 4, 6);
          *reinterpret_cast<Half*>(first + phase_step + split) =
              __builtin_shufflevector(half[0], half[1], 1, 3, 5, 7);
        }
        if (split == low) split = 0;
      }
      for (int64_t p = 0; p < s.stride_w; ++p) {
        float* out = first + p * phase_step;
        const auto [low, high] = band.columns[p];
        if (!padded) {
          std::fill(out, out + low, 0.0F);
          std::fill(out + high, out + band.width, 0.0F);
        }
        if (s.stride_w == 1) {
          Copy(out + low, from + low, high - low);
        } else {
          const int64_t common =
              split == 0 ? low : std::max(band.columns[0].low, band.columns[1].low);
          for (int64_t c = low; c < common; ++c) out[c] = from[c * s.stride_w + p];
          for (int64_t c = std::max(low, split); c < high; ++c) out[c] = from[c * s.stride_w + p];
        }
      }
    }
  }
}

// Output rows from the band's to the image's.
MEMC_CLONES void Scatter(const float* from, int64_t width, int64_t rows, float* y, int64_t out_w) {
  for (int64_t r = 0; r < rows; ++r) Copy(y + r * out_w, from + r * width, out_w);
}

void RunInBands(const Conv2dShape& s, const Band& band, const float* x, const float* w, float bias,
                float* y, Buffers* buffers) {
  float* in = buffers->in;
  float* out = buffers->out;
  for (int64_t row = 0; row < s.out_h; row += band.rows) {
    const int64_t rows = std::min(band.rows, s.out_h - row);
    Gather(s, band, x, row, buffers->padded, in);
    buffers->padded = band.rows == s.out_h;  // The next plane's zeros are where this one's are.
    SumTaps(out, (rows - 1) * band.width + s.out_w, in, band.at, w, s.kernel_h * s.kernel_w, bias,
            s.limits);
    Scatter(out, band.width, rows, y + row * s.out_w, s.out_w);
  }
}

// The sums of some taps, of columns [begin, end) of an output row, added to `to`.
void AddTaps(const Conv2dShape& s, const float* x, const float* w, int64_t row, int64_t first,
             int64_t last, int64_t begin, int64_t end, float* to) {
  for (int64_t tap = first; tap < last; ++tap) {
    const int64_t in_row = row * s.stride_h + tap / s.kernel_w * s.dilation_h - s.pad_top;
    if (in_row < 0 || in_row >= s.in_h) continue;
    const int64_t shift = tap % s.kernel_w * s.dilation_w - s.pad_left;
    const int64_t low = std::max(begin, shift >= 0 ? 0 : CeilDiv(-shift, s.stride_w));
    const int64_t high = shift >= s.in_w ? 0 : std::min(end, CeilDiv(s.in_w - shift, s.stride_w));
    const float* in = x + in_row * s.in_w + shift;
    for (int64_t c = low; c < high; ++c) to[c - begin] += w[tap] * in[c * s.stride_w];
  }
}

// For rows too long for the buffers, and many taps: those are added up in blocks, so that the error
// does not grow with their number.
void RunByTaps(const Conv2dShape& s, const float* x, const float* w, float bias, float* y) {
  const int64_t taps = s.kernel_h * s.kernel_w;
  float part[kOutElements / 2];
  const int64_t step = std::min(s.out_w, kOutElements / 2);
  for (int64_t row = 0; row < s.out_h; ++row) {
    for (int64_t begin = 0; begin < s.out_w; begin += step) {
      const int64_t end = std::min(begin + step, s.out_w);
      float* out = y + row * s.out_w + begin;
      std::fill_n(out, end - begin, bias);
      for (int64_t first = 0; first < taps; first += kMaxTaps) {
        std::fill_n(part, end - begin, 0.0F);
        AddTaps(s, x, w, row, first, std::min(first + kMaxTaps, taps), begin, end, part);
        for (int64_t c = 0; c < end - begin; ++c) out[c] += part[c];
      }
    }
  }
}

}  // namespace

void DepthwiseConv2d(const Conv2dShape& s, const ConvOperands& o) {
  const int64_t planes = s.batch * s.out_channels;
  const int64_t pixels = s.Pixels();
  const int64_t taps = s.kernel_h * s.kernel_w;
  if (planes == 0 || pixels == 0) return;
  const Band band = ChooseBand(s);
  ParallelFor(planes * pixels * taps < kSerialWork, [&](int64_t task, int64_t tasks) {
    // Zeros beyond a band's elements are what its last vectors read.
    Buffers buffers{};
    for (int64_t plane = task * planes / tasks; plane < (task + 1) * planes / tasks; ++plane) {
      const int64_t image = plane / s.out_channels;
      const int64_t channel = plane % s.out_channels;
      const float* in = o.x + (image * s.in_channels + channel / s.GroupOut()) * s.in_h * s.in_w;
      const float* weights = o.w + channel * taps;
      const float start = o.bias == nullptr ? 0.0F : o.bias[channel];
      float* out = o.y + plane * pixels;
      if (band.rows > 0) {
        RunInBands(s, band, in, weights, start, out, &buffers);
      } else {
        RunByTaps(s, in, weights, start, out);
        Epilogue(out, 1, pixels, pixels, nullptr, nullptr, s.limits);
      }
    }
  });
}

}  // namespace memc
