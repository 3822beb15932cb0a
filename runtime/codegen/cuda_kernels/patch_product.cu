// SPDX-License-Identifier: Apache-2.0
// Convolutions of f32 over volumes, and their gradients, as products in f32: what tensor_product.cu
// computes from factors rounded to TF32, from the factors themselves.
//
// The kernels are `patch_product_<version>_<rows>x<columns>_<kind>`; `PatchProduct` is what
// cpp/cuda/cuda_patches.cc gives them, which also says how much shared memory they take. The
// version changes with any of that: artifacts hold their kernels compiled.
#include "patch_threads.cuh"

namespace {
namespace patches {

using Thread128x128 = ThreadTile<128, 128, 8, 1, 2, 2>;
using Thread64x128 = ThreadTile<64, 128, 8, 1, 2, 3>;
using Thread64x64 = ThreadTile<64, 64, 4, 1, 3, 4>;

}  // namespace patches
}  // namespace

#define PATCH_PRODUCTS(size)             \
  PATCH_PRODUCT(size, patches, kPatches) \
  PATCH_PRODUCT(size, flipped, kFlipped)

PATCH_PRODUCTS(128x128)
PATCH_PRODUCT(128x128, sums, kSums)
PATCH_PRODUCTS(64x128)
PATCH_PRODUCT(64x128, sums, kSums)
PATCH_PRODUCTS(64x64)
