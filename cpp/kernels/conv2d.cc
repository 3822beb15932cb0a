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

#include "kernels/blas.h"
#include "kernels/cpu_kernels.h"
#include "kernels/parallel.h"
#include "kernels/patches.h"

namespace memc {

namespace {

constexpr int64_t kLeastShare = int64_t{3} * 1024;  // Elements for which another thread is woken.

// What one thread does at a time: rows [row, row + rows) of the weights of one group, pixels
// [begin, end) of one image.
struct Tile {
  int64_t image, group;
  int64_t row, rows;
  int64_t begin, end;
};

void RunTile(const Conv2dShape& s, const Tile& t, Panel panel, const ConvOperands& o,
             float* scratch) {
  const int64_t plane = s.in_h * s.in_w;
  const int64_t depth = s.Depth();
  const int64_t pixels = s.Pixels();
  const int64_t out_channel = t.group * s.GroupOut() + t.row;
  const float* image = o.x + (t.image * s.in_channels + t.group * s.GroupIn()) * plane;
  const float* weights = o.w + out_channel * depth;
  const int64_t at = (t.image * s.out_channels + out_channel) * pixels;
  float* out = o.y + at;
  // The sums begin with what is added.
  const float* add = o.add == nullptr || o.add == o.y ? nullptr : o.add + at;
  for (int64_t row = 0; add != nullptr && row < t.rows; ++row) {
    std::copy(add + row * pixels + t.begin, add + row * pixels + t.end,
              out + row * pixels + t.begin);
  }
  const float beta = o.add == nullptr ? 0.0F : 1.0F;
  const float* row_bias = o.bias == nullptr ? nullptr : o.bias + out_channel;

  if (s.IsProduct()) {
    Gemm(false, false, t.rows, t.end - t.begin, depth, weights, depth, image + t.begin, plane, beta,
         out + t.begin, pixels);
    Epilogue(out + t.begin, t.rows, t.end - t.begin, pixels, row_bias, nullptr, s.limits);
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
           k == 0 ? beta : 1.0F, out + begin, pixels);
    }
    Epilogue(out + begin, t.rows, end - begin, pixels, row_bias, nullptr, s.limits);
  }
}

}  // namespace

void Conv2d(const Conv2dShape& s, const ConvOperands& o, float* workspace,
            int64_t workspace_bytes) {
  const int64_t pixels = s.Pixels();
  if (s.batch == 0 || s.out_channels == 0 || pixels == 0) return;
  RequireBlas(std::max({s.Depth(), pixels, s.in_h * s.in_w, s.GroupOut()}));
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
      RunTile(s, tile, panel, o, scratch);
    }
  });
}

}  // namespace memc
