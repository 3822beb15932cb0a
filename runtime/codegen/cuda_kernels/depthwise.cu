// SPDX-License-Identifier: Apache-2.0
// Gradients of depthwise convolutions of f32 over planes, whose every group has one channel of
// images and some filters: few products for each element, and no workspace. In images, a thread
// adds up an element's taps. In weights, the blocks of a cluster share the places of one filter;
// each thread adds up all taps of its places, and the threads' sums are added up in one order.
//
// The kernels are `depthwise_<version>_data_<taps>_<step>` and `depthwise_<version>_sums_<taps>`;
// `Depthwise` is what cpp/cuda/cuda_depthwise.cc gives them.
#include "divisor.cuh"
#include "primitives.cuh"

namespace {

struct Depthwise {
  const float* x;  // Images.
  const float* g;  // The gradient of the results.
  const float* w;
  const float* bias;  // Of the gradient in images; null for none.
  float* to;
  int elements;  // Of the gradient in images.
  int images, channels, multiplier;
  int height_x, width_x, height_y, width_y;
  int stride_h, stride_w, pad_h, pad_w;
  Divisor of_plane, of_row, of_channels, of_multiplier;  // Of what threads work on.
  int splits;                                            // Blocks of a filter.
};

namespace depthwise {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // Elements of a thread.

// Taps of kTaps x kTaps in steps of kStep, for each element of the images.
template <int kTaps, int kStep>
__device__ __forceinline__ void Data(const Depthwise& p) {
  constexpr int kMost = (kTaps + kStep - 1) / kStep;  // Along an axis for one element.
#pragma unroll 1
  for (int each = 0; each < kEach; ++each) {
    const int at = (Block() * kEach + each) * kThreads + Thread();
    if (at >= p.elements) return;
    const int plane = Quotient(at, p.of_plane);
    const int position = at - plane * p.of_plane.by;
    const int image = Quotient(plane, p.of_channels);
    const int channel = plane - image * p.channels;
    const int y = Quotient(position, p.of_row);
    const int down = y + p.pad_h;
    const int across = position - y * p.width_x + p.pad_w;
    const int first_row = down % kStep;
    const int first_column = across % kStep;
    const int bottom = down / kStep;
    const int right = across / kStep;
    float sum = p.bias == nullptr ? 0.0f : p.bias[channel];
    for (int filter = channel * p.multiplier; filter < (channel + 1) * p.multiplier; ++filter) {
      const float* w = p.w + filter * kTaps * kTaps + first_row * kTaps + first_column;
      const float* g = p.g + static_cast<long long>(image * p.channels * p.multiplier + filter) *
                                 p.height_y * p.width_y;
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        const int row = bottom - i;
        const bool has = first_row + i * kStep < kTaps &&
                         static_cast<unsigned>(row) < static_cast<unsigned>(p.height_y);
#pragma unroll
        for (int j = 0; j < kMost; ++j) {
          const int column = right - j;
          if (has && first_column + j * kStep < kTaps &&
              static_cast<unsigned>(column) < static_cast<unsigned>(p.width_y)) {
            sum = fmaf(g[row * p.width_y + column], w[i * kStep * kTaps + j * kStep], sum);
          }
        }
      }
    }
    p.to[at] = sum;
  }
}

// Sums over the places of a filter, which the threads of `splits` blocks have one after the other.
template <int kTaps>
__device__ __forceinline__ void Sums(const Depthwise& p, float* shared) {
  constexpr int kWarps = kThreads / 32;
  constexpr int kAll = kTaps * kTaps;
  const int filter = Block() / p.splits;
  const int rank = Block() - filter * p.splits;
  const int channel = Quotient(filter, p.of_multiplier);
  const int filters = p.channels * p.multiplier;
  const int places = p.images * p.of_plane.by;
  float sums[kAll] = {};
#pragma unroll 1
  for (int at = rank * kThreads + Thread(); at < places; at += p.splits * kThreads) {
    const int image = Quotient(at, p.of_plane);
    const int position = at - image * p.of_plane.by;
    const int y = Quotient(position, p.of_row);
    const int top = y * p.stride_h - p.pad_h;
    const int left = (position - y * p.of_row.by) * p.stride_w - p.pad_w;
    const float g =
        p.g[static_cast<long long>(image * filters + filter) * p.of_plane.by + position];
    const float* x =
        p.x +
        (static_cast<long long>(image * p.channels + channel) * p.height_x + top) * p.width_x +
        left;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      const bool has = static_cast<unsigned>(top + i) < static_cast<unsigned>(p.height_x);
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        if (has && static_cast<unsigned>(left + j) < static_cast<unsigned>(p.width_x)) {
          sums[i * kTaps + j] = fmaf(g, x[i * p.width_x + j], sums[i * kTaps + j]);
        }
      }
    }
  }
  const int lane = Thread() % 32;
#pragma unroll
  for (int i = 0; i < kAll; ++i) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sums[i] += Exchange(sums[i], mask);
    if (lane == 0) shared[Thread() / 32 * kAll + i] = sums[i];
  }
  SyncBlock();
  float* total = shared + kWarps * kAll;
  if (Thread() < kAll) {
    float sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += shared[i * kAll + Thread()];
    total[Thread()] = sum;
  }
  SyncCluster();
  if (rank == 0 && Thread() < kAll) {
    float sum = 0;
    for (int other = 0; other < p.splits; ++other) sum += ReadOne(total + Thread(), other);
    p.to[filter * kAll + Thread()] = sum;
  }
  SyncCluster();  // Until all have been read, no block's memory may go.
}

}  // namespace depthwise
}  // namespace

#define DEPTHWISE_DATA(taps, step)                                  \
  extern "C" __global__ void __launch_bounds__(depthwise::kThreads) \
      depthwise_1_data_##taps##_##step(const Depthwise p) {         \
    depthwise::Data<taps, step>(p);                                 \
  }

#define DEPTHWISE_SUMS(taps)                                               \
  extern "C" __global__ void __launch_bounds__(depthwise::kThreads)        \
      depthwise_1_sums_##taps(const Depthwise p) {                         \
    SHARED_FLOATS(shared, ((depthwise::kThreads / 32 + 1) * taps * taps)); \
    depthwise::Sums<taps>(p, shared);                                      \
  }

DEPTHWISE_DATA(3, 1)
DEPTHWISE_DATA(3, 2)
DEPTHWISE_DATA(5, 1)
DEPTHWISE_DATA(5, 2)
DEPTHWISE_DATA(7, 1)
DEPTHWISE_DATA(7, 2)
DEPTHWISE_SUMS(3)
DEPTHWISE_SUMS(5)
DEPTHWISE_SUMS(7)
