// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_depthwise.h"

#include <algorithm>
#include <array>
#include <string>

#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

constexpr int64_t kMark = 5;  // What word 8 of a choice says of these.
constexpr int kThreads = 256;
constexpr int kEach = 4;                // Elements of a thread.
constexpr int64_t kLeastPlaces = 1024;  // Of a block.
constexpr int64_t kBlocksOfDevice = 4;  // Of each multiprocessor, enough.
constexpr std::array<int64_t, 4> kSplits{1, 2, 4, 8};

// The kernels' parameters, as in depthwise.cu.
struct Params {
  const float* x = nullptr;
  const float* g = nullptr;
  const float* w = nullptr;
  const float* bias = nullptr;
  float* to = nullptr;
  int elements = 0;
  int images = 0, channels = 0, multiplier = 0;
  int height_x = 0, width_x = 0, height_y = 0, width_y = 0;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  Divisor of_plane, of_row, of_channels, of_multiplier;
  int splits = 1;
};

// Whether there is a kernel: of 3, 5 or 7 taps along both axes, side by side; in images, in steps
// of 1 or 2.
bool Fits(Kind kind, const Convolution& c) {
  const bool known = c.w[2] == 3 || c.w[2] == 5 || c.w[2] == 7;
  const bool steps = kind == kFilter || (c.strides[0] == c.strides[1] && c.strides[0] <= 2);
  return kind != kForward && c.type == kF32 && c.rank == 2 && c.group > 1 && c.w[1] == 1 && known &&
         c.w[2] == c.w[3] && steps && c.dilations[0] == 1 && c.dilations[1] == 1 &&
         c.pads[0] >= 0 && c.pads[1] >= 0;
}

int64_t Size(const std::array<int, 5>& shape) {
  return int64_t{shape[0]} * shape[1] * shape[2] * shape[3];
}

}  // namespace

bool IsDepthwise(const Choice& choice) { return choice[8] == kMark; }

std::vector<Choice> DepthwiseWays(const Context& context, Kind kind, const Convolution& shape) {
  const int64_t most = kMostExtent - int64_t{kThreads} * kEach * kSplits.back();
  if (context.own_images.empty() || !Fits(kind, shape) ||
      std::max({Size(shape.x), Size(shape.y), Size(shape.w)}) > most ||
      std::min(Size(shape.x), Size(shape.y)) < 1) {
    return {};
  }
  int64_t splits = 1;
  if (kind == kFilter && context.has_clusters) {
    const int64_t places = Size(shape.y) / shape.y[1];
    for (const int64_t more : kSplits) {
      if (places < more * kLeastPlaces) break;
      splits = more;
      if (more * shape.y[1] >= kBlocksOfDevice * context.multiprocessors) break;
    }
  }
  return {{0, splits, 0, 0, 0, 0, 0, 0, kMark}};
}

int RunDepthwise(Context& context, Kind kind, const Choice& choice, const Place& place,
                 const Convolution& shape, const float* x_or_w, const float* g, const float* bias,
                 float* to) {
  if (DepthwiseWays(context, kind, shape).empty()) return kNoSuchKernel;
  Params p;
  (kind == kData ? p.w : p.x) = x_or_w;
  p.g = g;
  p.bias = bias;
  p.to = to;
  p.elements = static_cast<int>(Size(shape.x));
  p.images = shape.x[0];
  p.channels = shape.x[1];
  p.multiplier = shape.y[1] / shape.x[1];
  p.height_x = shape.x[2];
  p.width_x = shape.x[3];
  p.height_y = shape.y[2];
  p.width_y = shape.y[3];
  p.stride_h = shape.strides[0];
  p.stride_w = shape.strides[1];
  p.pad_h = shape.pads[0];
  p.pad_w = shape.pads[1];
  const std::array<int, 5>& own = kind == kData ? shape.x : shape.y;
  p.of_plane = DivisorOf(own[2] * own[3]);
  p.of_row = DivisorOf(own[3]);
  p.of_channels = DivisorOf(p.channels);
  p.of_multiplier = DivisorOf(p.multiplier);
  p.splits = static_cast<int>(choice[1]);
  const std::string taps = std::to_string(shape.w[2]);
  if (kind == kData) {
    const std::string name = "depthwise_1_data_" + taps + "_" + std::to_string(p.stride_h);
    const int64_t blocks = Ceil(p.elements, int64_t{kThreads} * kEach);
    return LaunchKernel(context, name, {blocks, 1, 1, kThreads}, place.stream, &p);
  }
  return LaunchKernel(context, "depthwise_1_sums_" + taps, {shape.y[1], p.splits, 1, kThreads},
                      place.stream, &p);
}

}  // namespace memc::cuda
