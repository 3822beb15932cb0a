// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_attention.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

constexpr int64_t kKeys = 32;  // Of a stage.
constexpr int kThreads = 128;
constexpr int64_t kBlocks = 256;  // Enough for a device: about two for each multiprocessor.
constexpr int64_t kMostSplits = 4;

// The kernels' parameters, as in attention.cu.
struct Params {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* mask = nullptr;
  float* result = nullptr;
  HeadStrides of_q, of_k, of_v, of_mask, of_result;
  int64_t mask_column = 0;
  float scale = 1;
  int queries = 0, keys = 0;
  int depth = 0, width = 0;
  int inner = 1;
  int tiles = 0;
  int part = 0;
  int splits = 1;
  int wide = 0;
};

// Whether rows can be read 16 bytes at a time.
bool IsWide(const float* data, const HeadStrides& s) {
  return IsAligned(data, 16) && s.outer % 4 == 0 && s.inner % 4 == 0 && s.row % 4 == 0;
}

// Queries of a tile: large tiles read keys and values less often, but may be too few.
int64_t QueriesOfTile(const Attention& a) {
  if (std::max(a.depth, a.width) > 64) return 16;
  return a.outer * a.inner * Ceil(a.queries, 64) >= kBlocks ? 64 : 32;
}

// Blocks that share the keys of a tile: as many as keep a device busy, each with some keys.
int64_t SplitsOf(int64_t tiles, int64_t keys) {
  int64_t splits = 1;
  while (splits < kMostSplits && 2 * splits * tiles <= kBlocks && 2 * splits * kKeys <= keys) {
    splits *= 2;
  }
  return splits;
}

}  // namespace

void Attend(const Attention& a, const Place& place, const float* q, const float* k, const float* v,
            const float* mask, float* result) {
  const int64_t tile = QueriesOfTile(a);
  const int64_t tiles = Ceil(a.queries, tile);
  const int64_t all = a.outer * a.inner * tiles;
  if (std::min({a.outer, a.inner, a.queries, a.keys, a.depth, a.width}) < 1 ||
      std::max(a.depth, a.width) > kMostColumns || a.keys > kMostExtent - kKeys ||
      all > kMostExtent / kMostSplits) {
    throw std::invalid_argument("heads of this size, or so many, are not supported");
  }
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const int64_t splits = context.has_clusters ? SplitsOf(all, a.keys) : 1;
  Params p;
  p.q = q;
  p.k = k;
  p.v = v;
  p.mask = mask;
  p.result = result;
  p.of_q = a.q;
  p.of_k = a.k;
  p.of_v = a.v;
  p.of_mask = a.mask;
  p.of_result = a.result;
  p.mask_column = a.mask_column;
  p.scale = a.scale;
  p.queries = static_cast<int>(a.queries);
  p.keys = static_cast<int>(a.keys);
  p.depth = static_cast<int>(a.depth);
  p.width = static_cast<int>(a.width);
  p.inner = static_cast<int>(a.inner);
  p.tiles = static_cast<int>(tiles);
  p.part = static_cast<int>(Ceil(Ceil(a.keys, splits), kKeys) * kKeys);
  p.splits = static_cast<int>(splits);
  p.wide = a.depth % 4 == 0 && a.width % 4 == 0 && IsWide(q, a.q) && IsWide(k, a.k) &&
                   IsWide(v, a.v) && IsWide(result, a.result)
               ? 1
               : 0;
  const std::string name = "attention_1_" + std::to_string(tile) + "x" + std::to_string(kKeys) +
                           "_" + (tile == 16 ? "128" : "64");
  const Blocks blocks{all, splits, 1, kThreads};
  const std::string what = "kernel " + name;
  CheckDriver(LaunchKernel(context, name, blocks, place.stream, &p), what.c_str());
}

}  // namespace memc::cuda
