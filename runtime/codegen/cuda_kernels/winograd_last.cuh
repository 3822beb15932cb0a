// SPDX-License-Identifier: Apache-2.0
// The results in whose place the transformed weights are, computed after minimal filtering.
#ifndef MEMC_CUDA_KERNELS_WINOGRAD_LAST_CUH_
#define MEMC_CUDA_KERNELS_WINOGRAD_LAST_CUH_

#include "winograd.cuh"

namespace {

// Results of the last image: a block's, so many filters at as many positions.
constexpr int kLastFilters = 4;
constexpr int kLastPositions = 64;
constexpr int kLastChannels = 32;  // Whose weights are in shared memory at a time.
constexpr int kSlices = kFewWorkers / kLastPositions;  // Of the channels, one a thread.
constexpr int kLastElements = kLastChannels * 9 * kLastFilters;
static_assert(kSlices == kLastFilters && kFewWorkers * kLastFilters <= kLastElements, "");

__device__ __forceinline__ void Last(const Winograd& p, float* shared) {
  const int across = (p.filters - p.last_filters + kLastFilters - 1) / kLastFilters;
  const int first_filter = p.last_filters + Block() % across * kLastFilters;
  const int place = Thread() % kLastPositions;
  const int slice = Thread() / kLastPositions;
  const int position = Block() / across * kLastPositions + place;
  const int row = position / p.width_y;
  const int column = position - row * p.width_y;
  const int image = p.last_tiles / p.of_image.by;
  const float* x = p.x + image * p.image_x + static_cast<long long>(row - p.pad_h) * p.width_x +
                   column - p.pad_w;
  unsigned inside = 0;
#pragma unroll
  for (int i = 0; i < 9; ++i) {
    const bool there =
        static_cast<unsigned>(row - p.pad_h + i / 3) < static_cast<unsigned>(p.height_x) &&
        static_cast<unsigned>(column - p.pad_w + i % 3) < static_cast<unsigned>(p.width_x);
    inside |= there ? 1u << i : 0u;
  }
  float sums[kLastFilters] = {};
  for (int begin = 0; begin < p.channels; begin += kLastChannels) {
    for (int i = Thread(); i < kLastElements; i += kFewWorkers) {
      const int filter = first_filter + i % kLastFilters;
      const int channel = begin + i / kLastFilters / 9;
      const int tap = i / kLastFilters % 9;
      shared[i] =
          filter < p.filters && channel < p.channels
              ? p.w[filter * p.filter_w + channel * p.channel_w + (p.flipped ? 8 - tap : tap)]
              : 0.0f;
    }
    SyncBlock();
    for (int channel = slice; channel < kLastChannels; channel += kSlices) {
      if (begin + channel >= p.channels) break;
      const float* from = x + static_cast<long long>(begin + channel) * p.height_x * p.width_x;
#pragma unroll
      for (int i = 0; i < 9; ++i) {
        const float element = (inside >> i & 1) != 0 ? from[i / 3 * p.width_x + i % 3] : 0.0f;
        const float4 weights =
            *reinterpret_cast<const float4*>(shared + (channel * 9 + i) * kLastFilters);
        sums[0] = fmaf(weights.x, element, sums[0]);
        sums[1] = fmaf(weights.y, element, sums[1]);
        sums[2] = fmaf(weights.z, element, sums[2]);
        sums[3] = fmaf(weights.w, element, sums[3]);
      }
    }
    SyncBlock();
  }
#pragma unroll
  for (int i = 0; i < kLastFilters; ++i) shared[i * kFewWorkers + Thread()] = sums[i];
  SyncBlock();
  const int filter = first_filter + slice;
  if (filter >= p.filters || row >= p.height_y) return;
  float sum = p.bias == nullptr ? 0.0f : p.bias[filter];
#pragma unroll
  for (int i = 0; i < kSlices; ++i) sum += shared[slice * kFewWorkers + i * kLastPositions + place];
  const long long plane = static_cast<long long>(p.height_y) * p.width_y;
  StoreRow(p, image * p.image_y + filter * plane + position, false, 0.0f, sum, 0.0f);
}

}  // namespace

#endif  // MEMC_CUDA_KERNELS_WINOGRAD_LAST_CUH_
