// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_fused_attention.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

constexpr int64_t kMostFusedColumns = 128;
constexpr int64_t kWide = 8;  // Elements that columns and strides are multiples of.

bool SeesAll(const TrainingShape& s) { return s.diagonal >= s.keys - 1; }

bool IsWide(const HeadStrides& strides, const void* data) {
  return IsAligned(data, 16) && strides.outer % kWide == 0 && strides.inner % kWide == 0 &&
         strides.row % kWide == 0;
}

// The strides of an axis of one element do not matter, but cuDNN wants some.
Extents StridesOf(const Extents& shape, const HeadStrides& s, int64_t row, int64_t column) {
  Extents strides{s.outer, s.inner, row, column};
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    if (shape[axis] == 1) strides[axis] = std::max<int64_t>(strides[axis], 1);
  }
  return strides;
}

// Whether elements of heads lie apart from one another.
bool IsSpread(const HeadStrides& s, int64_t outer, int64_t inner) {
  return (outer == 1 || s.outer > 0) && (inner == 1 || s.inner > 0) && s.row > 0;
}

}  // namespace

bool MayFuse(const TrainingShape& s, const TrainingData& d) {
  const int64_t inner_of_k = s.inner / s.inner_share;
  return s.type != kF32 && s.masked == Masked::kNone && s.outer_share == 1 &&
         (s.diagonal == 0 || SeesAll(s)) && s.result.row > 0 && d.result != d.q &&
         std::max(s.depth, s.width) <= kMostFusedColumns && s.depth % kWide == 0 &&
         s.width % kWide == 0 && IsWide(s.q, d.q) && IsWide(s.k, d.k) && IsWide(s.v, d.v) &&
         IsWide(s.result, d.result) && IsAligned(d.log_sum, 16) &&
         IsSpread(s.q, s.outer, s.inner) && IsSpread(s.k, s.outer, inner_of_k) &&
         IsSpread(s.v, s.outer, inner_of_k) && IsSpread(s.rows, s.outer, s.inner);
}

FusedAttention::FusedAttention(const TrainingShape& s)
    : scale_(s.scale), hidden_(-std::numeric_limits<float>::infinity()), is_causal_(!SeesAll(s)) {
  const int type = s.type == kF16 ? kCudnnHalf : kCudnnBfloat16;
  const int64_t heads_of_k = s.inner / s.inner_share;
  const Extents of_q{s.outer, s.inner, s.queries, s.depth};
  const Extents of_k{s.outer, heads_of_k, s.depth, s.keys};  // Transposed.
  const Extents of_v{s.outer, heads_of_k, s.keys, s.width};
  const Extents of_result{s.outer, s.inner, s.queries, s.width};
  const Extents of_rows{s.outer, s.inner, s.queries, 1};
  const Extents of_scores{s.outer, s.inner, s.queries, s.keys};
  const GraphTensor q = graph_.Given(type, of_q, StridesOf(of_q, s.q, s.q.row, 1));
  const GraphTensor k = graph_.Given(type, of_k, StridesOf(of_k, s.k, 1, s.k.row));
  const GraphTensor v = graph_.Given(type, of_v, StridesOf(of_v, s.v, s.v.row, 1));
  const GraphTensor result =
      graph_.Given(type, of_result, StridesOf(of_result, s.result, s.result.row, 1));
  const GraphTensor log_sum =
      graph_.Given(kCudnnFloat, of_rows, StridesOf(of_rows, s.rows, s.rows.row, 1));
  const GraphTensor scale = graph_.Scalar();
  tensors_ = {q, k, v, result, log_sum, scale};
  const auto scores = [&] { return graph_.Between(kCudnnFloat, of_scores); };
  const auto rows = [&] { return graph_.Between(kCudnnFloat, of_rows); };

  const GraphTensor products = scores(), scaled = scores();
  graph_.Multiply(q, k, products);
  graph_.Compute(Pointwise::kMultiply, products, scaled, scale);
  GraphTensor seen = scaled;
  if (is_causal_) {
    const GraphTensor row = graph_.Between(kCudnnInt32, of_scores);
    const GraphTensor column = graph_.Between(kCudnnInt32, of_scores);
    const GraphTensor sees = graph_.Between(kCudnnBoolean, of_scores);
    const GraphTensor hidden = graph_.Scalar();
    tensors_.push_back(hidden);
    graph_.Index(scaled, row, 2);
    graph_.Index(scaled, column, 3);
    graph_.Compute(Pointwise::kAtLeast, row, sees, column);
    seen = scores();
    graph_.Compute(Pointwise::kSelect, scaled, seen, hidden, sees);
  }
  const GraphTensor most = rows(), shifted = scores(), powers = scores(), sum = rows();
  const GraphTensor log = rows(), weights = graph_.Between(type, of_scores);
  graph_.Reduce(Reduction::kMost, seen, most);
  graph_.Compute(Pointwise::kSubtract, seen, shifted, most);
  graph_.Compute(Pointwise::kExp, shifted, powers);
  graph_.Reduce(Reduction::kSum, powers, sum);
  graph_.Compute(Pointwise::kLog, sum, log);
  graph_.Compute(Pointwise::kAdd, most, log_sum, log);
  graph_.Compute(Pointwise::kDivide, powers, weights, sum);
  graph_.Multiply(weights, v, result);
}

std::unique_ptr<FusedAttention> FusedAttention::Of(Context& context, const TrainingShape& shape,
                                                   const Place& place) {
  try {
    std::unique_ptr<FusedAttention> made(new FusedAttention(shape));
    made->plan_ = made->graph_.Plan(context.Cudnn(place.stream));
    if (made->plan_ == nullptr || made->plan_->workspace_bytes() > place.bytes) return nullptr;
    return made;
  } catch (const std::runtime_error&) {
    return nullptr;  // cuDNN is missing, too old, or refuses: memc's own kernels do.
  }
}

int FusedAttention::Run(Context& context, const TrainingData& d, const Place& place) {
  std::vector<void*> data;
  for (const void* given : {d.q, d.k, d.v}) data.push_back(const_cast<void*>(given));
  for (void* made : {d.result, static_cast<void*>(d.log_sum), static_cast<void*>(&scale_)}) {
    data.push_back(made);
  }
  if (is_causal_) data.push_back(&hidden_);
  return plan_->Run(context.Cudnn(place.stream), tensors_, data, place.workspace);
}

}  // namespace memc::cuda
