// SPDX-License-Identifier: Apache-2.0
// Attention of f32 by memc's own kernels (runtime/codegen/cuda_kernels/attention.cu), which take no
// workspace: softmax(scale q k' + mask) v, head by head.
#ifndef MEMC_CUDA_ATTENTION_H_
#define MEMC_CUDA_ATTENTION_H_

#include <cstdint>

#include "cuda/cuda_context.h"

namespace memc::cuda {

// Elements from one outer head to the next, from one inner head to the next, and from row to row.
struct HeadStrides {
  int64_t outer = 0, inner = 0, row = 0;
};

struct Attention {
  float scale = 1;
  int64_t outer = 1;  // Heads: outer ones by inner ones.
  int64_t inner = 1;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t depth = 0;  // Columns of q and k.
  int64_t width = 0;  // Columns of v and the result.
  HeadStrides q, k, v, mask, result;
  int64_t mask_column = 0;  // Elements from one column of the mask to the next.
};

// Columns that heads may have.
constexpr int64_t kMostColumns = 128;

// Enqueues the call; `mask` may be null, and the result may be where q is if it has q's strides.
// Throws std::invalid_argument for extents that the kernels do not take, std::runtime_error if the
// launch fails.
void Attend(const Attention& shape, const Place& place, const float* q, const float* k,
            const float* v, const float* mask, float* result);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_ATTENTION_H_
