// SPDX-License-Identifier: Apache-2.0
// Minimal filtering, as in winograd.cu, of volumes with kernels of any extent by 3 x 3, in steps of
// 1 along the last two axes: a slice of the result is the sum of its taps' convolutions of planes,
// as if the slices within reach were more channels. The transformed weights, 16/9 of the weights'
// bytes, lie in a workspace.
//
// `winograd_<version>_volume_weights` transforms the weights, then
// `winograd_<version>_volume_<filters>x<tiles>` computes the results. `WinogradVolume` is what
// cpp/cuda/cuda_winograd.cc gives them.
#include "winograd.cuh"
#include "winograd_filter.cuh"
#include "winograd_weights.cuh"

extern "C" __global__ void __launch_bounds__(kFewWorkers)
    winograd_3_volume_weights(const WinogradVolume p) {
  TransformWeights(p);
}

#define WINOGRAD_VOLUME(filters, tiles, channels)                      \
  extern "C" __global__ void __launch_bounds__(kWorkers, 1)            \
      winograd_3_volume_##filters##x##tiles(const WinogradVolume p) {  \
    GIVEN_FLOATS(shared, (Work<filters, tiles, channels>::kElements)); \
    Filter<Work<filters, tiles, channels>, VolumeStages>(p, shared);   \
  }

WINOGRAD_VOLUME(64, 32, 8)
WINOGRAD_VOLUME(32, 64, 4)
