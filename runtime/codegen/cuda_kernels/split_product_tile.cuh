// SPDX-License-Identifier: Apache-2.0
// What split products read: the parameters of a product, and tiles of its factors in shared memory.
#ifndef MEMC_CUDA_KERNELS_SPLIT_PRODUCT_TILE_CUH_
#define MEMC_CUDA_KERNELS_SPLIT_PRODUCT_TILE_CUH_

#include "divisor.cuh"
#include "primitives.cuh"

namespace {

struct Params {
  const float* a;
  const float* b;
  float* c;
  const float* bias;      // Null for none, as the next two.
  const float* residual;  // May be c.
  const float* scale;
  long long stride_a, stride_b, stride_c;  // Elements from one matrix of the batch to the next.
  int m, n, k;
  int lda, ldb;  // Elements from one row to the next, as they are stored.
  int part;      // Depth that a block takes of a tile, a multiple of a stage's.
  int splits;    // Blocks of a tile.
  int bias_of_rows;
  int relu;
  int wide_a, wide_b;  // Whether rows begin at multiples of 16 bytes.
  // Of convolutions. A column is a position of an image, all images side by side; the depth is
  // channels by kernel rows by kernel columns.
  Divisor positions;  // Of one image of the result.
  Divisor width;      // Of the result.
  Divisor window;     // Elements of the kernel of one channel.
  Divisor kernel;     // Its width.
  int height_x, width_x;
  int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  long long image_x;  // Elements of one image.
};

enum Read {
  kDeep,   // Row (of a) or column (of b) by row, the depth side by side.
  kAcross  // The depth step by step, rows or columns side by side.
};

constexpr int kPad = 4;  // Elements between what is stored deep, against conflicts of banks.

// A tile's side in shared memory.
template <int kSide, int kDepth, Read kRead>
struct Side {
  static constexpr int kElements = kRead == kDeep ? kSide * (kDepth + kPad) : kSide * kDepth;
  static __device__ __forceinline__ int At(int across, int deep) {
    return kRead == kDeep ? across * (kDepth + kPad) + deep : deep * kSide + across;
  }
};

// Copies a stage of a matrix: kSide of `sides` rows (columns) from `first` on, at the depths from
// `deep` to `end`; 0 beyond.
template <int kSide, int kDepth, Read kRead, int kThreads>
__device__ __forceinline__ void Copy(float* shared, const float* global, int stride, bool wide,
                                     int first, int sides, int deep, int end) {
  constexpr int kQuads = kSide * kDepth / 4;
  constexpr int kInner = (kRead == kDeep ? kDepth : kSide) / 4;
#pragma unroll
  for (int turn = 0; turn < kQuads / kThreads; ++turn) {
    const int quad = turn * kThreads + Thread();
    const int outer = quad / kInner;
    const int inner = quad % kInner * 4;
    const int row = kRead == kDeep ? first + outer : deep + outer;
    const int column = kRead == kDeep ? deep + inner : first + inner;
    const int rows = kRead == kDeep ? sides : end;
    const int columns = kRead == kDeep ? end : sides;
    float* to = shared + (kRead == kDeep ? Side<kSide, kDepth, kRead>::At(outer, inner)
                                         : Side<kSide, kDepth, kRead>::At(inner, outer));
    const int count = row < rows ? columns - column : 0;
    const float* from = global + static_cast<long long>(row) * stride + column;
    if (wide) {
      const int some = count < 0 ? 0 : count > 4 ? 4 : count;
      CopyAsync16(to, some > 0 ? from : global, 4 * some);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        CopyAsync4(to + i, i < count ? from + i : global, i < count ? 4 : 0);
    }
  }
}

// Copies a stage of the patches of an image, a column for a thread.
template <int kSide, int kDepth, int kThreads>
struct Patches {
  const float* image;
  int row, column;  // Of the patch's first element, which may be outside.
  bool inside;

  __device__ __forceinline__ Patches(const Params& p, int first) {
    const int place = first + Thread() % kSide;
    inside = place < p.n;
    const int number = Quotient(place, p.positions);
    const int position = place - number * p.positions.by;
    const int y = Quotient(position, p.width);
    row = y * p.stride_h - p.pad_h;
    column = (position - y * p.width.by) * p.stride_w - p.pad_w;
    image = p.b + (inside ? number * p.image_x : 0);
  }

  __device__ __forceinline__ void Copy(float* shared, const Params& p, int deep, int end) const {
    constexpr int kRows = kThreads / kSide;
    const int side = Thread() % kSide;
#pragma unroll
    for (int turn = 0; turn < kDepth / kRows; ++turn) {
      const int at = turn * kRows + Thread() / kSide;
      const int k = deep + at;
      const int channel = Quotient(k, p.window);
      const int element = k - channel * p.window.by;
      const int y = Quotient(element, p.kernel);
      const int h = row + y * p.dilation_h;
      const int w = column + (element - y * p.kernel.by) * p.dilation_w;
      const bool there = inside && k < end &&
                         static_cast<unsigned>(h) < static_cast<unsigned>(p.height_x) &&
                         static_cast<unsigned>(w) < static_cast<unsigned>(p.width_x);
      const float* from = image + (channel * p.height_x + h) * p.width_x + w;
      CopyAsync4(shared + Side<kSide, kDepth, kAcross>::At(side, at), there ? from : p.b,
                 there ? 4 : 0);
    }
  }
};

// Which row (column) is number `i` of those of a thread, `lane` of `kLanes` across a tile: fours
// that lie side by side where they are stored so, and else rows of all lanes side by side.
template <Read kRead, int kLanes>
__device__ __forceinline__ int Own(int lane, int i) {
  return kRead == kDeep ? i * kLanes + lane : i / 4 * 4 * kLanes + lane * 4 + i % 4;
}

// Four depths of a thread's kOwn rows (columns).
template <int kSide, int kDepth, Read kRead, int kLanes, int kOwn>
__device__ __forceinline__ void Load(float (&to)[4][kOwn], const float* shared, int lane,
                                     int deep) {
  if (kRead == kDeep) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float4 four = *reinterpret_cast<const float4*>(
          shared + Side<kSide, kDepth, kRead>::At(Own<kRead, kLanes>(lane, i), deep));
      to[0][i] = four.x;
      to[1][i] = four.y;
      to[2][i] = four.z;
      to[3][i] = four.w;
    }
  } else {
#pragma unroll
    for (int d = 0; d < 4; ++d) {
#pragma unroll
      for (int i = 0; i < kOwn; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(
            shared + Side<kSide, kDepth, kRead>::At(Own<kRead, kLanes>(lane, i), deep + d));
        to[d][i] = four.x;
        to[d][i + 1] = four.y;
        to[d][i + 2] = four.z;
        to[d][i + 3] = four.w;
      }
    }
  }
}

// kRows x kColumns results of a block, of which a thread has kOwnRows x kOwnColumns. There are
// kGroups such sets of threads, each of which takes its share of the depth of a stage: more warps,
// whose waits overlap, without more reads of shared memory.
template <int kTileRows, int kTileColumns, int kTileOwnRows, int kTileOwnColumns, int kTileGroups,
          int kStageDepth, int kTileStages>
struct Tile {
  static constexpr int kRows = kTileRows;
  static constexpr int kColumns = kTileColumns;
  static constexpr int kOwnRows = kTileOwnRows;
  static constexpr int kOwnColumns = kTileOwnColumns;
  static constexpr int kGroups = kTileGroups;
  static constexpr int kDepth = kStageDepth;
  static constexpr int kStages = kTileStages;
  static constexpr int kLanesA = kRows / kOwnRows;
  static constexpr int kLanesB = kColumns / kOwnColumns;
  static constexpr int kThreads = kLanesA * kLanesB * kGroups;
  // So many blocks shall fit a multiprocessor's registers.
  static constexpr int kBlocks = kGroups == 1 ? 3 : 512 / kThreads;
};

// What a block has in shared memory: stages, and then in their place its tile.
template <typename T, Read kReadA, Read kReadB>
struct Shared {
  static constexpr int kElementsA = Side<T::kRows, T::kDepth, kReadA>::kElements;
  static constexpr int kStage = kElementsA + Side<T::kColumns, T::kDepth, kReadB>::kElements;
  static constexpr int kStaged = T::kStages * kStage;
  static constexpr int kTile = T::kRows * T::kColumns;
  static constexpr int kElements = kStaged > kTile ? kStaged : kTile;
};

}  // namespace

#endif  // MEMC_CUDA_KERNELS_SPLIT_PRODUCT_TILE_CUH_
