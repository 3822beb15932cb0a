// SPDX-License-Identifier: Apache-2.0
// Products of stages in f32, each thread with some rows and columns of a tile: for patch_product.cu
// and patch_sums.cu.
#ifndef MEMC_CUDA_KERNELS_PATCH_THREADS_CUH_
#define MEMC_CUDA_KERNELS_PATCH_THREADS_CUH_

#include "patch_stages.cuh"

namespace {
namespace patches {

// The sums of a thread, eight rows by kOwn columns. Rows of all threads lie side by side, as do
// columns that are stored deep, and else fours of them. Where threads are several groups, each has
// sums of the whole tile, of its share of a stage's depth.
template <typename T>
struct ThreadSums {
  static constexpr int kOwnRows = 8;
  static constexpr int kOwn = T::kOwnColumns;
  static constexpr int kLanesB = T::kColumns / kOwn;
  static constexpr int kLanesA = T::kRows / kOwnRows;
  static constexpr int kShare = kDepth / T::kGroups;
  float sums[kOwnRows][kOwn] = {};

  static __device__ __forceinline__ int Group() { return Thread() / (kLanesA * kLanesB); }
  static __device__ __forceinline__ int Row(int i) {
    const int lane = Thread() / kLanesB;
    return i * kLanesA + (T::kGroups == 1 ? lane : lane % kLanesA);
  }

  template <Kind kKind>
  static __device__ __forceinline__ int ColumnOf(int j) {
    const int lane = Thread() % kLanesB;
    return kKind == kSums ? j * kLanesB + lane : j / 4 * 4 * kLanesB + lane * 4 + j % 4;
  }

  // Two depths of what is stored deep.
  static __device__ __forceinline__ void Two(float (&to)[2], const float* from) {
    const float2 two = *reinterpret_cast<const float2*>(from);
    to[0] = two.x;
    to[1] = two.y;
  }

  template <Kind kKind>
  static __device__ __forceinline__ void LoadColumns(float (&to)[2][kOwn], const float* b,
                                                     int deep) {
    constexpr int kRowB = Shared<T, kKind>::kRowB;
    if (kKind == kSums) {
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        float two[2];
        Two(two, b + ColumnOf<kKind>(j) * kDeepRow + deep);
        to[0][j] = two[0];
        to[1][j] = two[1];
      }
    } else {
#pragma unroll
      for (int d = 0; d < 2; ++d) {
#pragma unroll
        for (int j = 0; j < kOwn; j += 4) {
          const float4 four =
              *reinterpret_cast<const float4*>(b + (deep + d) * kRowB + ColumnOf<kKind>(j));
          to[d][j] = four.x;
          to[d][j + 1] = four.y;
          to[d][j + 2] = four.z;
          to[d][j + 3] = four.w;
        }
      }
    }
  }

  template <Kind kKind, typename Other>
  __device__ __forceinline__ void Add(const float* a, const float* b, const Other& other) {
    const int first = T::kGroups == 1 ? 0 : Group() * kShare;
#pragma unroll
    for (int turn = 0; turn < kShare; turn += 2) {
      const int deep = first + turn;
      float left[kOwnRows][2];
      float right[2][kOwn];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) Two(left[i], a + Row(i) * kDeepRow + deep);
      LoadColumns<kKind>(right, b, deep);
      if (turn % (kShare / kParts) == 0) other.Copy(turn * kParts / kShare);
#pragma unroll
      for (int d = 0; d < 2; ++d) {
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
          for (int j = 0; j < kOwn; ++j) sums[i][j] = fmaf(left[i][d], right[d][j], sums[i][j]);
        }
      }
    }
  }

  // The groups' sums are added up, one after the other.
  template <Kind kKind>
  __device__ __forceinline__ void Put(float* results) const {
    constexpr int kRow = Shared<T, kKind>::kResultRow;
#pragma unroll
    for (int turn = 0; turn < T::kGroups; ++turn) {
      if (turn > 0) SyncBlock();
      if (T::kGroups > 1 && turn != Group()) continue;
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          float& sum = results[Row(i) * kRow + ColumnOf<kKind>(j)];
          sum = turn == 0 ? sums[i][j] : sum + sums[i][j];
        }
      }
    }
  }
};

// kRows x kColumns results of a block.
template <int kTileRows, int kTileColumns, int kOfThread, int kTileGroups, int kTileStages,
          int kBlocksAtOnce>
struct ThreadTile {
  static constexpr int kRows = kTileRows;
  static constexpr int kColumns = kTileColumns;
  static constexpr int kOwnColumns = kOfThread;
  static constexpr int kGroups = kTileGroups;
  static constexpr int kThreads = kRows / 8 * (kColumns / kOwnColumns) * kGroups;
  static constexpr int kStages = kTileStages;
  static constexpr int kBlocks = kBlocksAtOnce;  // Of a multiprocessor.
  using Sums = ThreadSums<ThreadTile>;
};

}  // namespace patches
}  // namespace

#define PATCH_PRODUCT(size, name, kind) \
  PATCH_KERNEL(patch_product_2_##size##_##name, patches::Thread##size, patches::kind)

#endif  // MEMC_CUDA_KERNELS_PATCH_THREADS_CUH_
