// SPDX-License-Identifier: Apache-2.0
// Convolution as matrix products. For one image and group, the weights [M, K] multiply the matrix
// of patches [K, P], of which only a panel is made at a time:
//
//            P pixels (columns)
//          +---+-------+-----+
//   K      |   | panel |     |   a panel is `depth` rows (channel and tap) by `width` pixels
//   terms  |   +-------+     |
//          +-----------------+
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "memc/blas.h"
#include "memc/cpu_kernels.h"
#include "memc/parallel.h"

namespace memc {

namespace {

constexpr int64_t kStackPanel = int64_t{16} * 1024;  // Elements: 64 KiB of a thread's own stack.
constexpr int64_t kLeastShare = int64_t{3} * 1024;   // Elements for which another thread is woken.
constexpr int64_t kWidth = 384;  // Pixels for which a product runs near full speed.

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

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

// The output positions x in [0, extent) whose tap lies inside the image: 0 <= x stride + shift <
// in.
std::pair<int64_t, int64_t> Inside(int64_t extent, int64_t in, int64_t stride, int64_t shift) {
  const int64_t low = shift >= 0 ? 0 : std::min(extent, CeilDiv(-shift, stride));
  const int64_t high = in - shift <= 0 ? 0 : std::min(extent, CeilDiv(in - shift, stride));
  return {low, std::max(low, high)};
}

// One row of the patch matrix, pixels [begin, end), of the channel plane `x` and the tap (kh, kw).
void PatchRow(const Conv2dShape& s, const float* x, int64_t kh, int64_t kw, int64_t begin,
              int64_t end, float* to) {
  const int64_t shift = kw * s.dilation_w - s.pad_left;
  const auto [low, high] = Inside(s.out_w, s.in_w, s.stride_w, shift);
  int64_t row = begin / s.out_w;
  int64_t column = begin % s.out_w;
  for (int64_t at = begin; at < end; ++row, column = 0) {
    const int64_t stop = std::min(s.out_w, column + end - at);
    const int64_t y = row * s.stride_h + kh * s.dilation_h - s.pad_top;
    const int64_t first = std::clamp(low, column, stop);
    const int64_t last = std::clamp(high, first, stop);
    if (y < 0 || y >= s.in_h) {
      std::fill(to, to + (stop - column), 0.0F);
    } else {
      std::fill(to, to + (first - column), 0.0F);
      CopyStrided(to + (first - column), x + y * s.in_w + first * s.stride_w + shift, last - first,
                  s.stride_w);
      std::fill(to + (last - column), to + (stop - column), 0.0F);
    }
    to += stop - column;
    at += stop - column;
  }
}

struct Panel {
  int64_t depth;  // Rows.
  int64_t width;  // Pixels.
};

// The panel to use with room for `elements` floats: full depth and a good width if both fit.
Panel ChoosePanel(const Conv2dShape& s, int64_t elements) {
  const int64_t pixels = s.Pixels();
  const int64_t width = std::min({pixels, kWidth, std::max<int64_t>(elements / 16, 1)});
  const int64_t depth = std::min(s.Depth(), std::max<int64_t>(elements / width, 1));
  // Room left over by a shallow matrix goes to width.
  return {depth, std::min(pixels, std::max(width, elements / depth))};
}

// What one thread does at a time: rows [row, row + rows) of the weights of one group, pixels
// [begin, end) of one image.
struct Tile {
  int64_t image, group;
  int64_t row, rows;
  int64_t begin, end;
};

void RunTile(const Conv2dShape& s, const Tile& t, Panel panel, const float* x, const float* w,
             const float* bias, float* y, float* scratch) {
  const int64_t plane = s.in_h * s.in_w;
  const int64_t depth = s.Depth();
  const int64_t pixels = s.Pixels();
  const int64_t out_channel = t.group * s.GroupOut() + t.row;
  const float* image = x + (t.image * s.in_channels + t.group * s.GroupIn()) * plane;
  const float* weights = w + out_channel * depth;
  float* out = y + (t.image * s.out_channels + out_channel) * pixels;
  const float* row_bias = bias == nullptr ? nullptr : bias + out_channel;

  if (s.IsProduct()) {
    Gemm(false, false, t.rows, t.end - t.begin, depth, weights, depth, image + t.begin, plane, 0.0F,
         out + t.begin, pixels);
    Epilogue(out + t.begin, t.rows, t.end - t.begin, pixels, row_bias, nullptr, s.activation);
    return;
  }
  const int64_t taps = s.kernel_h * s.kernel_w;
  for (int64_t begin = t.begin; begin < t.end; begin += panel.width) {
    const int64_t end = std::min(begin + panel.width, t.end);
    for (int64_t k = 0; k < depth; k += panel.depth) {
      const int64_t rows = std::min(panel.depth, depth - k);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t tap = (k + r) % taps;
        PatchRow(s, image + (k + r) / taps * plane, tap / s.kernel_w, tap % s.kernel_w, begin, end,
                 scratch + r * (end - begin));
      }
      Gemm(false, false, t.rows, end - begin, rows, weights + k, depth, scratch, end - begin,
           k == 0 ? 0.0F : 1.0F, out + begin, pixels);
    }
    Epilogue(out + begin, t.rows, end - begin, pixels, row_bias, nullptr, s.activation);
  }
}

}  // namespace

void Conv2d(const Conv2dShape& s, const float* x, const float* w, const float* bias, float* y,
            float* workspace, int64_t workspace_bytes) {
  const int64_t pixels = s.Pixels();
  if (s.batch == 0 || s.out_channels == 0 || pixels == 0) return;
  RequireBlas(std::max({s.Depth(), pixels, s.in_h * s.in_w, s.GroupOut()}));
  if (s.Depth() == 0) std::fill(y, y + s.batch * s.out_channels * pixels, 0.0F);
  const int64_t elements = workspace_bytes / static_cast<int64_t>(sizeof(float));
  // A workspace with less room than the stack has is of no use.
  const bool on_stack = elements < kStackPanel;
  const bool serial = s.batch * s.out_channels * pixels * s.Depth() < kSerialWork;

  ParallelFor(serial, [&](int64_t task, int64_t tasks) {
    alignas(64) float stack_panel[kStackPanel];
    // Threads that the workspace cannot serve with a panel worth having stay idle.
    const int64_t worth = std::clamp<int64_t>(s.Depth() * pixels / tasks, 1, kLeastShare);
    const int64_t workers =
        s.IsProduct() || on_stack ? tasks : std::clamp<int64_t>(elements / worth, 1, tasks);
    if (task >= workers) return;
    const int64_t share = on_stack ? kStackPanel : elements / workers;
    float* scratch = on_stack ? stack_panel : workspace + task * share;
    const Panel panel = s.IsProduct() ? Panel{s.Depth(), pixels} : ChoosePanel(s, share);
    // Every thread needs a part. Few pixels are left whole: cutting the weights' rows instead packs
    // each weight once.
    const int64_t units = s.batch * s.group;
    const int64_t parts = units % workers == 0 || units >= 8 * workers ? 1 : workers;
    const bool cut_rows = pixels <= s.GroupOut() && s.GroupOut() >= 16 * parts;
    const int64_t extent = cut_rows ? s.GroupOut() : pixels;
    const int64_t step = CeilDiv(CeilDiv(extent, parts), 16) * 16;
    const int64_t items = units * parts;
    for (int64_t item = task * items / workers; item < (task + 1) * items / workers; ++item) {
      const int64_t unit = item / parts;
      const int64_t begin = item % parts * step;
      const int64_t end = std::min(begin + step, extent);
      if (begin >= end) continue;
      Tile tile{unit / s.group, unit % s.group, 0, s.GroupOut(), 0, pixels};
      if (cut_rows) {
        tile.row = begin;
        tile.rows = end - begin;
      } else {
        tile.begin = begin;
        tile.end = end;
      }
      RunTile(s, tile, panel, x, w, bias, y, scratch);
    }
  });
}

}  // namespace memc
