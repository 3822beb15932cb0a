// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_winograd.h"

#include <algorithm>
#include <array>
#include <string>

#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

constexpr int64_t kMark = 3;    // What word 8 of a choice says of these.
constexpr int64_t kParts = 16;  // Of the transformed weights.
constexpr int kThreads = 512;
constexpr int kFewThreads = 256;  // Of the kernels that go before and after.
constexpr int64_t kAlignment = 16;
// What a block of the last results has.
constexpr int64_t kLastFilters = 4;
constexpr int64_t kLastPositions = 64;

// What a block computes, and channels of a stage, as instantiated in winograd.cu.
struct Work {
  int64_t filters, tiles, channels;

  // Two stages.
  constexpr int64_t SharedBytes() const {
    return int64_t{2 * sizeof(float)} * kParts * channels * (filters + tiles);
  }
};

constexpr std::array<Work, 2> kWorks{{{64, 32, 8}, {32, 64, 4}}};

// The kernels' parameters, as in winograd.cu.
struct Params {
  const float* x = nullptr;
  const float* w = nullptr;
  float* transformed = nullptr;
  const float* bias = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
  int filters = 0, channels = 0;
  int padded_filters = 0, padded_channels = 0;
  int64_t filter_w = 0, channel_w = 0;
  int flipped = 0;
  int height_x = 0, width_x = 0, height_y = 0, width_y = 0;
  int pad_h = 0, pad_w = 0;
  int64_t image_x = 0, image_y = 0;
  int tiles = 0;
  int last_tiles = 0;
  int last_filters = 0;
  Divisor of_image, of_row;
  int pairs_x = 0, pairs_y = 0;
  int relu = 0;
};

// Those of kernels of volumes.
struct VolumeParams {
  Params plane;
  int taps_d = 1;
  int tap_channels = 0;
  int depth_x = 1;
  int stride_d = 1, pad_d = 0, dilation_d = 1;
  Divisor depth_y;
};

// A convolution that a gradient in images is, too. One of volumes is one of the slices of the
// result, with the channels of all taps along the first axis.
struct Problem {
  int64_t images, channels, filters;
  int height_x, width_x, height_y, width_y;
  int pad_h, pad_w;
  int taps_d = 1, depth_x = 1, depth_y = 1;
  int stride_d = 1, pad_d = 0, dilation_d = 1;

  Problem(Kind kind, const Convolution& c) : images(c.x[0]) {
    const bool forward = kind == kForward;
    const std::array<int, 5>& from = forward ? c.x : c.y;
    const std::array<int, 5>& to = forward ? c.y : c.x;
    const int last = c.rank - 2;  // The first of the last two axes.
    channels = from[1];
    height_x = from[last + 2];
    width_x = from[last + 3];
    filters = to[1];
    height_y = to[last + 2];
    width_y = to[last + 3];
    pad_h = forward ? c.pads[last] : 2 - c.pads[last];
    pad_w = forward ? c.pads[last + 1] : 2 - c.pads[last + 1];
    if (c.rank != 3) return;
    taps_d = c.w[2];
    depth_x = from[2];
    depth_y = to[2];
    stride_d = c.strides[0];
    dilation_d = c.dilations[0];
    pad_d = forward ? c.pads[0] : dilation_d * (taps_d - 1) - c.pads[0];
    images *= depth_y;
  }

  // Of one tap, and of all.
  int64_t TapChannels(const Work& work) const {
    return Ceil(channels, work.channels) * work.channels;
  }
  int64_t Channels(const Work& work) const { return taps_d * TapChannels(work); }
  int64_t Filters(const Work& work) const { return Ceil(filters, work.filters) * work.filters; }
  int64_t Tiles() const { return images * Ceil(height_y, 2) * Ceil(width_y, 2); }
  size_t Workspace(const Work& work) const {
    return sizeof(float) * kParts * Channels(work) * Filters(work);
  }
  // The filters of one image whose results take as many bytes as the transformed weights, wherever
  // those begin at a multiple of kAlignment.
  int64_t FiltersOfWorkspace(const Work& work) const {
    const int64_t plane = int64_t{sizeof(float)} * height_y * width_y;
    return Ceil(static_cast<int64_t>(Workspace(work)) + kAlignment, plane);
  }
};

// Whether it is in one group, with a kernel of 3 x 3 in steps of 1 along the last two axes; in the
// gradient in images of volumes, in steps of 1 along the first one, too.
bool Fits(Kind kind, const Convolution& c) {
  bool fits = c.group == 1 && c.type == kF32;
  if (c.rank == 3) {
    fits = fits && !c.tf32 && (kind == kForward || c.strides[0] == 1) &&
           int64_t{c.x[0]} * std::max(c.x[2], c.y[2]) <= kMostExtent;
  }
  for (int i = c.rank - 2; i < c.rank; ++i) {
    fits = fits && c.w[2 + i] == 3 && c.strides[i] == 1 && c.dilations[i] == 1 && c.pads[i] <= 2;
  }
  return fits;
}

// Whether the transformed weights lie where the last results will be, in place of a workspace.
bool IsInResult(const Choice& choice) { return choice[1] != 0; }

// What the kernels are given, but for where the transformed weights are. `last`: how many filters
// of the last image are computed in the end.
Params ParamsOf(Kind kind, const Convolution& shape, const Problem& problem, const Work& work,
                int64_t last, const float* from, const float* w, const Terms& terms, float* to) {
  Params p;
  p.x = from;
  p.w = w;
  p.bias = static_cast<const float*>(terms.bias);
  p.residual = static_cast<const float*>(terms.residual);
  p.y = to;
  p.filters = static_cast<int>(problem.filters);
  p.channels = static_cast<int>(problem.channels);
  p.padded_filters = static_cast<int>(problem.Filters(work));
  p.padded_channels = static_cast<int>(problem.Channels(work));
  const int64_t inner = int64_t{9} * problem.taps_d;
  const int64_t outer = inner * shape.w[1];
  p.flipped = kind == kForward ? 0 : 1;
  p.filter_w = kind == kForward ? outer : inner;
  p.channel_w = kind == kForward ? inner : outer;
  p.height_x = problem.height_x;
  p.width_x = problem.width_x;
  p.height_y = problem.height_y;
  p.width_y = problem.width_y;
  p.pad_h = problem.pad_h;
  p.pad_w = problem.pad_w;
  p.image_x = problem.channels * problem.depth_x * problem.height_x * problem.width_x;
  p.image_y = problem.filters * problem.depth_y * problem.height_y * problem.width_y;
  p.tiles = static_cast<int>(problem.Tiles());
  p.last_tiles = static_cast<int>(problem.Tiles() / problem.images * (problem.images - 1));
  p.last_filters = static_cast<int>(problem.filters - last);
  p.of_row = DivisorOf(static_cast<int>(Ceil(problem.width_y, 2)));
  p.of_image = DivisorOf(static_cast<int>(problem.Tiles() / problem.images));
  p.pairs_x = problem.width_x % 2 == 0 && problem.pad_w == 1 && IsAligned(from, 8) ? 1 : 0;
  p.pairs_y = problem.width_y % 2 == 0 && IsAligned(to, 8) ? 1 : 0;
  p.relu = kind == kForward && shape.relu ? 1 : 0;
  return p;
}

VolumeParams VolumeOf(const Problem& problem, const Work& work, const Params& plane) {
  VolumeParams p;
  p.plane = plane;
  p.taps_d = problem.taps_d;
  p.tap_channels = static_cast<int>(problem.TapChannels(work));
  p.depth_x = problem.depth_x;
  p.stride_d = problem.stride_d;
  p.pad_d = problem.pad_d;
  p.dilation_d = problem.dilation_d;
  p.depth_y = DivisorOf(problem.depth_y);
  return p;
}

}  // namespace

bool IsWinograd(const Choice& choice) { return choice[8] == kMark; }

std::vector<Choice> WinogradWays(const Context& context, Kind kind, const Convolution& shape,
                                 size_t bytes, bool is_residual) {
  if (context.own_images.empty() || !Fits(kind, shape)) return {};
  const Problem problem(kind, shape);
  std::vector<Choice> ways;
  for (size_t i = 0; i < kWorks.size(); ++i) {
    const Work& work = kWorks[i];
    if (work.SharedBytes() > context.shared_limit) continue;
    const int64_t filters = problem.Filters(work);
    const int64_t blocks = Ceil(problem.Tiles(), work.tiles) * (filters / work.filters);
    const int64_t counted = std::max(blocks, filters * problem.Channels(work));
    if (counted > kMostExtent) continue;
    const bool fits = problem.Workspace(work) <= bytes;
    const int64_t last = problem.FiltersOfWorkspace(work);
    if (!fits && (shape.rank == 3 || is_residual || last > problem.filters)) continue;
    ways.push_back({static_cast<int64_t>(i), fits ? 0 : 1, 0, 0, 0, 0, 0, 0, kMark});
  }
  return ways;
}

int RunWinograd(Context& context, Kind kind, const Choice& choice, const Place& place,
                const Convolution& shape, const float* from, const float* w, const Terms& terms,
                float* to) {
  const auto number = static_cast<size_t>(choice[0]);
  if (number >= kWorks.size() || !Fits(kind, shape)) return kNoSuchKernel;
  const Work& work = kWorks[number];
  const Problem problem(kind, shape);
  const bool in_result = IsInResult(choice);
  const int64_t last = in_result ? problem.FiltersOfWorkspace(work) : 0;
  Params p = ParamsOf(kind, shape, problem, work, last, from, w, terms, to);
  if (in_result) {
    if (shape.rank == 3 || terms.residual == to || last > problem.filters) return kNoSuchKernel;
    const float* end = to + problem.images * problem.filters * problem.height_y * problem.width_y;
    const auto begin = reinterpret_cast<uintptr_t>(end) - problem.Workspace(work);
    p.transformed = reinterpret_cast<float*>(begin / kAlignment * kAlignment);
  } else {
    if (problem.Workspace(work) > place.bytes || !IsAligned(place.workspace, kAlignment)) {
      return kNoSuchKernel;
    }
    p.transformed = static_cast<float*>(place.workspace);
  }
  VolumeParams volume = VolumeOf(problem, work, p);
  void* const params = shape.rank == 3 ? static_cast<void*>(&volume) : &p;
  const std::string kernels = shape.rank == 3 ? "winograd_3_volume_" : "winograd_3_";
  const int64_t transforms = Ceil(int64_t{p.padded_filters} * p.padded_channels, kFewThreads);
  int status = LaunchKernel(context, kernels + "weights", {transforms, 1, 1, kFewThreads},
                            place.stream, params);
  if (status != 0) return status;
  const std::string name =
      kernels + std::to_string(work.filters) + "x" + std::to_string(work.tiles);
  // Each works on tiles until there are no more: a multiprocessor has room for one.
  const int64_t blocks = std::min<int64_t>(
      context.multiprocessors, Ceil(p.tiles, work.tiles) * (p.padded_filters / work.filters));
  status = LaunchKernel(context, name,
                        {blocks, 1, 1, kThreads, static_cast<unsigned>(work.SharedBytes())},
                        place.stream, params);
  if (status != 0 || !in_result) return status;
  const int64_t results = int64_t{problem.height_y} * problem.width_y;
  const int64_t parts = Ceil(results, kLastPositions) * Ceil(last, kLastFilters);
  return LaunchKernel(context, "winograd_3_last", {parts, 1, 1, kFewThreads}, place.stream, &p);
}

}  // namespace memc::cuda
