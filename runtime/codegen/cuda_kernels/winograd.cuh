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

// A convolution over volumes, as one of slices: of each image and each step of the kernel's first
// axis, so that the channels of an image are those of its slices within reach, tap by tap. An image
// of the result is one slice.
struct WinogradVolume : Winograd {
  int taps_d;        // Of the first axis.
  int tap_channels;  // Of one tap, with zeros up to a padded extent; `padded_channels` are of all.
  int depth_x;
  int stride_d, pad_d, dilation_d;
  Divisor depth_y;
};

// Where slices of an image are: the first one that a result's reaches to, and the result's own.
struct Slices {
  int image, from, to;
};

__device__ __forceinline__ Slices SlicesOf(const Winograd&, int image) { return {image, 0, 0}; }
__device__ __forceinline__ Slices SlicesOf(const WinogradVolume& p, int image) {
  const int number = Quotient(image, p.depth_y);
  const int slice = image - number * p.depth_y.by;
  return {number, slice * p.stride_d - p.pad_d, slice};
}

// How many slices an image of x, and of y, has.
__device__ __forceinline__ int DepthX(const Winograd&) { return 1; }
__device__ __forceinline__ int DepthX(const WinogradVolume& p) { return p.depth_x; }
__device__ __forceinline__ int DepthY(const Winograd&) { return 1; }
__device__ __forceinline__ int DepthY(const WinogradVolume& p) { return p.depth_y.by; }

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
