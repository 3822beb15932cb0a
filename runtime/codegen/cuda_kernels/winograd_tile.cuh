// SPDX-License-Identifier: Apache-2.0
// Tiles of images, transformed on their way to shared memory.
#ifndef MEMC_CUDA_KERNELS_WINOGRAD_TILE_CUH_
#define MEMC_CUDA_KERNELS_WINOGRAD_TILE_CUH_

#include "winograd.cuh"

namespace {

// Where a tile is.
struct ImageTile {
  int image, row, column;  // The last two of its first result.
  bool exists;

  __device__ __forceinline__ ImageTile(const Winograd& p, int tile) {
    exists = tile < p.tiles;
    image = Quotient(exists ? tile : 0, p.of_image);
    const int rest = (exists ? tile : 0) - image * p.of_image.by;
    const int down = Quotient(rest, p.of_row);
    row = 2 * down;
    column = 2 * (rest - down * p.of_row.by);
  }
};

// Half of a tile of one channel, transformed: the first eight parts (half = 0) or the others,
// either of which take three rows.
struct Half {
  const float* from;  // The first element of a row, which may be outside.
  unsigned inside;    // A bit for each of the 12 elements.
  float rows[3][6];   // With one more on both sides.

  template <typename P>
  __device__ __forceinline__ void Begin(const P& p, const ImageTile& at, int channel, int half) {
    const int top = at.row - p.pad_h + half;
    const int left = at.column - p.pad_w;
    const Slices slices = SlicesOf(p, at.image);
    from = p.x + slices.image * p.image_x +
           ((static_cast<long long>(channel) * DepthX(p) + slices.from) * p.height_x + top) *
               p.width_x +
           left;
    inside = 0;
#pragma unroll
    for (int i = 0; i < 12; ++i) {
      const bool there = at.exists &&
                         static_cast<unsigned>(top + i / 4) < static_cast<unsigned>(p.height_x) &&
                         static_cast<unsigned>(left + i % 4) < static_cast<unsigned>(p.width_x);
      inside |= there ? 1u << i : 0u;
    }
  }

  __device__ __forceinline__ void Load(const Winograd& p, bool there) {
    const unsigned mask = there ? inside : 0;
    if (p.pairs_x) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
#pragma unroll
        for (int j = 0; j < 3; ++j) {
          const bool has = (mask >> (4 * i + (j == 0 ? 0 : j == 1 ? 1 : 3)) & 1) != 0;
          float2 two{0.0f, 0.0f};
          if (has) two = *reinterpret_cast<const float2*>(from + i * p.width_x + 2 * j - 1);
          rows[i][2 * j] = two.x;
          rows[i][2 * j + 1] = two.y;
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 12; ++i) {
        rows[i / 4][i % 4 + 1] = (mask >> i & 1) != 0 ? from[i / 4 * p.width_x + i % 4] : 0.0f;
      }
    }
  }

  // Part by part, `stride` elements apart.
  __device__ __forceinline__ void Store(float* to, int stride, int half) const {
    float two[2][4];
    if (half == 0) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        two[0][j] = rows[0][j + 1] - rows[2][j + 1];
        two[1][j] = rows[1][j + 1] + rows[2][j + 1];
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        two[0][j] = rows[1][j + 1] - rows[0][j + 1];
        two[1][j] = rows[0][j + 1] - rows[2][j + 1];
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[(i * 4 + 0) * stride] = two[i][0] - two[i][2];
      to[(i * 4 + 1) * stride] = two[i][1] + two[i][2];
      to[(i * 4 + 2) * stride] = two[i][2] - two[i][1];
      to[(i * 4 + 3) * stride] = two[i][1] - two[i][3];
    }
  }
};

}  // namespace

#endif  // MEMC_CUDA_KERNELS_WINOGRAD_TILE_CUH_
