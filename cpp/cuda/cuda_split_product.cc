// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_split_product.h"

#include <algorithm>
#include <utility>

#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

constexpr int64_t kMark = 2;         // What word 8 of a choice says of these.
constexpr int64_t kLeastDepth = 32;  // Of a part.
constexpr int64_t kStartDepth = 32;  // What the first stage and the sum take as long as.
constexpr size_t kMostWays = 8;
constexpr int64_t kMultiprocessors = 128;
constexpr int64_t kMostBatch = 65535;
constexpr std::array<int64_t, 4> kSplits{1, 2, 4, 8};  // Up to what every device with clusters has.

// A tile of the result, its threads, and the depth of its stages. `effort` is the time that an
// element takes beside that of other tiles, in a guess: small tiles read more for each.
struct Tile {
  int rows, columns, threads, depth;
  double effort;
};

// As instantiated in split_product.cu.
constexpr std::array<Tile, 6> kTiles{{{32, 32, 128, 32, 2.0},
                                      {64, 32, 256, 32, 1.5},
                                      {32, 64, 256, 32, 1.5},
                                      {64, 64, 256, 32, 1.25},
                                      {128, 64, 128, 16, 1.25},
                                      {64, 128, 128, 16, 1.25}}};

// The kernels' parameters, as in split_product_tile.cuh.
struct Params {
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  const float* bias = nullptr;
  const float* residual = nullptr;
  const float* scale = nullptr;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  int m = 0, n = 0, k = 0;
  int lda = 0, ldb = 0;
  int part = 0;
  int splits = 1;
  int bias_of_rows = 0;
  int relu = 0;
  int wide_a = 0, wide_b = 0;
  Divisor positions, width, window, kernel;
  int height_x = 0, width_x = 0;
  int stride_h = 0, stride_w = 0, pad_h = 0, pad_w = 0, dilation_h = 0, dilation_w = 0;
  int64_t image_x = 0;
};

// The depth of each of `splits` parts.
int64_t PartOf(const Tile& tile, int64_t depth, int64_t splits) {
  return Ceil(Ceil(depth, splits), tile.depth) * tile.depth;
}

int64_t TilesOf(const Tile& tile, int64_t m, int64_t n, int64_t batch) {
  return Ceil(m, tile.rows) * Ceil(n, tile.columns) * batch;
}

// The ways that should be fastest, if each multiprocessor works on its blocks at one speed.
std::vector<Choice> Ways(const Context& context, int64_t m, int64_t n, int64_t k, int64_t batch) {
  if (std::min({m, n, k, batch}) < 1 || std::max({m, n, k}) > kMostExtent || batch > kMostBatch) {
    return {};
  }
  std::vector<std::pair<double, Choice>> found;
  for (size_t i = 0; i < kTiles.size(); ++i) {
    const Tile& tile = kTiles[i];
    const int64_t tiles = TilesOf(tile, m, n, batch);
    for (const int64_t splits : kSplits) {
      if (splits > 1 && (!context.has_clusters || k < splits * kLeastDepth)) break;
      if (tiles * splits > kMostExtent) break;
      const int64_t turns = Ceil(tiles * splits, kMultiprocessors);
      const double each = tile.effort * tile.rows * tile.columns;
      found.push_back({turns * each * (PartOf(tile, k, splits) + kStartDepth),
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

// Whether rows of matrices can be read 16 bytes at a time.
int IsWide(const float* data, int64_t row, int64_t matrix) {
  return IsAligned(data, 16) && row % 4 == 0 && matrix % 4 == 0 ? 1 : 0;
}

// Enqueues a kernel. `reads` names how it reads its factors.
int Launch(Context& context, const Choice& choice, const Place& place, Params& p, int64_t batch,
           const char* reads) {
  const auto number = static_cast<size_t>(choice[0]);
  if (number >= kTiles.size()) return kNoSuchKernel;
  const Tile& tile = kTiles[number];
  const std::string name = "split_product_2_" + std::to_string(tile.rows) + "x" +
                           std::to_string(tile.columns) + "_" + reads;
  p.splits = static_cast<int>(choice[1]);
  p.part = static_cast<int>(PartOf(tile, p.k, p.splits));
  const Blocks blocks{TilesOf(tile, p.m, p.n, 1), p.splits, batch, tile.threads};
  return LaunchKernel(context, name, blocks, place.stream, &p);
}

// How matrices lie in memory; the terms are not set.
Params ParamsOf(const Product& product, const float* a, const float* b, float* c) {
  Params p;
  p.a = a;
  p.b = b;
  p.c = c;
  p.m = static_cast<int>(product.m);
  p.n = static_cast<int>(product.n);
  p.k = static_cast<int>(product.k);
  p.stride_a = product.stride_a;
  p.stride_b = product.stride_b;
  p.stride_c = product.m * product.n;
  p.lda = p.k;
  p.ldb = product.transpose_b ? p.k : p.n;
  p.wide_a = IsWide(a, p.lda, p.stride_a);
  p.wide_b = IsWide(b, p.ldb, p.stride_b);
  return p;
}

// Over planes, with one group, and images whose elements 31 bits count.
bool IsPlane(const Convolution& c) {
  const int64_t image = static_cast<int64_t>(c.x[1]) * c.x[2] * c.x[3];
  return c.rank == 2 && c.group == 1 && c.type == kF32 && image <= kMostExtent;
}

// Its positions of all images, side by side.
int64_t PositionsOf(const Convolution& c) { return static_cast<int64_t>(c.y[0]) * c.y[2] * c.y[3]; }

int64_t DepthOf(const Convolution& c) { return static_cast<int64_t>(c.w[1]) * c.w[2] * c.w[3]; }

void SetTerms(const Terms& terms, bool bias_of_rows, bool relu, Params& p) {
  p.scale = terms.scale;
  p.bias = static_cast<const float*>(terms.bias);
  p.residual = static_cast<const float*>(terms.residual);
  p.bias_of_rows = bias_of_rows ? 1 : 0;
  p.relu = relu ? 1 : 0;
}

}  // namespace

bool IsSplit(const Choice& choice) { return choice[8] == kMark; }

std::vector<Choice> SplitWays(const Context& context, const Product& p) {
  if (context.own_images.empty() || p.transpose_a || p.factors != kF32) return {};
  return Ways(context, p.m, p.n, p.k, p.batch);
}

std::vector<Choice> SplitWays(const Context& context, const Convolution& c) {
  if (context.own_images.empty() || !IsPlane(c)) return {};
  if (IsPointwise(c)) return SplitWays(context, ProductOf(kForward, c));
  return Ways(context, c.y[1], PositionsOf(c), DepthOf(c), 1);
}

int RunSplit(Context& context, const Choice& choice, const Place& place, const Product& product,
             const float* a, const float* b, const Terms& terms, float* c) {
  Params p = ParamsOf(product, a, b, c);
  SetTerms(terms, false, product.relu, p);
  return Launch(context, choice, place, p, product.batch,
                product.transpose_b ? "deep_deep" : "deep_across");
}

int RunSplit(Context& context, const Choice& choice, const Place& place, const Convolution& shape,
             const float* x, const float* w, const Terms& terms, float* y) {
  if (IsPointwise(shape)) {
    const Product product = ProductOf(kForward, shape);
    Params p = ParamsOf(product, w, x, y);
    SetTerms(terms, true, shape.relu, p);
    return Launch(context, choice, place, p, product.batch, "deep_across");
  }
  Params p;
  p.a = w;
  p.b = x;
  p.c = y;
  p.m = shape.y[1];
  p.k = static_cast<int>(DepthOf(shape));
  p.lda = p.k;
  p.wide_a = IsWide(w, p.k, 0);
  SetTerms(terms, true, shape.relu, p);
  p.n = static_cast<int>(PositionsOf(shape));
  p.positions = DivisorOf(shape.y[2] * shape.y[3]);
  p.width = DivisorOf(shape.y[3]);
  p.window = DivisorOf(shape.w[2] * shape.w[3]);
  p.kernel = DivisorOf(shape.w[3]);
  p.height_x = shape.x[2];
  p.width_x = shape.x[3];
  p.stride_h = shape.strides[0];
  p.stride_w = shape.strides[1];
  p.pad_h = shape.pads[0];
  p.pad_w = shape.pads[1];
  p.dilation_h = shape.dilations[0];
  p.dilation_w = shape.dilations[1];
  p.image_x = static_cast<int64_t>(shape.x[1]) * shape.x[2] * shape.x[3];
  return Launch(context, choice, place, p, 1, "deep_patches");
}

}  // namespace memc::cuda
