// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_attention_training.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda_fused_attention.h"
#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

// The kernels' parameters, as in attention_rows.cuh.
struct Params {
  const void* q;
  const void* k;
  const void* v;
  const void* mask;
  const void* g;
  const float* share;
  void* result;
  float* log_sum;
  void* of_q;
  void* of_k;
  void* of_v;
  HeadStrides of_queries, of_keys, of_values, of_mask, of_result, of_rows;
  int64_t mask_column;
  float scale;
  int diagonal;
  int masked;
  int queries, keys;
  int depth, width;
  int outer, inner;
  int outer_share, inner_share;
  int tiles;
  int stages;
  int wide;
};

int64_t BytesOf(Element type) { return type == kF32 ? 4 : 2; }

// The columns that the kernels for these heads have room for.
int64_t WidthOf(const TrainingShape& s) {
  const int64_t columns = std::max(s.depth, s.width);
  return columns <= 64 ? 64 : columns <= 96 ? 96 : columns <= 128 ? 128 : kMostTrainingColumns;
}

// One of the kernels, as attention_training.cuh has it: rows of a warp in sixteens, rows of a tile
// that it walks over, and warps of a block at most; matrices of own rows; and words for each row of
// a tile, beside two matrices.
struct Pass {
  const char* name;
  int64_t sixteens, tile, warps, matrices, numbers;
};

Pass ForwardPass(int64_t bytes, int64_t width) {
  if (bytes == 4) return {"forward", 1, width <= 64 ? 64 : 32, 4, 1, 0};
  if (width <= 128) return {"forward", 2, 64, 4, 1, 0};
  return {"forward", 1, 32, 4, 1, 0};
}

Pass BackwardPass(const char* name, int64_t numbers, int64_t bytes, int64_t width) {
  if (bytes == 4) return {name, 1, 32, 4, 2, numbers};
  if (width <= 64) return {name, 2, 64, 4, 2, numbers};
  if (width <= 128) return {name, 1, 64, 8, 2, numbers};
  return {name, 1, 32, 4, 2, numbers};
}

// How a pass is launched.
struct Launch {
  int64_t warps, stages, bytes;
};

// With as much of the block's shared memory as there is: two stages if that goes, and fewer warps
// only where one stage needs too much, or there are few rows.
Launch LaunchOf(const Pass& pass, int64_t row_bytes, int64_t rows, int64_t limit) {
  const auto needed = [&](int64_t warps, int64_t stages) {
    return warps * 16 * pass.sixteens * pass.matrices * row_bytes +
           stages * pass.tile * (2 * row_bytes + 4 * pass.numbers);
  };
  int64_t warps = pass.warps;
  while (warps > 1 && warps / 2 * 16 * pass.sixteens >= rows) warps /= 2;
  for (; warps > 0; warps /= 2) {
    for (const int64_t stages : {2, 1}) {
      if (needed(warps, stages) <= limit) return {warps, stages, needed(warps, stages)};
    }
  }
  throw std::invalid_argument("heads of so many columns need more shared memory than a block has");
}

bool IsWide(const void* data, const HeadStrides& s, int64_t elements) {
  return data == nullptr || (IsAligned(data, 16) && s.outer % elements == 0 &&
                             s.inner % elements == 0 && s.row % elements == 0);
}

bool AreWide(const TrainingShape& s, const TrainingData& d) {
  const int64_t elements = 16 / BytesOf(s.type);
  return s.depth % elements == 0 && s.width % elements == 0 && IsWide(d.q, s.q, elements) &&
         IsWide(d.k, s.k, elements) && IsWide(d.v, s.v, elements) &&
         IsWide(d.g, s.result, elements) && IsWide(d.result, s.result, elements) &&
         IsWide(d.of_q, s.q, elements) && IsWide(d.of_k, s.k, elements) &&
         IsWide(d.of_v, s.v, elements);
}

Params ParamsOf(const TrainingShape& s, const TrainingData& d) {
  Params p{};
  p.q = d.q;
  p.k = d.k;
  p.v = d.v;
  p.mask = d.mask;
  p.g = d.g;
  p.share = d.share;
  p.result = d.result;
  p.log_sum = d.log_sum;
  p.of_q = d.of_q;
  p.of_k = d.of_k;
  p.of_v = d.of_v;
  p.of_queries = s.q;
  p.of_keys = s.k;
  p.of_values = s.v;
  p.of_mask = s.mask;
  p.of_result = s.result;
  p.of_rows = s.rows;
  p.mask_column = s.mask_column;
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };
  p.scale = s.scale;
  p.diagonal = narrow(std::min(std::max(s.diagonal, -s.queries), s.keys));
  p.masked = static_cast<int>(s.masked);
  p.queries = narrow(s.queries);
  p.keys = narrow(s.keys);
  p.depth = narrow(s.depth);
  p.width = narrow(s.width);
  p.outer = narrow(s.outer);
  p.inner = narrow(s.inner);
  p.outer_share = narrow(s.outer_share);
  p.inner_share = narrow(s.inner_share);
  p.wide = AreWide(s, d) ? 1 : 0;
  return p;
}

void RequireFitting(const TrainingShape& s) {
  const int64_t least = std::min(
      {s.outer, s.inner, s.queries, s.keys, s.depth, s.width, s.outer_share, s.inner_share});
  const int64_t most = std::max({s.queries, s.keys, s.outer, s.inner});
  // Counts of queries and keys are added in the kernels.
  if (least < 1 || std::max(s.depth, s.width) > kMostTrainingColumns || most > kMostExtent / 4 ||
      s.outer * s.inner > kMostExtent / Ceil(std::max(s.queries, s.keys), 16)) {
    throw std::invalid_argument("heads of this size, or so many, are not supported");
  }
}

std::string TypeName(const TrainingShape& s) {
  const std::string masked = s.masked == Masked::kNone ? "" : "masked_";
  if (s.type == kF16) return masked + "f16";
  if (s.type == kBf16) return masked + "bf16";
  return masked + (s.tf32 ? "tf32" : "f32");
}

// Launches a pass over `heads` heads of `rows` rows; with the context's mutex held.
void Run(Context& context, const TrainingShape& s, const Place& place, const Pass& pass, Params p,
         int64_t heads, int64_t rows, int64_t batch) {
  const int64_t width = WidthOf(s);
  const Launch launch = LaunchOf(pass, width * BytesOf(s.type) + 16, rows, context.shared_limit);
  p.tiles = static_cast<int>(Ceil(rows, launch.warps * 16 * pass.sixteens));
  p.stages = static_cast<int>(launch.stages);
  const std::string name =
      std::string(pass.name) + "_attention_1_" + TypeName(s) + "_" + std::to_string(width);
  Blocks blocks;
  blocks.tiles = heads * p.tiles;
  blocks.batch = batch;
  blocks.threads = static_cast<int>(launch.warps * 32);
  blocks.shared_bytes = static_cast<unsigned>(launch.bytes);
  const std::string what = "kernel " + name;
  CheckDriver(LaunchKernel(context, name, blocks, place.stream, &p), what.c_str());
}

constexpr Choice kOwn{};
constexpr Choice kFused{1};

Key KeyOf(const TrainingShape& s) {
  int32_t scale = 0;
  std::memcpy(&scale, &s.scale, sizeof(scale));
  Key key{kAttention,    s.type,    scale,  s.diagonal, s.outer, s.inner,
          s.inner_share, s.queries, s.keys, s.depth,    s.width};
  size_t word = 11;
  for (const HeadStrides& of : {s.q, s.k, s.v, s.result, s.rows}) {
    for (const int64_t stride : {of.outer, of.inner, of.row}) key[word++] = stride;
  }
  return key;
}

void RunForward(Context& context, const TrainingShape& s, const Place& place,
                const TrainingData& data) {
  Run(context, s, place, ForwardPass(BytesOf(s.type), WidthOf(s)), ParamsOf(s, data),
      s.outer * s.inner, s.queries, 1);
}

// By the faster of memc's kernel and cuDNN's, which is measured at the first call of a shape.
void RunFaster(Context& context, const TrainingShape& s, const Place& place,
               const TrainingData& data) {
  const Key key = KeyOf(s);
  auto found = context.attentions.find(key);
  const auto run = [&](AttentionSite& site, const Choice& choice) {
    if (choice == kFused) {
      return site.fused == nullptr ? 1 : site.fused->Run(context, data, place);
    }
    RunForward(context, s, place, data);
    return 0;
  };
  if (found == context.attentions.end()) {
    AttentionSite made;
    made.fused = FusedAttention::Of(context, s, place);
    made.algo = context.Decide(
        key, [&](const Choice& choice) { return run(made, choice); },
        [] { return std::vector<Choice>{kFused, kOwn}; }, place.stream, Taken{});
    found = context.attentions.emplace(key, std::move(made)).first;
  }
  CheckCudnn(run(found->second, found->second.algo), "cudnnBackendExecute");
}

}  // namespace

void AttendTraining(const TrainingShape& s, const Place& place, const TrainingData& data) {
  RequireFitting(s);
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  if (MayFuse(s, data)) {
    RunFaster(context, s, place, data);
  } else {
    RunForward(context, s, place, data);
  }
}

void AttendGrad(const TrainingShape& s, const Place& place, const TrainingData& data) {
  RequireFitting(s);
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const Params params = ParamsOf(s, data);
  const int64_t bytes = BytesOf(s.type);
  const int64_t width = WidthOf(s);
  const int64_t heads_of_k = s.outer / s.outer_share * (s.inner / s.inner_share);
  // First the keys: the gradient in q may go where q or g is, of which they need all.
  Run(context, s, place, BackwardPass("keys", 2, bytes, width), params, heads_of_k, s.keys,
      width > 128 ? 2 : 1);
  Run(context, s, place, BackwardPass("queries", 0, bytes, width), params, s.outer * s.inner,
      s.queries, 1);
}

}  // namespace memc::cuda
