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
constexpr std::array<int64_t, 2> kTurns{2, 6};  // Of all multiprocessors, by parts of few sums.
constexpr int64_t kDeep = 16;                   // Times the larger side of few sums is their depth.
constexpr int64_t kFewSums = 1 << 16;
constexpr int64_t kMostTables = 1 << 10;
constexpr int kThreadsOfTotals = 64;  // As in patch_places.cuh.

// What a tile's kernels compute: everything of factors that are rounded to TF32, or of others
// everything over volumes, and gradients in weights over planes, or these alone.
enum class Use { kRounded, kVolumes, kVolumesAndSums, kSums };

// A tile of the result, its threads and stages. `effort` is the time that an element takes beside
// that of other tiles, in a guess.
struct Tile {
  Use use;
  int rows, columns, threads, stages;
  double effort;

  bool HasSums() const { return use == Use::kVolumesAndSums || use == Use::kSums; }

  // Of a block, as `Shared` in patch_stages.cuh has it.
  unsigned SharedBytes(bool sums) const {
    const int taps = 2 * (sums ? columns : 2 * static_cast<int>(kDepth));
    const int deep = static_cast<int>(kDepth) + 4;
    const int across = columns + 8;
    const int side = sums ? columns * deep : static_cast<int>(kDepth) * across;
    return sizeof(float) * (taps + std::max(stages * (rows * deep + side), rows * across));
  }
};

// As instantiated in tensor_product.cu, then those of patch_product.cu and patch_sums.cu.
constexpr std::array<Tile, 12> kTiles{{{Use::kRounded, 128, 128, 128, 3, 1.0},
                                       {Use::kRounded, 64, 256, 128, 2, 1.0},
                                       {Use::kRounded, 256, 128, 256, 3, 1.0},
                                       {Use::kRounded, 64, 128, 128, 3, 1.2},
                                       {Use::kRounded, 64, 64, 128, 3, 1.5},
                                       {Use::kRounded, 32, 128, 128, 3, 1.6},
                                       {Use::kVolumes, 128, 128, 256, 2, 1.0},
                                       {Use::kVolumes, 64, 128, 128, 2, 1.0},
                                       {Use::kVolumesAndSums, 64, 64, 128, 3, 1.25},
                                       {Use::kSums, 32, 32, 128, 3, 1.5},
                                       {Use::kSums, 64, 32, 128, 3, 1.35},
                                       {Use::kSums, 32, 64, 128, 3, 1.35}}};

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

struct TotalsParams {
  const float* from = nullptr;
  float* to = nullptr;
  int results = 0, tables = 0;
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
  if (c.type != kF32 || c.group != 1) return false;
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

// Whether the results are few sums of many terms each.
bool IsFewSums(Kind kind, const Problem& p) {
  const int64_t m = p.Rows();
  const int64_t n = p.Columns(kind);
  return kind == kFilter && m * n <= kFewSums && p.Depth(kind) / kDeep >= std::max(m, n);
}

bool IsExactVolume(const Tile& tile, const Convolution& c) {
  return (tile.use == Use::kVolumes || tile.use == Use::kVolumesAndSums) && !c.tf32 && c.rank == 3;
}

// Whether a tile's kernel computes a convolution as it shall be. Few sums of f32 take as long as
// their terms are read, and so are none that rounding makes faster.
bool Takes(const Context& context, const Tile& tile, Kind kind, const Convolution& c) {
  if (tile.use == Use::kRounded) return c.tf32 && context.has_tf32;
  if (tile.HasSums() && IsFewSums(kind, Problem(kind, c))) return true;
  return IsExactVolume(tile, c);
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

// Bytes of the workspace that sums in so many tables take; a single one is the result itself.
size_t TableBytes(const Problem& p, int64_t tables) {
  const auto results = static_cast<size_t>(p.Rows() * p.Columns(kFilter));
  return tables == 1 ? 0 : sizeof(float) * results * static_cast<size_t>(tables);
}

// Ways with the times that they should take, if each multiprocessor works on its blocks at one
// speed.
struct Guesses {
  const Context& context;
  Problem problem;
  Kind kind;
  size_t bytes;  // Of workspace.
  std::vector<std::pair<double, Choice>> ways;

  void Add(size_t number, int64_t splits, int64_t tables) {
    const Tile& tile = kTiles[number];
    const int64_t k = problem.Depth(kind);
    const int64_t parts = splits * tables;
    const int64_t tiles = TilesOf(tile, problem.Rows(), problem.Columns(kind));
    if (splits > 1 && !context.has_clusters) return;
    if (parts > 1 && k < parts * kLeastDepth) return;
    if (PartOf(k, parts) * parts > kMostExtent - 16 * kDepth) return;
    if (tiles * splits > kMostExtent || TableBytes(problem, tables) > bytes) return;
    const int64_t turns = Ceil(tiles * parts, context.multiprocessors);
    const double each = tile.effort * tile.rows * tile.columns;
    ways.push_back(
        {static_cast<double>(turns) * each * static_cast<double>(PartOf(k, parts) + kStartDepth),
         {static_cast<int64_t>(number), splits, tables, 0, 0, 0, 0, 0, kMark}});
  }

  // Of few sums, with blocks for all multiprocessors.
  void AddTables(size_t number) {
    const Tile& tile = kTiles[number];
    const int64_t splits = context.has_clusters ? kSplits.back() : 1;
    const int64_t tiles = TilesOf(tile, problem.Rows(), problem.Columns(kind));
    int64_t before = 0;
    for (const int64_t turns : kTurns) {
      const int64_t tables = std::min(
          std::max<int64_t>(1, turns * context.multiprocessors / (tiles * splits)), kMostTables);
      if (tables != before) Add(number, splits, tables);
      before = tables;
    }
  }
};

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
  if (context.own_images.empty() || !Fits(kind, shape)) return {};
  const bool has_faster = HasFaster(kind, shape, bytes);
  Guesses found{context, Problem(kind, shape), kind, bytes, {}};
  for (size_t i = 0; i < kTiles.size(); ++i) {
    const Tile& tile = kTiles[i];
    if (!Takes(context, tile, kind, shape)) continue;
    if (tile.use == Use::kRounded && has_faster) continue;
    if (static_cast<int64_t>(tile.SharedBytes(kind == kFilter)) > context.shared_limit) continue;
    if (tile.HasSums() && IsFewSums(kind, found.problem)) found.AddTables(i);
    if (tile.use == Use::kRounded || IsExactVolume(tile, shape)) {
      for (const int64_t splits : kSplits) found.Add(i, splits, 1);
    }
  }
  std::stable_sort(found.ways.begin(), found.ways.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Choice> ways;
  for (const auto& [time, choice] : found.ways) {
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
  if (!Takes(context, tile, kind, shape)) return kNoSuchKernel;
  const Problem problem(kind, shape);
  const int64_t tables = std::max<int64_t>(1, choice[2]);
  if (TableBytes(problem, tables) > place.bytes) return kNoSuchKernel;
  Params p = ParamsOf(kind, shape, problem);
  p.a = w;
  p.b = from;
  p.c = tables == 1 ? to : static_cast<float*>(place.workspace);
  p.bias = static_cast<const float*>(terms.bias);
  p.residual = static_cast<const float*>(terms.residual);
  p.wide_a = kind == kForward && p.k % 4 == 0 && IsAligned(w, 16) ? 1 : 0;
  const int side = kind == kFilter ? p.n : p.positions.by;
  p.wide_c = side % 4 == 0 && IsAligned(p.c, 16) && IsAligned(p.residual, 16) ? 1 : 0;
  p.splits = static_cast<int>(choice[1]);
  p.part = static_cast<int>(PartOf(p.k, p.splits * tables));
  const char* reads = kind == kForward ? "patches" : kind == kData ? "flipped" : "sums";
  const std::string name = (tile.use == Use::kRounded ? "tensor_product_1_" : "patch_product_2_") +
                           std::to_string(tile.rows) + "x" + std::to_string(tile.columns) + "_" +
                           reads;
  const Blocks blocks{TilesOf(tile, p.m, p.n), p.splits, tables, tile.threads,
                      tile.SharedBytes(kind == kFilter)};
  const int status = LaunchKernel(context, name, blocks, place.stream, &p);
  if (status != 0 || tables == 1) return status;
  TotalsParams totals{p.c, to, p.m * p.n, static_cast<int>(tables)};
  const Blocks all{Ceil(totals.results, kThreadsOfTotals), 1, 1, kThreadsOfTotals};
  return LaunchKernel(context, "patch_totals_2", all, place.stream, &totals);
}

}  // namespace memc::cuda
