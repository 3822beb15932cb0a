// SPDX-License-Identifier: Apache-2.0
// Convolutions of f32 over volumes, and their gradients, as products in f32: what tensor_product.cu
// computes from factors rounded to TF32, from the factors themselves.
//
// The kernels are `patch_product_<version>_<rows>x<columns>_<kind>`; `PatchProduct` is what
// cpp/cuda/cuda_patches.cc gives them, which also says how much shared memory they take. The
// version changes with any of that: artifacts hold their kernels compiled.
#include "patch_stages.cuh"

namespace {
namespace patches {

// The sums of a thread, eight rows by kOwn columns. Rows of all threads lie side by side, as do
// columns that are stored deep, and else fours of them.
template <typename T>
struct ThreadSums {
  static constexpr int kOwnRows = 8;
  static constexpr int kOwn = T::kOwnColumns;
  static constexpr int kLanesB = T::kColumns / kOwn;
  static constexpr int kLanesA = T::kRows / kOwnRows;
  float sums[kOwnRows][kOwn] = {};

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
    a += Thread() / kLanesB * kDeepRow;
#pragma unroll
    for (int deep = 0; deep < kDepth; deep += 2) {
      float left[kOwnRows][2];
      float right[2][kOwn];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) Two(left[i], a + i * kLanesA * kDeepRow + deep);
      LoadColumns<kKind>(right, b, deep);
      if (deep % (kDepth / kParts) == 0) other.Copy(deep * kParts / kDepth);
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

  template <Kind kKind>
  __device__ __forceinline__ void Put(float* results) const {
    constexpr int kRow = Shared<T, kKind>::kResultRow;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      float* to = results + (i * kLanesA + Thread() / kLanesB) * kRow;
#pragma unroll
      for (int j = 0; j < kOwn; ++j) to[ColumnOf<kKind>(j)] = sums[i][j];
    }
  }
};

// kRows x kColumns results of a block.
template <int kTileRows, int kTileColumns, int kOfThread, int kTileStages, int kBlocksAtOnce>
struct ThreadTile {
  static constexpr int kRows = kTileRows;
  static constexpr int kColumns = kTileColumns;
  static constexpr int kOwnColumns = kOfThread;
  static constexpr int kThreads = kRows / 8 * (kColumns / kOwnColumns);
  static constexpr int kStages = kTileStages;
  static constexpr int kBlocks = kBlocksAtOnce;  // Of a multiprocessor.
  using Sums = ThreadSums<ThreadTile>;
};

}  // namespace patches
}  // namespace

#define PATCH_PRODUCT(size, name, kind)                                                       \
  extern "C" __global__ void __launch_bounds__(patches::Thread##size::kThreads,               \
                                               patches::Thread##size::kBlocks)                \
      patch_product_1_##size##_##name(const PatchProduct p) {                                 \
    GIVEN_FLOATS(shared, (patches::Shared<patches::Thread##size, patches::kind>::kElements)); \
    patches::Multiply<patches::Thread##size, patches::kind>(p, shared);                       \
  }

#define PATCH_PRODUCTS(size)             \
  PATCH_PRODUCT(size, patches, kPatches) \
  PATCH_PRODUCT(size, flipped, kFlipped) \
  PATCH_PRODUCT(size, sums, kSums)

namespace {
namespace patches {

using Thread128x128 = ThreadTile<128, 128, 8, 2, 2>;
using Thread64x128 = ThreadTile<64, 128, 8, 2, 3>;
using Thread64x64 = ThreadTile<64, 64, 4, 3, 4>;

}  // namespace patches
}  // namespace

PATCH_PRODUCTS(128x128)
PATCH_PRODUCTS(64x128)
PATCH_PRODUCTS(64x64)
