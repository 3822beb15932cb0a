// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU, forward and backward, in tiles: no matrix of queries by keys is ever
// stored. After Dao et al., FlashAttention, 2022 (algorithms 1 and 4), with one thread for all that
// is added to a head's keys and values, so that the results are the same bits for any number of
// threads. Halves are read as f32 tile by tile, and sums are f32.
#ifndef MEMC_ATTENTION_H_
#define MEMC_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "kernels/half_floats.h"

namespace memc {

constexpr int64_t kMostHeadColumns = 256;  // Columns that heads may have.

// Where each head begins, and the distance of its rows, in elements. Columns follow one another.
struct HeadRows {
  std::vector<int64_t> at;
  int64_t row = 0;
};

// What is added to the scores of each of q's heads, or which keys are seen; or neither.
struct AttentionMask {
  const void* added = nullptr;
  FloatKind kind = FloatKind::kF32;  // Of what is added.
  const uint8_t* seen = nullptr;
  std::vector<int64_t> at;
  int64_t row = 0, column = 0;  // Distances, 0 where all rows or columns have the same.

  bool IsGiven() const { return added != nullptr || seen != nullptr; }
};

// Weights that are dropped: those whose element [heads..., queries, keys] draws a word below
// `threshold`; the others are multiplied by `kept`.
struct AttentionDropout {
  uint64_t threshold = 0;  // 0: there is none.
  float kept = 1;
  uint32_t stream = 0;
  uint64_t seed = 0;

  bool IsGiven() const { return threshold > 0; }
};

struct AttentionShape {
  FloatKind kind = FloatKind::kF32;  // Of q, k, v, the result and their gradients.
  int64_t queries, keys;
  int64_t depth, width;  // Columns of q and k; of v and the result.
  float scale;
  int64_t diagonal;             // Query i sees keys up to i + diagonal,
  int64_t window = 0;           // and so many of them at most, unless 0.
  float cap = 0;                // Scores are cap tanh(scores / cap); 0: they are not capped.
  bool is_zero_blind = false;   // Whether a row that sees no key is 0.
  HeadRows q, k, v, result;     // Gradients lie as what they are of.
  HeadRows numbers;             // One number for each row of q.
  std::vector<int64_t> key_of;  // For each head of q, that of k and v.
  AttentionMask mask;
  AttentionDropout dropout;
};

// result = softmax(scale q k' + mask) v, and each row's log(sum(exp(scores))) unless that is null.
// The result may lie where q does, if it has its strides.
void Attend(const AttentionShape& shape, const void* q, const void* k, const void* v, void* result,
            float* log_sum);

struct AttentionGradOperands {
  const void *q, *k, *v;
  const float *log_sum, *share;  // share: each row's sum of g times the result.
  const void* g;                 // The gradient in the result.
  void *of_q, *of_k, *of_v;      // of_q may lie where q or g does, if it has its strides.
};

void AttendGrad(const AttentionShape& shape, const AttentionGradOperands& operands);

// The gradient in the mask, which is added and has the kind `shape.mask.kind`.
void AttendMaskGrad(const AttentionShape& shape, const AttentionGradOperands& operands,
                    void* of_mask);

}  // namespace memc

#endif  // MEMC_ATTENTION_H_
