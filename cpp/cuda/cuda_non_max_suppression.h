// SPDX-License-Identifier: Apache-2.0
// Suppression of boxes by memc's own kernels (runtime/codegen/cuda_kernels/suppression.cu).
#ifndef MEMC_CUDA_NON_MAX_SUPPRESSION_H_
#define MEMC_CUDA_NON_MAX_SUPPRESSION_H_

#include <cstdint>

#include "cuda/cuda_context.h"

namespace memc::cuda {

struct BoxCandidates {
  int64_t batches = 0, classes = 0, boxes = 0, candidates = 0;
  int64_t most = 0;     // Boxes that are chosen of each class of each batch.
  bool center = false;  // Boxes are a middle and sides, and not two opposite corners.
};

// Bytes of workspace: for the chosen boxes of all classes, and what a tile of candidates overlaps.
int64_t SuppressionRoom(const BoxCandidates& shape);

// Enqueues it, as memc::NonMaxSuppression says: two launches for each 512 candidates. Throws
// std::invalid_argument for a workspace that is too small and for too many boxes,
// std::runtime_error if a launch fails.
void SuppressBoxes(const BoxCandidates& shape, const Place& place, const float* boxes,
                   const int64_t* candidates, const float* threshold, int64_t* result);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_NON_MAX_SUPPRESSION_H_
