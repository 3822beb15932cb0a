// SPDX-License-Identifier: Apache-2.0
// The weights, transformed before minimal filtering.
#ifndef MEMC_CUDA_KERNELS_WINOGRAD_WEIGHTS_CUH_
#define MEMC_CUDA_KERNELS_WINOGRAD_WEIGHTS_CUH_

#include "winograd.cuh"

namespace {

// Where the weights of one filter and channel are; null for none.
__device__ __forceinline__ const float* WeightsOf(const Winograd& p, int filter, int channel) {
  if (filter >= p.filters || channel >= p.channels) return nullptr;
  return p.w + filter * p.filter_w + channel * p.channel_w;
}
__device__ __forceinline__ const float* WeightsOf(const WinogradVolume& p, int filter,
                                                  int channel) {
  const int tap = channel / p.tap_channels;
  const float* from =
      WeightsOf(static_cast<const Winograd&>(p), filter, channel - tap * p.tap_channels);
  return from == nullptr ? from : from + 9 * (p.flipped ? p.taps_d - 1 - tap : tap);
}

// G g G' of one filter and channel.
template <typename P>
__device__ __forceinline__ void TransformWeights(const P& p) {
  const int at = Block() * kFewWorkers + Thread();
  const int filter = at % p.padded_filters;
  const int channel = at / p.padded_filters;
  if (channel >= p.padded_channels) return;
  float g[9] = {};
  const float* from = WeightsOf(p, filter, channel);
  if (from != nullptr) {
#pragma unroll
    for (int i = 0; i < 9; ++i) g[i] = from[p.flipped ? 8 - i : i];
  }
  float rows[4][3];
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    rows[0][j] = g[j];
    rows[1][j] = 0.5f * (g[j] + g[3 + j] + g[6 + j]);
    rows[2][j] = 0.5f * (g[j] - g[3 + j] + g[6 + j]);
    rows[3][j] = g[6 + j];
  }
  float* to = p.transformed + static_cast<long long>(channel) * p.padded_filters + filter;
  const long long part = static_cast<long long>(p.padded_channels) * p.padded_filters;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[(i * 4 + 0) * part] = rows[i][0];
    to[(i * 4 + 1) * part] = 0.5f * (rows[i][0] + rows[i][1] + rows[i][2]);
    to[(i * 4 + 2) * part] = 0.5f * (rows[i][0] - rows[i][1] + rows[i][2]);
    to[(i * 4 + 3) * part] = rows[i][2];
  }
}

}  // namespace

#endif  // MEMC_CUDA_KERNELS_WINOGRAD_WEIGHTS_CUH_
