// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_patches.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

constexpr int64_t kMark = 4;         // What word 8 of a choice says of these.
constexpr int64_t kDepth = 32;       // Of a stage, as in patch_stages.cuh.
constexpr int64_t kLeastDepth = 64;  // Of a part.
constexpr int64_t kStartDepth = 96;  // What the first stages and the end take as long as.
constexpr size_t kMostWays = 8;
constexpr int64_t kFewChannels = 8;
constexpr int64_t kManyProducts = 1500000000;
constexpr int kMostSteps = 31;  // Along all axes of a kernel, each a bit of a tap.
constexpr std::array<int64_t, 4> kSplits{1, 2, 4, 8};

// A tile of the result, whether factors are rounded to TF32, its threads and stages. `effort` is
// the time that an element takes beside that of other tiles, in a guess.
struct Tile {
  bool rounds;
  int rows, columns, threads, stages;
  double effort;

  // Of a block, as `Shared` in patch_stages.cuh has it.
  unsigned SharedBytes(bool sums) const {
    const int taps = 2 * (sums ? columns : 2 * static_cast<int>(kDepth));
    const int deep = static_cast<int>(kDepth) + 4;
    const int across = columns + 8;
    const int side = sums ? columns * deep : static_cast<int>(kDepth) * across;
    return sizeof(float) * (taps + std::max(stages * (rows * deep + side), rows * across));
  }
};

// As instantiated in tensor_product.cu, then those of patch_product.cu.
constexpr std::array<Tile, 9> kTiles{{{true, 128, 128, 128, 3, 1.0},
                                      {true, 64, 256, 128, 2, 1.0},
                                      {true, 256, 128, 256, 3, 1.0},
                                      {true, 64, 128, 128, 3, 1.2},
                                      {true, 64, 64, 128, 3, 1.5},
                                      {true, 32, 128, 128, 3, 1.6},
                                      {false, 128, 128, 256, 2, 1.0},
                                      {false, 64, 128, 128, 2, 1.0},
                                      {false, 64, 64, 128, 3, 1.25}}};

// The kernels' parameters, as in patch_places.cuh.
struct Params {
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  const float* bias = nullptr;
  const float* residual = nullptr;
  int m = 0, n = 0, k = 0;
  int part = 0;
  int splits = 1;
  int relu = 0;
  int wide_a = 0, wide_c = 0;
  Divisor positions, plane, row;
  Divisor window, face, line;
  int taps_d = 1, taps_h = 1, taps_w = 1;
  int depth_x = 1, height_x = 1, width_x = 1;
  int stride_d = 1, stride_h = 1, stride_w = 1, pad_d = 0, pad_h = 0, pad_w = 0;
  int dilation_d = 1, dilation_h = 1, dilation_w = 1;
  int64_t image_x = 0;
  int64_t image_a = 0;
  int channel_a = 0;
};

// Three axes of what may have two.
using Axes = std::array<int, 3>;

Axes AxesOf(const int* given, int rank, int missing) {
  return rank == 3 ? Axes{given[0], given[1], given[2]} : Axes{missing, given[0], given[1]};
}

int64_t Product3(const Axes& a) { return int64_t{a[0]} * a[1] * a[2]; }

// A convolution of images with a kernel, as a gradient in images is, too: `from` are the images
// that are read, `to` where the kernel's places are.
struct Problem {
  Axes from, to, kernel, strides, pads, dilations;
  int64_t images, channels, filters;

  Problem(Kind kind, const Convolution& c)
      : from(AxesOf(c.x.data() + 2, c.rank, 1)),
        to(AxesOf(c.y.data() + 2, c.rank, 1)),
        kernel(AxesOf(c.w.data() + 2, c.rank, 1)),
        strides(AxesOf(c.strides.data(), c.rank, 1)),
        pads(AxesOf(c.pads.data(), c.rank, 0)),
        dilations(AxesOf(c.dilations.data(), c.rank, 1)),
        images(c.x[0]),
        channels(c.x[1]),
        filters(c.y[1]) {
    if (kind != kData) return;
    std::swap(from, to);
    std::swap(channels, filters);
    for (int i = 0; i < 3; ++i) pads[i] = dilations[i] * (kernel[i] - 1) - pads[i];
  }

  int64_t Places() const { return images * Product3(to); }
  int64_t Taps() const { return channels * Product3(kernel); }
  int64_t Rows() const { return filters; }
  int64_t Columns(Kind kind) const { return kind == kFilter ? Taps() : Places(); }
  int64_t Depth(Kind kind) const { return kind == kFilter ? Places() : Taps(); }
};

// Whether the kernels count all of it. A gradient in images is a convolution where steps are 1.
bool Fits(Kind kind, const Convolution& c) {
  if (c.type != kF32 || c.group != 1 || (!c.tf32 && c.rank != 3)) return false;
  const Problem p(kind, c);
  const int64_t image = p.channels * Product3(p.from);
  const int64_t read = kind == kFilter ? image * p.images : image;
  const int64_t weights = p.filters * p.Taps();
  if (std::min({p.Rows(), p.Places(), p.Taps()}) < 1) return false;
  // Depths are counted a few stages beyond their end.
  if (std::max({p.Places(), read, weights}) > kMostExtent - 16 * kDepth) return false;
  if (kind == kData && c.strides != std::array<int, 3>{1, 1, c.rank == 3 ? 1 : c.strides[2]}) {
    return false;
  }
  return p.kernel[0] + p.kernel[1] + p.kernel[2] <= kMostSteps;
}

// Whether a tile's kernel computes a convolution as it shall be.
bool Takes(const Context& context, const Tile& tile, const Convolution& c) {
  return tile.rounds == c.tf32 && (context.has_tf32 || !tile.rounds);
}

// Whether the libraries are faster on tensor cores, measured: cuDNN where copies of all tensors
// with the channels last fit so many bytes, unless it pads few channels, and cuBLASLt for small
// products of single taps. Not left to the measurement of ways, whose kernels are not one: a slow
// host would make them seem slow.
bool HasFaster(Kind kind, const Convolution& c, size_t bytes) {
  if (!c.tf32) return false;
  const Problem p(kind, c);
  if (IsPointwise(c)) return p.filters * p.Taps() * p.Places() < kManyProducts;
  const int64_t images = p.images * (p.channels * Product3(p.from) + p.filters * Product3(p.to));
  const auto copies = sizeof(float) * static_cast<size_t>(images + p.filters * p.Taps());
  return p.channels >= kFewChannels && copies <= bytes;
}

// The depth of each of `splits` parts.
int64_t PartOf(int64_t depth, int64_t splits) { return Ceil(Ceil(depth, splits), kDepth) * kDepth; }

int64_t TilesOf(const Tile& tile, int64_t m, int64_t n) {
  return Ceil(m, tile.rows) * Ceil(n, tile.columns);
}

Params ParamsOf(Kind kind, const Convolution& shape, const Problem& problem) {
  Params p;
  p.m = static_cast<int>(problem.Rows());
  p.n = static_cast<int>(problem.Columns(kind));
  p.k = static_cast<int>(problem.Depth(kind));
  p.relu = kind == kForward && shape.relu ? 1 : 0;
  const auto of = [](int64_t n) { return DivisorOf(static_cast<int>(n)); };
  p.positions = of(Product3(problem.to));
  p.plane = of(int64_t{problem.to[1]} * problem.to[2]);
  p.row = of(problem.to[2]);
  p.window = of(Product3(problem.kernel));
  p.face = of(int64_t{problem.kernel[1]} * problem.kernel[2]);
  p.line = of(problem.kernel[2]);
  const auto set = [](const Axes& axes, int& d, int& h, int& w) {
    d = axes[0];
    h = axes[1];
    w = axes[2];
  };
  set(problem.kernel, p.taps_d, p.taps_h, p.taps_w);
  set(problem.from, p.depth_x, p.height_x, p.width_x);
  set(problem.strides, p.stride_d, p.stride_h, p.stride_w);
  set(problem.pads, p.pad_d, p.pad_h, p.pad_w);
  set(problem.dilations, p.dilation_d, p.dilation_h, p.dilation_w);
  p.image_x = problem.channels * Product3(problem.from);
  p.image_a = problem.filters * Product3(problem.to);
  p.channel_a = static_cast<int>(problem.filters * Product3(problem.kernel));
  return p;
}

}  // namespace

bool IsPatches(const Choice& choice) { return choice[8] == kMark; }

std::vector<Choice> PatchWays(const Context& context, Kind kind, const Convolution& shape,
                              size_t bytes) {
  if (context.own_images.empty() || !Fits(kind, shape) || HasFaster(kind, shape, bytes)) return {};
  const Problem problem(kind, shape);
  const int64_t m = problem.Rows();
  const int64_t n = problem.Columns(kind);
  const int64_t k = problem.Depth(kind);
  std::vector<std::pair<double, Choice>> found;
  for (size_t i = 0; i < kTiles.size(); ++i) {
    const Tile& tile = kTiles[i];
    if (!Takes(context, tile, shape)) continue;
    if (static_cast<int64_t>(tile.SharedBytes(kind == kFilter)) > context.shared_limit) continue;
    const int64_t tiles = TilesOf(tile, m, n);
    for (const int64_t splits : kSplits) {
      if (splits > 1 && (!context.has_clusters || k < splits * kLeastDepth)) break;
      if (tiles * splits > kMostExtent) break;
      const int64_t turns = Ceil(tiles * splits, context.multiprocessors);
      const double each = tile.effort * tile.rows * tile.columns;
      found.push_back(
          {static_cast<double>(turns) * each * static_cast<double>(PartOf(k, splits) + kStartDepth),
           {static_cast<int64_t>(i), splits, 0, 0, 0, 0, 0, 0, kMark}});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Choice> ways;
  for (const auto& [time, choice] : found) {
    if (ways.size() < kMostWays) ways.push_back(choice);
  }
  return ways;
}

int RunPatches(Context& context, Kind kind, const Choice& choice, const Place& place,
               const Convolution& shape, const float* from, const float* w, const Terms& terms,
               float* to) {
  const auto number = static_cast<size_t>(choice[0]);
  if (number >= kTiles.size() || !Fits(kind, shape)) return kNoSuchKernel;
  const Tile& tile = kTiles[number];
  if (!Takes(context, tile, shape)) return kNoSuchKernel;
  const Problem problem(kind, shape);
  Params p = ParamsOf(kind, shape, problem);
  p.a = w;
  p.b = from;
  p.c = to;
  p.bias = static_cast<const float*>(terms.bias);
  p.residual = static_cast<const float*>(terms.residual);
  p.wide_a = kind == kForward && p.k % 4 == 0 && IsAligned(w, 16) ? 1 : 0;
  const int side = kind == kFilter ? p.n : p.positions.by;
  p.wide_c = side % 4 == 0 && IsAligned(to, 16) && IsAligned(p.residual, 16) ? 1 : 0;
  p.splits = static_cast<int>(choice[1]);
  p.part = static_cast<int>(PartOf(p.k, p.splits));
  const char* reads = kind == kForward ? "patches" : kind == kData ? "flipped" : "sums";
  const std::string name = (tile.rounds ? "tensor_product_1_" : "patch_product_1_") +
                           std::to_string(tile.rows) + "x" + std::to_string(tile.columns) + "_" +
                           reads;
  const Blocks blocks{TilesOf(tile, p.m, p.n), p.splits, 1, tile.threads,
                      tile.SharedBytes(kind == kFilter)};
  return LaunchKernel(context, name, blocks, place.stream, &p);
}

}  // namespace memc::cuda
