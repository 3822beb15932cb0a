// SPDX-License-Identifier: Apache-2.0
// Convolutions of f32 images with kernels of 3 x 3 in steps of 1, and their gradients in the
// images, by minimal filtering F(2x2, 3x3) (Lavin and Gray 2016, Fast Algorithms for Convolutional
// Neural Networks, section 4.1): a tile of 2 x 2 results takes 16 products for each channel,
// not 36. Images are transformed on their way to shared memory and results on their way back. Only
// the transformed weights, 16/9 of the weights' bytes, lie in memory: in a workspace, or where the
// last results will be.
//
// `winograd_<version>_weights` transforms the weights, then `winograd_<version>_<filters>x<tiles>`
// computes the results, so many filters and tiles to a block. Those in whose place the weights were
// are then computed by `winograd_<version>_last` as a sum of nine products for each channel.
// `Winograd` is what cpp/cuda/cuda_winograd.cc gives them.
#include "winograd.cuh"
#include "winograd_filter.cuh"
#include "winograd_last.cuh"
#include "winograd_weights.cuh"

extern "C" __global__ void __launch_bounds__(kFewWorkers) winograd_3_weights(const Winograd p) {
  TransformWeights(p);
}

// The version is raised when what a kernel does or takes changes: a process finds kernels of
// several versions of memc by their names.
#define WINOGRAD(filters, tiles, channels)                             \
  extern "C" __global__ void __launch_bounds__(kWorkers, 1)            \
      winograd_3_##filters##x##tiles(const Winograd p) {               \
    GIVEN_FLOATS(shared, (Work<filters, tiles, channels>::kElements)); \
    Filter<Work<filters, tiles, channels>, Stages>(p, shared);         \
  }

WINOGRAD(64, 32, 8)
WINOGRAD(32, 64, 4)

extern "C" __global__ void __launch_bounds__(kFewWorkers) winograd_3_last(const Winograd p) {
  SHARED_FLOATS(shared, kLastElements);
  Last(p, shared);
}
