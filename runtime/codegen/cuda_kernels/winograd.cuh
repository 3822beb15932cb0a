// SPDX-License-Identifier: Apache-2.0
// What the kernels of winograd.cu share: what they are given, and how they store results.
#ifndef MEMC_CUDA_KERNELS_WINOGRAD_CUH_
#define MEMC_CUDA_KERNELS_WINOGRAD_CUH_

#include "divisor.cuh"
#include "primitives.cuh"

namespace {

struct Winograd {
  const float* x;
  const float* w;
  float* transformed;     // Weights, [16][channels][filters], with zeros up to the padded extents.
  const float* bias;      // Null for none, as the next one.
  const float* residual;  // May be y.
  float* y;
  int filters, channels;  // Of y and of x.
  int padded_filters, padded_channels;
  long long filter_w, channel_w;  // Elements of w from one filter or channel to the next.
  int flipped;                    // Whether the kernels are read backwards.
  int height_x, width_x, height_y, width_y;
  int pad_h, pad_w;
  long long image_x, image_y;  // Elements of one image.
  int tiles;                   // Of all images.
  int last_tiles;              // Where those of the last image begin,
  int last_filters;            // of which so many filters are computed by minimal filtering.
  Divisor of_image;            // Tiles.
  Divisor of_row;
  // Whether twos side by side begin at multiples of 8 bytes: in rows of x from the second element
  // of a tile on, with pad_w = 1, and in rows of y from its first one on.
  int pairs_x, pairs_y;
  int relu;
};

constexpr int kParts = 16;  // Of a tile of 4 x 4.
constexpr int kWorkers = 512;
constexpr int kFewWorkers = 256;  // Of the kernels that go before and after.

// Two results side by side, or one.
__device__ __forceinline__ void StoreRow(const Winograd& p, long long to, bool both, float bias,
                                         float first, float second) {
  first += bias;
  second += bias;
  if (p.residual != nullptr) {
    first += p.residual[to];
    if (both) second += p.residual[to + 1];
  }
  if (p.relu) {
    first = first < 0 ? 0.0f : first;
    second = second < 0 ? 0.0f : second;
  }
  if (both && p.pairs_y) {
    *reinterpret_cast<float2*>(p.y + to) = float2{first, second};
  } else {
    p.y[to] = first;
    if (both) p.y[to + 1] = second;
  }
}

}  // namespace

#endif  // MEMC_CUDA_KERNELS_WINOGRAD_CUH_
