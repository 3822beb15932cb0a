// SPDX-License-Identifier: Apache-2.0
// Convolution with weights in row panels, as panel products with the patch matrix, of which a block
// at a time is made in column panels on the stack.
#include <algorithm>

#include "kernels/cpu_kernels.h"
#include "kernels/panel_product.h"
#include "kernels/parallel.h"
#include "kernels/patch_panels.h"
#include "kernels/patches.h"

namespace memc {

namespace {

constexpr int64_t kFewRows = 4 * kPanelRows;  // Rows for which a copy of the image does not pay.

// What one thread does at a time: rows [row, row + rows) of one group, pixels [begin, end) of one
// image.
struct Part {
  int64_t image, group;
  int64_t row, rows;
  int64_t begin, end;
};

// Terms of a block: few enough for the caches, and whole channels if that goes.
int64_t BlockDepth(const Conv2dShape& s) {
  const int64_t depth = s.Depth();
  if (depth <= kPanelDepth) return depth;
  const int64_t even = CeilDiv(depth, CeilDiv(depth, kPanelDepth));
  const int64_t taps = s.kernel_h * s.kernel_w;
  return taps > kPanelDepth ? even
                            : std::min(CeilDiv(even, taps) * taps, kPanelDepth / taps * taps);
}

void RunPart(const Conv2dShape& s, const Part& part, const ConvOperands& o, float* scratch) {
  const int64_t plane = s.in_h * s.in_w;
  const int64_t depth = s.Depth();
  const int64_t pixels = s.Pixels();
  const int64_t channel = part.group * s.GroupOut() + part.row;
  const int64_t out = (part.image * s.out_channels + channel) * pixels;
  const PatchSource source{o.x + (part.image * s.in_channels + part.group * s.GroupIn()) * plane,
                           o.x, o.x + s.batch * s.in_channels * plane};
  const int64_t block = BlockDepth(s);
  PanelProduct p{};
  p.rows = part.rows;
  p.a = o.w + channel * depth;
  p.a_depth = depth;
  p.c_row = pixels;
  p.row_bias = o.bias == nullptr ? nullptr : o.bias + channel;
  p.low = s.limits.low;
  p.high = s.limits.high;

  int64_t begin = part.begin;
  if (s.IsProduct() && part.rows <= kFewRows) {
    const int64_t whole = (part.end - begin) / kPanelColumns * kPanelColumns;
    p.columns = whole;
    p.depth = depth;
    p.b = source.x + begin;
    p.b_term = plane;
    p.b_panel = kPanelColumns;
    p.c = o.y + out + begin;
    p.add = o.add == nullptr ? nullptr : o.add + out + begin;
    p.first = p.last = true;
    Multiply(p);
    begin += whole;
  }
  const int64_t width = std::max<int64_t>(kStackPanel / block / kPanelColumns, 1) * kPanelColumns;
  for (; begin < part.end; begin += width) {
    const int64_t end = std::min(begin + width, part.end);
    p.columns = end - begin;
    p.c = o.y + out + begin;
    p.add = o.add == nullptr ? nullptr : o.add + out + begin;
    p.b = scratch;
    p.b_near = true;
    p.b_term = kPanelColumns;
    for (int64_t term = 0; term < depth; term += block) {
      p.depth = std::min(block, depth - term);
      p.a_begin = term;
      p.b_panel = p.depth * kPanelColumns;
      p.first = term == 0;
      p.last = term + p.depth == depth;
      PackPatches(s, source, term, p.depth, begin, end, scratch);
      Multiply(p);
    }
  }
}

// How an extent is cut into parts, each of which begins at a multiple of `grain`, near to where it
// would begin if all were of one size.
struct Cuts {
  int64_t extent, grain, parts;

  int64_t Begin(int64_t part) const {
    if (part == parts) return extent;
    return std::min(extent, (2 * part * extent + parts * grain) / (2 * parts * grain) * grain);
  }

  // Whether the parts are of about the same size.
  bool AreEven() const {
    int64_t largest = 0;
    for (int64_t i = 0; i < parts; ++i) largest = std::max(largest, Begin(i + 1) - Begin(i));
    return largest * parts * 20 <= extent * 21;
  }
};

}  // namespace

void PackedConv2d(const Conv2dShape& s, const ConvOperands& o) {
  const int64_t pixels = s.Pixels();
  if (s.batch == 0 || s.out_channels == 0 || pixels == 0) return;
  const bool serial = s.batch * s.out_channels * pixels * s.Depth() < kSerialWork;
  ParallelFor(serial, [&](int64_t task, int64_t tasks) {
    alignas(64) float scratch[kStackPanel];
    // Every thread needs a part. Pixels are cut if that goes evenly: to cut rows makes patches
    // twice.
    const int64_t units = s.batch * s.group;
    const int64_t parts = units % tasks == 0 || units >= 8 * tasks ? 1 : tasks;
    const Cuts of_pixels{pixels, kPanelColumns, parts};
    const bool cut_rows = !of_pixels.AreEven() && s.GroupOut() >= parts * 2 * kPanelRows;
    const Cuts cuts = cut_rows ? Cuts{s.GroupOut(), kPanelRows, parts} : of_pixels;
    const int64_t items = units * parts;
    for (int64_t item = task * items / tasks; item < (task + 1) * items / tasks; ++item) {
      const int64_t unit = item / parts;
      const int64_t begin = cuts.Begin(item % parts);
      const int64_t end = cuts.Begin(item % parts + 1);
      if (begin >= end) continue;
      Part part{unit / s.group, unit % s.group, 0, s.GroupOut(), 0, pixels};
      if (cut_rows) {
        part.row = begin;
        part.rows = end - begin;
      } else {
        part.begin = begin;
        part.end = end;
      }
      RunPart(s, part, o, scratch);
    }
  });
}

}  // namespace memc
