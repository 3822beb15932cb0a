// SPDX-License-Identifier: Apache-2.0
// What the kernels of tensor_product.cu, patch_product.cu and patch_sums.cu are given, and where
// the elements of patches are.
#ifndef MEMC_CUDA_KERNELS_PATCH_PLACES_CUH_
#define MEMC_CUDA_KERNELS_PATCH_PLACES_CUH_

#include "divisor.cuh"
#include "primitives.cuh"

namespace {

// c = a b, where one side of b is the places of an image and the other one taps: a place is one of
// the window, of the image `place / positions`, and a tap is an element of the window's channels.
struct PatchProduct {
  const float* a;
  const float* b;  // Images.
  float* c;
  const float* bias;      // Of rows; null for none, as the next one.
  const float* residual;  // May be c.
  int m, n, k;
  int part;    // Depth that a block takes of a tile, a multiple of a stage's.
  int splits;  // Blocks of a cluster, which share a tile.
  int relu;
  int wide_a, wide_c;  // Whether fours side by side begin at multiples of 16 bytes.
  Divisor positions;   // Of one image, as the next ones: its places, those of a plane, of a row.
  Divisor plane, row;
  Divisor window, face, line;  // Taps of one channel, of a plane of them, of a row.
  int taps_d, taps_h, taps_w;
  int depth_x, height_x, width_x;
  int stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, dilation_d, dilation_h, dilation_w;
  long long image_x;  // Elements of one image of b.
  long long image_a;  // Of sums, of a.
  int channel_a;      // Of flipped kernels, elements of a from one channel to the next.
};

// Sums that were added up in several tables, one after the other.
struct PatchTotals {
  const float* from;
  float* to;
  int results, tables;
};

constexpr int kThreadsOfTotals = 64;

namespace patches {

// Which side of b is what: the places are columns and the taps are the depth, with weights as they
// are or read backwards, as the gradient in images has them; or the places are the depth, as sums
// over them have it.
enum Kind { kPatches, kFlipped, kSums };

// A tap: where its element is, from a place's on, and a bit for its step along each axis. Or what a
// place has of that.
struct Tap {
  int offset;
  unsigned steps;
};

constexpr unsigned kNowhere = 1U << 31;  // A step that no place has.

// A place's first element, which may be outside, and the steps from there that end inside.
struct Place {
  int image, position, offset;
  unsigned inside;

  __device__ __forceinline__ Place(const PatchProduct& p, int place, bool exists) {
    image = Quotient(exists ? place : 0, p.positions);
    position = (exists ? place : 0) - image * p.positions.by;
    const int down = Quotient(position, p.plane);
    const int rest = position - down * p.plane.by;
    const int across = Quotient(rest, p.row);
    const int z = down * p.stride_d - p.pad_d;
    const int y = across * p.stride_h - p.pad_h;
    const int x = (rest - across * p.row.by) * p.stride_w - p.pad_w;
    offset = (z * p.height_x + y) * p.width_x + x;
    inside = 0;
    if (!exists) return;
    unsigned bit = 1;
    for (int i = 0; i < p.taps_d; ++i, bit <<= 1)
      inside |= Is(z + i * p.dilation_d, p.depth_x, bit);
    for (int i = 0; i < p.taps_h; ++i, bit <<= 1) {
      inside |= Is(y + i * p.dilation_h, p.height_x, bit);
    }
    for (int i = 0; i < p.taps_w; ++i, bit <<= 1)
      inside |= Is(x + i * p.dilation_w, p.width_x, bit);
  }

 private:
  static __device__ __forceinline__ unsigned Is(int at, int extent, unsigned bit) {
    return static_cast<unsigned>(at) < static_cast<unsigned>(extent) ? bit : 0;
  }
};

__device__ __forceinline__ Tap TapOf(const PatchProduct& p, int tap, bool exists) {
  const int channel = Quotient(exists ? tap : 0, p.window);
  const int element = (exists ? tap : 0) - channel * p.window.by;
  const int z = Quotient(element, p.face);
  const int rest = element - z * p.face.by;
  const int y = Quotient(rest, p.line);
  const int x = rest - y * p.line.by;
  Tap found;
  found.offset =
      ((channel * p.depth_x + z * p.dilation_d) * p.height_x + y * p.dilation_h) * p.width_x +
      x * p.dilation_w;
  found.steps =
      exists ? 1U << z | 1U << (p.taps_d + y) | 1U << (p.taps_d + p.taps_h + x) : kNowhere;
  return found;
}

// Where `a` has the first row's element of one depth.
template <Kind kKind>
__device__ __forceinline__ const float* FirstOf(const PatchProduct& p, int k) {
  if (kKind == kPatches) return p.a + k;
  if (kKind == kFlipped) {
    const int channel = Quotient(k, p.window);
    const int element = k - channel * p.window.by;
    return p.a + static_cast<long long>(channel) * p.channel_a + p.window.by - 1 - element;
  }
  const int image = Quotient(k, p.positions);
  return p.a + image * p.image_a + k - image * p.positions.by;
}

// Elements of `a` from one row to the next.
template <Kind kKind>
__device__ __forceinline__ int RowOf(const PatchProduct& p) {
  return kKind == kPatches ? p.k : kKind == kFlipped ? p.window.by : p.positions.by;
}

}  // namespace patches
}  // namespace

#endif  // MEMC_CUDA_KERNELS_PATCH_PLACES_CUH_
