// SPDX-License-Identifier: Apache-2.0
// The gradients of a convolution as products with its patch matrix [K, P] (see conv2d.cc), a panel
// at a time. For one image and group, with the gradient G [M, P] of the result:
//   weights  dW [M, K] = sum over images of G patches(x)^T
//   data     patches [K, P] = W^T G, whose rows are added to where they came from
// Every thread has elements of the result to itself, and adds up in an order of its own.
#include <algorithm>

#include "kernels/blas.h"
#include "kernels/cpu_kernels.h"
#include "kernels/parallel.h"
#include "kernels/patches.h"

namespace memc {

namespace {

constexpr int64_t kDots = 64;  // Weights whose gradients are added up over the images at a time.

// A thread's panel: its part of the workspace, or its stack if that has more room.
float* Scratch(float* workspace, int64_t workspace_bytes, int64_t task, int64_t tasks, float* stack,
               int64_t* elements) {
  const int64_t share = workspace_bytes / static_cast<int64_t>(sizeof(float)) / tasks;
  if (share <= kStackPanel) {
    *elements = kStackPanel;
    return stack;
  }
  *elements = share;
  return workspace + task * share;
}

// Into how many parts to cut each of `units` pieces of work for `tasks` threads.
int64_t Parts(int64_t units, int64_t tasks) {
  return units % tasks == 0 || units >= 8 * tasks ? 1 : tasks;
}

// Columns [first, last) of the weights of one group.
void WeightColumns(const Conv2dShape& s, int64_t group, int64_t first, int64_t last, const float* x,
                   const float* g, float* w, float* scratch, Panel panel) {
  const int64_t plane = s.in_h * s.in_w;
  const int64_t depth = s.Depth();
  const int64_t pixels = s.Pixels();
  const int64_t taps = s.kernel_h * s.kernel_w;
  const int64_t rows = s.GroupOut();
  float* out = w + group * rows * depth;
  const auto image_at = [&](int64_t image) {
    return x + (image * s.in_channels + group * s.GroupIn()) * plane;
  };
  const auto gradient_at = [&](int64_t image) {
    return g + (image * s.out_channels + group * rows) * pixels;
  };
  if (rows == 1) {
    for (int64_t k = first; k < last; k += kDots) {
      const int64_t columns = std::min(kDots, last - k);
      double sums[kDots] = {};
      for (int64_t image = 0; image < s.batch; ++image) {
        for (int64_t c = k; c < k + columns; ++c) {
          const int64_t tap = c % taps;
          sums[c - k] += DotPatchRow(s, image_at(image) + c / taps * plane, tap / s.kernel_w,
                                     tap % s.kernel_w, gradient_at(image));
        }
      }
      std::copy_n(sums, columns, out + k);
    }
    return;
  }
  for (int64_t k = first; k < last; k += panel.depth) {
    const int64_t columns = std::min(panel.depth, last - k);
    for (int64_t image = 0; image < s.batch; ++image) {
      for (int64_t begin = 0; begin < pixels; begin += panel.width) {
        const int64_t width = std::min(panel.width, pixels - begin);
        const float* patches = scratch;
        int64_t stride = width;
        if (s.IsProduct()) {
          patches = image_at(image) + k * plane + begin;
          stride = plane;
        } else {
          for (int64_t r = 0; r < columns; ++r) {
            const int64_t tap = (k + r) % taps;
            PatchRow(s, image_at(image) + (k + r) / taps * plane, tap / s.kernel_w,
                     tap % s.kernel_w, begin, begin + width, scratch + r * width);
          }
        }
        Gemm(false, true, rows, columns, width, gradient_at(image) + begin, pixels, patches, stride,
             image == 0 && begin == 0 ? 0.0F : 1.0F, out + k, depth);
      }
    }
  }
}

// Channels [first, last) of one group's data of one image.
void DataChannels(const Conv2dShape& s, int64_t image, int64_t group, int64_t first, int64_t last,
                  const float* g, const float* w, const float* bias, float* x, float* scratch,
                  Panel panel) {
  const int64_t plane = s.in_h * s.in_w;
  const int64_t depth = s.Depth();
  const int64_t pixels = s.Pixels();
  const int64_t taps = s.kernel_h * s.kernel_w;
  const int64_t terms = s.GroupOut();
  const float* weights = w + group * terms * depth;
  const float* gradient = g + (image * s.out_channels + group * terms) * pixels;
  const int64_t channel = group * s.GroupIn() + first;
  float* out = x + (image * s.in_channels + channel) * plane;
  if (s.IsProduct()) {
    Gemm(true, false, last - first, pixels, terms, weights + first, depth, gradient, pixels, 0.0F,
         out, plane);
  } else {
    std::fill_n(out, (last - first) * plane, 0.0F);
    for (int64_t k = first * taps; k < last * taps; k += panel.depth) {
      const int64_t rows = std::min(panel.depth, last * taps - k);
      for (int64_t begin = 0; begin < pixels; begin += panel.width) {
        const int64_t width = std::min(panel.width, pixels - begin);
        if (terms > 1) {
          Gemm(true, false, rows, width, terms, weights + k, depth, gradient + begin, pixels, 0.0F,
               scratch, width);
        }
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t tap = (k + r) % taps;
          float* to = out + ((k + r) / taps - first) * plane;
          // With one term the row is the gradient, scaled.
          const float* from = terms > 1 ? scratch + r * width : gradient + begin;
          const float scale = terms > 1 ? 1.0F : weights[k + r];
          AddPatchRow(s, from, scale, tap / s.kernel_w, tap % s.kernel_w, begin, begin + width, to);
        }
      }
    }
  }
  if (bias != nullptr) {
    Epilogue(out, last - first, plane, plane, bias + channel, nullptr, Limits{});
  }
}

bool Small(const Conv2dShape& s) {
  return s.batch * s.out_channels * s.Pixels() * s.Depth() < kSerialWork;
}

}  // namespace

void Conv2dGradWeight(const Conv2dShape& s, const float* x, const float* g, float* w,
                      float* workspace, int64_t workspace_bytes) {
  if (s.batch == 0 || s.Pixels() == 0) std::fill_n(w, s.out_channels * s.Depth(), 0.0F);
  if (s.batch * s.out_channels * s.Pixels() * s.Depth() == 0) return;
  RequireBlas(std::max({s.Depth(), s.Pixels(), s.in_h * s.in_w, s.GroupOut()}));
  ParallelFor(Small(s), [&](int64_t task, int64_t tasks) {
    alignas(64) float stack[kStackPanel];
    int64_t elements = 0;
    float* scratch = Scratch(workspace, workspace_bytes, task, tasks, stack, &elements);
    const Panel panel = s.IsProduct() ? Panel{s.Depth(), s.Pixels()} : ChoosePanel(s, elements);
    const int64_t parts = Parts(s.group, tasks);
    const int64_t step = CeilDiv(s.Depth(), parts);
    const int64_t items = s.group * parts;
    for (int64_t item = task * items / tasks; item < (task + 1) * items / tasks; ++item) {
      const int64_t first = item % parts * step;
      const int64_t last = std::min(first + step, s.Depth());
      WeightColumns(s, item / parts, first, last, x, g, w, scratch, panel);
    }
  });
}

void Conv2dGradData(const Conv2dShape& s, const float* g, const float* w, const float* bias,
                    float* x, float* workspace, int64_t workspace_bytes) {
  if (s.batch * s.in_channels * s.in_h * s.in_w == 0) return;
  RequireBlas(std::max({s.Depth(), s.Pixels(), s.in_h * s.in_w, s.GroupOut()}));
  ParallelFor(Small(s), [&](int64_t task, int64_t tasks) {
    alignas(64) float stack[kStackPanel];
    int64_t elements = 0;
    float* scratch = Scratch(workspace, workspace_bytes, task, tasks, stack, &elements);
    const Panel panel = s.Pixels() == 0 ? Panel{s.Depth(), 1} : ChoosePanel(s, elements);
    const int64_t units = s.batch * s.group;
    const int64_t parts = Parts(units, tasks);
    const int64_t step = CeilDiv(s.GroupIn(), parts);
    const int64_t items = units * parts;
    for (int64_t item = task * items / tasks; item < (task + 1) * items / tasks; ++item) {
      const int64_t unit = item / parts;
      const int64_t first = item % parts * step;
      const int64_t last = std::min(first + step, s.GroupIn());
      if (first >= last) continue;
      DataChannels(s, unit / s.group, unit % s.group, first, last, g, w, bias, x, scratch, panel);
    }
  });
}

}  // namespace memc
