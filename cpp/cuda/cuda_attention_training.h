// SPDX-License-Identifier: Apache-2.0
// Attention in training by memc's own kernels
// (runtime/codegen/cuda_kernels/attention_training.cuh), which take no workspace: softmax(scale q
// k' + mask) v, head by head, with one number for each row that stands for its scores; and the
// gradients, whose bits are the same every time.
#ifndef MEMC_CUDA_ATTENTION_TRAINING_H_
#define MEMC_CUDA_ATTENTION_TRAINING_H_

#include <cstdint>

#include "cuda/cuda_attention.h"
#include "cuda/cuda_context.h"

namespace memc::cuda {

enum class Masked { kNone, kSeen, kAdded, kAddedAsF32 };

// Elements of all tensors are of one type, but those of a mask may be bool or f32, and numbers of
// rows are f32.
struct TrainingShape {
  Element type = kF32;
  bool tf32 = false;  // Whether factors of f32 are rounded to TF32.
  float scale = 1;
  int64_t diagonal = 0;  // Query i sees no key beyond i + diagonal.
  int64_t outer = 1;     // Heads of q: outer ones by inner ones.
  int64_t inner = 1;
  int64_t outer_share = 1;  // How many of them read one of k.
  int64_t inner_share = 1;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t depth = 0;  // Columns of q and k.
  int64_t width = 0;  // Columns of v and the result.
  HeadStrides q, k, v, mask, result, rows;
  int64_t mask_column = 0;  // Elements from one column of the mask to the next, 0 or 1.
  Masked masked = Masked::kNone;
};

// In device memory; what a call does not take stays null.
struct TrainingData {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* mask = nullptr;
  const void* g = nullptr;       // The gradient in the result, whose strides it has.
  const float* share = nullptr;  // Of each row, the sum of g times the result.
  void* result = nullptr;
  float* log_sum = nullptr;  // Of each row: a result, or given to the gradients.
  void* of_q = nullptr;      // Gradients; that in q may be where q or g is, if it has its strides.
  void* of_k = nullptr;
  void* of_v = nullptr;
};

// Columns that heads in training may have.
constexpr int64_t kMostTrainingColumns = 256;

// Enqueue the calls. Throw std::invalid_argument for extents that the kernels or the device do not
// take, std::runtime_error if a launch fails.
void AttendTraining(const TrainingShape& shape, const Place& place, const TrainingData& data);
void AttendGrad(const TrainingShape& shape, const Place& place, const TrainingData& data);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_ATTENTION_TRAINING_H_
