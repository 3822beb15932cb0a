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
#include "split_product_tile.cuh"

namespace {

// Which part of which tile a block has.
struct TilePart {
  int rank;                     // Among the blocks of the tile.
  int first_row, first_column;  // Of the tile.
  int begin, end;               // Of the depth.
};

template <typename T>
__device__ __forceinline__ TilePart TilePartOf(const Params& p) {
  const int tile = Block() / p.splits;
  const int rank = Block() - tile * p.splits;
  const int tiles_down = (p.m + T::kRows - 1) / T::kRows;
  const int begin = rank * p.part;
  return {rank, tile % tiles_down * T::kRows, tile / tiles_down * T::kColumns, begin,
          begin + p.part < p.k ? begin + p.part : p.k};
}

// Where a thread is: its group, and its lanes across the rows and columns of a tile.
struct ThreadPlace {
  int group, a, b;
};

// Adds the products of a stage to the sums of a thread.
template <typename T, Read kReadA, Read kReadB>
__device__ __forceinline__ void AddStage(const float* from, const ThreadPlace& lanes,
                                         float (&sums)[T::kOwnRows][T::kOwnColumns]) {
  constexpr int kShare = T::kDepth / T::kGroups;
#pragma unroll
  for (int turn = 0; turn < kShare; turn += 4) {
    const int deep = lanes.group * kShare + turn;
    float left[4][T::kOwnRows];
    float right[4][T::kOwnColumns];
    Load<T::kRows, T::kDepth, kReadA, T::kLanesA, T::kOwnRows>(left, from, lanes.a, deep);
    Load<T::kColumns, T::kDepth, kReadB, T::kLanesB, T::kOwnColumns>(
        right, from + Shared<T, kReadA, kReadB>::kElementsA, lanes.b, deep);
#pragma unroll
    for (int d = 0; d < 4; ++d) {
#pragma unroll
      for (int i = 0; i < T::kOwnRows; ++i) {
#pragma unroll
        for (int j = 0; j < T::kOwnColumns; ++j) {
          sums[i][j] = fmaf(left[d][i], right[d][j], sums[i][j]);
        }
      }
    }
  }
}

// Adds the groups' sums up, one after the other, where the stages were.
template <typename T, Read kReadA, Read kReadB>
__device__ __forceinline__ void AddGroups(float* shared, const ThreadPlace& lanes,
                                          const float (&sums)[T::kOwnRows][T::kOwnColumns]) {
#pragma unroll
  for (int turn = 0; turn < T::kGroups; ++turn) {
    if (turn > 0) SyncBlock();
    if (turn != lanes.group) continue;
#pragma unroll
    for (int i = 0; i < T::kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < T::kOwnColumns; ++j) {
        float& sum = shared[Own<kReadA, T::kLanesA>(lanes.a, i) * T::kColumns +
                            Own<kReadB, T::kLanesB>(lanes.b, j)];
        sum = turn == 0 ? sums[i][j] : sum + sums[i][j];
      }
    }
  }
}

// Stores four results of a row, `sum` being their products.
template <bool kPatches>
__device__ __forceinline__ void StoreFour(const Params& p, const float (&sum)[4], float scale,
                                          int m, int first_n) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = first_n + i;
    if (n >= p.n) continue;
    long long to = Matrix() * p.stride_c + static_cast<long long>(m) * p.n + n;
    if (kPatches) {
      const int number = Quotient(n, p.positions);
      to =
          (static_cast<long long>(number) * p.m + m) * p.positions.by + n - number * p.positions.by;
    }
    float value = sum[i] * scale;
    if (p.bias != nullptr) value += p.bias[p.bias_of_rows ? m : n];
    if (p.residual != nullptr) value += p.residual[to];
    p.c[to] = p.relu && value < 0 ? 0.0f : value;
  }
}

// Adds the parts of a tile up. Each block finishes the same share of the rows, in fours of a row.
template <typename T, bool kPatches>
__device__ __forceinline__ void AddParts(const Params& p, const float* shared,
                                         const TilePart& part) {
  const float scale = p.scale == nullptr ? 1.0f : *p.scale;
  constexpr int kFours = T::kColumns / 4;
  const int share = T::kRows / p.splits;
  for (int at = Thread(); at < share * kFours; at += T::kThreads) {
    const int row = part.rank * share + at / kFours;
    const int column = at % kFours * 4;
    float sum[4] = {};
    for (int other = 0; other < p.splits; ++other) {
      const float4 four = ReadShared(shared + row * T::kColumns + column, other);
      sum[0] += four.x;
      sum[1] += four.y;
      sum[2] += four.z;
      sum[3] += four.w;
    }
    const int m = part.first_row + row;
    if (m >= p.m) continue;
    StoreFour<kPatches>(p, sum, scale, m, part.first_column + column);
  }
}

// One tile of one matrix.
template <typename T, Read kReadA, Read kReadB, bool kPatches>
__device__ __forceinline__ void Multiply(const Params& p, float* shared) {
  using S = Shared<T, kReadA, kReadB>;
  constexpr int kDepth = T::kDepth;
  constexpr int kStages = T::kStages;
  const TilePart part = TilePartOf<T>(p);
  const float* a = p.a + Matrix() * p.stride_a;
  const float* b = p.b + Matrix() * p.stride_b;
  const Patches<T::kColumns, kDepth, T::kThreads> patches(p, part.first_column);
  const auto copy = [&](int stage, int deep) {
    float* to = shared + stage * S::kStage;
    Copy<T::kRows, kDepth, kReadA, T::kThreads>(to, a, p.lda, p.wide_a != 0, part.first_row, p.m,
                                                deep, part.end);
    if (kPatches) {
      patches.Copy(to + S::kElementsA, p, deep, part.end);
    } else {
      Copy<T::kColumns, kDepth, kReadB, T::kThreads>(to + S::kElementsA, b, p.ldb, p.wide_b != 0,
                                                     part.first_column, p.n, deep, part.end);
    }
  };

  const int steps = (part.end - part.begin + kDepth - 1) / kDepth;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < steps) copy(stage, part.begin + stage * kDepth);
    CommitCopies();
  }
  const ThreadPlace lanes{Thread() / (T::kLanesA * T::kLanesB), Thread() / T::kLanesB % T::kLanesA,
                          Thread() % T::kLanesB};
  float sums[T::kOwnRows][T::kOwnColumns] = {};
  for (int step = 0; step < steps; ++step) {
    WaitForCopies<kStages - 2>();
    SyncBlock();
    const int ahead = step + kStages - 1;
    if (ahead < steps) copy(ahead % kStages, part.begin + ahead * kDepth);
    CommitCopies();
    AddStage<T, kReadA, kReadB>(shared + step % kStages * S::kStage, lanes, sums);
  }
  WaitForCopies<0>();
  SyncBlock();
  AddGroups<T, kReadA, kReadB>(shared, lanes, sums);
  SyncCluster();
  AddParts<T, kPatches>(p, shared, part);
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
