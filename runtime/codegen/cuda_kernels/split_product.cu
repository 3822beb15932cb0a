// SPDX-License-Identifier: Apache-2.0
// Products of f32 matrices, and convolutions as products with patches that are never stored, for
// results too small to keep a GPU busy tile by tile: the depth of each tile is split among the
// blocks of a cluster, which add their parts up out of each other's shared memory, always in the
// same order. No workspace is needed, and what follows a product (scale, bias, residual, ReLU) is
// part of it.
//
// The kernels are `split_product_<version>_<rows>x<columns>_<how a is read>_<how b is read>`;
// `Params` is what cpp/cuda/cuda_split_product.cc gives them. The version changes with `Params` and
// the tiles' threads: artifacts hold their kernels compiled.
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

// One tile of one matrix.
template <typename T, Read kReadA, Read kReadB, bool kPatches>
__device__ __forceinline__ void Multiply(const Params& p, float* shared) {
  constexpr int kRows = T::kRows;
  constexpr int kColumns = T::kColumns;
  constexpr int kOwnRows = T::kOwnRows;
  constexpr int kOwnColumns = T::kOwnColumns;
  constexpr int kDepth = T::kDepth;
  constexpr int kStages = T::kStages;
  constexpr int kLanesA = T::kLanesA;
  constexpr int kLanesB = T::kLanesB;
  constexpr int kThreads = T::kThreads;
  constexpr int kElementsA = Shared<T, kReadA, kReadB>::kElementsA;
  constexpr int kStage = Shared<T, kReadA, kReadB>::kStage;
  const int tile = Block() / p.splits;
  const int rank = Block() - tile * p.splits;
  const int tiles_down = (p.m + kRows - 1) / kRows;
  const int first_row = tile % tiles_down * kRows;
  const int first_column = tile / tiles_down * kColumns;
  const int begin = rank * p.part;
  const int end = begin + p.part < p.k ? begin + p.part : p.k;
  const float* a = p.a + Matrix() * p.stride_a;
  const float* b = p.b + Matrix() * p.stride_b;
  const Patches<kColumns, kDepth, kThreads> patches(p, first_column);
  const auto copy = [&](int stage, int deep) {
    float* to = shared + stage * kStage;
    Copy<kRows, kDepth, kReadA, kThreads>(to, a, p.lda, p.wide_a != 0, first_row, p.m, deep, end);
    if (kPatches) {
      patches.Copy(to + kElementsA, p, deep, end);
    } else {
      Copy<kColumns, kDepth, kReadB, kThreads>(to + kElementsA, b, p.ldb, p.wide_b != 0,
                                               first_column, p.n, deep, end);
    }
  };

  const int steps = (end - begin + kDepth - 1) / kDepth;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < steps) copy(stage, begin + stage * kDepth);
    CommitCopies();
  }
  const int group = Thread() / (kLanesA * kLanesB);
  const int lane_a = Thread() / kLanesB % kLanesA;
  const int lane_b = Thread() % kLanesB;
  float sums[kOwnRows][kOwnColumns] = {};
  for (int step = 0; step < steps; ++step) {
    WaitForCopies<kStages - 2>();
    SyncBlock();
    const int ahead = step + kStages - 1;
    if (ahead < steps) copy(ahead % kStages, begin + ahead * kDepth);
    CommitCopies();
    const float* from = shared + step % kStages * kStage;
#pragma unroll
    for (int turn = 0; turn < kDepth / T::kGroups; turn += 4) {
      const int deep = group * (kDepth / T::kGroups) + turn;
      float left[4][kOwnRows];
      float right[4][kOwnColumns];
      Load<kRows, kDepth, kReadA, kLanesA, kOwnRows>(left, from, lane_a, deep);
      Load<kColumns, kDepth, kReadB, kLanesB, kOwnColumns>(right, from + kElementsA, lane_b, deep);
#pragma unroll
      for (int d = 0; d < 4; ++d) {
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
          for (int j = 0; j < kOwnColumns; ++j) {
            sums[i][j] = fmaf(left[d][i], right[d][j], sums[i][j]);
          }
        }
      }
    }
  }
  WaitForCopies<0>();
  SyncBlock();

  // The groups' sums, one after the other, where the stages were.
#pragma unroll
  for (int turn = 0; turn < T::kGroups; ++turn) {
    if (turn > 0) SyncBlock();
    if (turn != group) continue;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
        float& sum =
            shared[Own<kReadA, kLanesA>(lane_a, i) * kColumns + Own<kReadB, kLanesB>(lane_b, j)];
        sum = turn == 0 ? sums[i][j] : sum + sums[i][j];
      }
    }
  }
  SyncCluster();
  const float scale = p.scale == nullptr ? 1.0f : *p.scale;
  // Each block finishes the same share of the rows, in fours of a row.
  constexpr int kFours = kColumns / 4;
  const int share = kRows / p.splits;
  for (int at = Thread(); at < share * kFours; at += kThreads) {
    const int row = rank * share + at / kFours;
    const int column = at % kFours * 4;
    float sum[4] = {};
    for (int other = 0; other < p.splits; ++other) {
      const float4 four = ReadShared(shared + row * kColumns + column, other);
      sum[0] += four.x;
      sum[1] += four.y;
      sum[2] += four.z;
      sum[3] += four.w;
    }
    const int m = first_row + row;
    if (m >= p.m) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = first_column + column + i;
      if (n >= p.n) continue;
      long long to = Matrix() * p.stride_c + static_cast<long long>(m) * p.n + n;
      if (kPatches) {
        const int number = Quotient(n, p.positions);
        to = (static_cast<long long>(number) * p.m + m) * p.positions.by + n -
             number * p.positions.by;
      }
      float value = sum[i] * scale;
      if (p.bias != nullptr) value += p.bias[p.bias_of_rows ? m : n];
      if (p.residual != nullptr) value += p.residual[to];
      p.c[to] = p.relu && value < 0 ? 0.0f : value;
    }
  }
  SyncCluster();  // Until all have read, no block's memory may go.
}

}  // namespace

#define SPLIT_PRODUCT(size, name, read_a, read_b, patches)                                \
  extern "C" __global__ void __launch_bounds__(Tile##size::kThreads, Tile##size::kBlocks) \
      split_product_2_##size##_##name(const Params p) {                                   \
    SHARED_FLOATS(shared, (Shared<Tile##size, read_a, read_b>::kElements));               \
    Multiply<Tile##size, read_a, read_b, patches>(p, shared);                             \
  }

#define SPLIT_PRODUCTS(size)                              \
  SPLIT_PRODUCT(size, deep_across, kDeep, kAcross, false) \
  SPLIT_PRODUCT(size, deep_deep, kDeep, kDeep, false)     \
  SPLIT_PRODUCT(size, deep_patches, kDeep, kAcross, true)

using Tile32x32 = Tile<32, 32, 8, 4, 4, 32, 3>;
using Tile64x32 = Tile<64, 32, 8, 4, 4, 32, 3>;
using Tile32x64 = Tile<32, 64, 4, 8, 4, 32, 3>;
using Tile64x64 = Tile<64, 64, 8, 4, 2, 32, 2>;
using Tile128x64 = Tile<128, 64, 8, 8, 1, 16, 3>;
using Tile64x128 = Tile<64, 128, 8, 8, 1, 16, 3>;

SPLIT_PRODUCTS(32x32)
SPLIT_PRODUCTS(64x32)
SPLIT_PRODUCTS(32x64)
SPLIT_PRODUCTS(64x64)
SPLIT_PRODUCTS(128x64)
SPLIT_PRODUCTS(64x128)
