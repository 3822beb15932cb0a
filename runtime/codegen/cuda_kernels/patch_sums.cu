// SPDX-License-Identifier: Apache-2.0
// Gradients in the weights of convolutions of f32, over planes or volumes: products with patches
// whose depth is all places of all images, and whose results may be so few that the parts of the
// depth alone keep a device busy. Each row of blocks (`Matrix`) adds up some of the places in
// tables of its own, as the blocks of a cluster do in its shared memory; `patch_totals` adds up the
// tables, in their order.
//
// Named as in patch_product.cu, which has further sums over volumes.
#include "patch_threads.cuh"

namespace {
namespace patches {

using Thread32x32 = ThreadTile<32, 32, 4, 4, 3, 4>;
using Thread64x32 = ThreadTile<64, 32, 4, 2, 3, 4>;
using Thread32x64 = ThreadTile<32, 64, 4, 2, 3, 4>;
using Thread64x64 = ThreadTile<64, 64, 4, 1, 3, 4>;

}  // namespace patches
}  // namespace

PATCH_PRODUCT(32x32, sums, kSums)
PATCH_PRODUCT(64x32, sums, kSums)
PATCH_PRODUCT(32x64, sums, kSums)
PATCH_PRODUCT(64x64, sums, kSums)

extern "C" __global__ void __launch_bounds__(kThreadsOfTotals) patch_totals_2(const PatchTotals p) {
  const int at = Block() * kThreadsOfTotals + Thread();
  if (at >= p.results) return;
  float sum = 0;
#pragma unroll 8
  for (int table = 0; table < p.tables; ++table) {
    sum += p.from[static_cast<long long>(table) * p.results + at];
  }
  p.to[at] = sum;
}
