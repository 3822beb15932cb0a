// SPDX-License-Identifier: Apache-2.0
// Convolutions of f32 over planes and volumes, and their gradients, as products on tensor cores,
// with factors rounded to TF32 and sums in f32. Images stay as they are, channel by channel:
// no workspace is needed, and what follows (bias, residual, ReLU) is part of it.
// Where there are few tiles, the blocks of a cluster share the depth of each and add their parts up
// out of each other's shared memory, always in the same order.
//
// The kernels are `tensor_product_<version>_<rows>x<columns>_<kind>`; `PatchProduct` is what
// cpp/cuda/cuda_patches.cc gives them, which also says how much shared memory they take. The
// version changes with any of that: artifacts hold their kernels compiled.
#include "patch_stages.cuh"

namespace {
namespace patches {

// The sums of a warp, kWarpRows x kWarpColumns.
template <typename T>
struct TensorSums {
  static constexpr int kDown = T::kWarpRows / 16;
  static constexpr int kAcross = T::kWarpColumns / 8;
  static constexpr int kWarpsAcross = T::kColumns / T::kWarpColumns;
  float sums[kDown][kAcross][4] = {};

  template <Kind kKind, typename Other>
  __device__ __forceinline__ void Add(const float* a, const float* b, const Other& other) {
    constexpr int kRowB = Shared<T, kKind>::kRowB;
    const int lane = Thread() % 32;
    const int warp = Thread() / 32;
    a += (warp / kWarpsAcross * T::kWarpRows + lane % 16) * kDeepRow + lane / 16 * 4;
    const int column = warp % kWarpsAcross * T::kWarpColumns;
    b += kKind == kSums ? (column + lane / 16 * 8 + lane % 8) * kDeepRow + lane / 8 % 2 * 4
                        : lane % 4 * kRowB + column + lane / 4;
    // Measured, faster than between the products.
#pragma unroll
    for (int part = 0; part < kParts; ++part) other.Copy(part);
#pragma unroll
    for (int deep = 0; deep < kDepth; deep += 8) {
      float left[kDown][4];
      float right[kAcross][2];
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        LoadMatrices(left[i], a + i * 16 * kDeepRow + deep);
#pragma unroll
        for (int n = 0; n < 4; ++n) left[i][n] = RoundedToTf32(left[i][n]);
      }
#pragma unroll
      for (int j = 0; j < kAcross; j += 2) {
        float four[4];
        if (kKind == kSums) {
          LoadMatrices(four, b + j * 8 * kDeepRow + deep);
        } else {
#pragma unroll
          for (int n = 0; n < 4; ++n) four[n] = b[(deep + n % 2 * 4) * kRowB + (j + n / 2) * 8];
        }
#pragma unroll
        for (int n = 0; n < 4; ++n) right[j + n / 2][n % 2] = RoundedToTf32(four[n]);
      }
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int j = 0; j < kAcross; ++j) MultiplyAdd(sums[i][j], left[i], right[j]);
      }
    }
  }

  template <Kind kKind>
  __device__ __forceinline__ void Put(float* results) const {
    constexpr int kRow = Shared<T, kKind>::kResultRow;
    const int lane = Thread() % 32;
    const int warp = Thread() / 32;
    float* to = results + (warp / kWarpsAcross * T::kWarpRows + lane / 4) * kRow +
                warp % kWarpsAcross * T::kWarpColumns + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        float* at = to + i * 16 * kRow + j * 8;
        *reinterpret_cast<float2*>(at) = float2{sums[i][j][0], sums[i][j][1]};
        *reinterpret_cast<float2*>(at + 8 * kRow) = float2{sums[i][j][2], sums[i][j][3]};
      }
    }
  }
};

// kRows x kColumns results of a block.
template <int kTileRows, int kTileColumns, int kOfWarpRows, int kOfWarpColumns, int kTileStages,
          int kBlocksAtOnce>
struct TensorTile {
  static constexpr int kRows = kTileRows;
  static constexpr int kColumns = kTileColumns;
  static constexpr int kWarpRows = kOfWarpRows;
  static constexpr int kWarpColumns = kOfWarpColumns;
  static constexpr int kThreads = kRows / kWarpRows * (kColumns / kWarpColumns) * 32;
  static constexpr int kStages = kTileStages;
  static constexpr int kBlocks = kBlocksAtOnce;  // Of a multiprocessor.
  using Sums = TensorSums<TensorTile>;
};

}  // namespace patches
}  // namespace

#define TENSOR_PRODUCT(size, name, kind) \
  PATCH_KERNEL(tensor_product_1_##size##_##name, patches::Tensor##size, patches::kind)

#define TENSOR_PRODUCTS(size)             \
  TENSOR_PRODUCT(size, patches, kPatches) \
  TENSOR_PRODUCT(size, flipped, kFlipped) \
  TENSOR_PRODUCT(size, sums, kSums)

namespace {
namespace patches {

using Tensor128x128 = TensorTile<128, 128, 64, 64, 3, 2>;
using Tensor64x256 = TensorTile<64, 256, 64, 64, 2, 2>;
using Tensor256x128 = TensorTile<256, 128, 64, 64, 3, 1>;
using Tensor64x128 = TensorTile<64, 128, 32, 64, 3, 2>;
using Tensor64x64 = TensorTile<64, 64, 32, 32, 3, 3>;
using Tensor32x128 = TensorTile<32, 128, 32, 32, 3, 3>;

}  // namespace patches
}  // namespace

TENSOR_PRODUCTS(128x128)
TENSOR_PRODUCTS(64x256)
TENSOR_PRODUCTS(256x128)
TENSOR_PRODUCTS(64x128)
TENSOR_PRODUCTS(64x64)
TENSOR_PRODUCTS(32x128)
