// SPDX-License-Identifier: Apache-2.0
// Attention of f32 on the CPU, forward and backward, in tiles: no matrix of queries by keys is ever
// stored. After Dao et al., FlashAttention, 2022 (algorithms 1 and 4), with one thread for all that
// is added to a head's keys and values, so that the results are the same bits for any number of
// threads.
#ifndef MEMC_ATTENTION_H_
#define MEMC_ATTENTION_H_

#include <cstdint>
#include <vector>

namespace memc {

constexpr int64_t kMostHeadColumns = 256;  // Columns that heads may have.

// Where each head begins, and the distance of its rows, in elements. Columns follow one another.
struct HeadRows {
  std::vector<int64_t> at;
  int64_t row = 0;
};

// What is added to the scores of each of q's heads, or which keys are seen; or neither.
struct AttentionMask {
  const float* added = nullptr;
  const uint8_t* seen = nullptr;
  std::vector<int64_t> at;
  int64_t row = 0, column = 0;  // Distances, 0 where all rows or columns have the same.

  bool IsGiven() const { return added != nullptr || seen != nullptr; }
};

struct AttentionShape {
  int64_t queries, keys;
  int64_t depth, width;  // Columns of q and k; of v and the result.
  float scale;
  int64_t diagonal;             // Query i sees keys up to i + diagonal.
  HeadRows q, k, v, result;     // Gradients lie as what they are of.
  HeadRows numbers;             // One number for each row of q.
  std::vector<int64_t> key_of;  // For each head of q, that of k and v.
  AttentionMask mask;
};

// result = softmax(scale q k' + mask) v, and each row's log(sum(exp(scores))). The result may lie
// where q does, if it has its strides.
void Attend(const AttentionShape& shape, const float* q, const float* k, const float* v,
            float* result, float* log_sum);

struct AttentionGradOperands {
  const float *q, *k, *v;
  const float *log_sum, *share;  // share: each row's sum of g times the result.
  const float* g;                // The gradient in the result.
  float *of_q, *of_k, *of_v;     // of_q may lie where q or g does, if it has its strides.
};

void AttendGrad(const AttentionShape& shape, const AttentionGradOperands& operands);

}  // namespace memc

#endif  // MEMC_ATTENTION_H_
