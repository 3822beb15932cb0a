// SPDX-License-Identifier: Apache-2.0
// The forward pass of attention in training by cuDNN's fused kernel, which keeps no scores and
// takes some bytes of workspace. (Its deterministic backward pass keeps the gradients of all
// scores, and its other one has other bits every time: gradients are memc's own kernels' business.)
#ifndef MEMC_CUDA_FUSED_ATTENTION_H_
#define MEMC_CUDA_FUSED_ATTENTION_H_

#include <memory>
#include <vector>

#include "cuda/cuda_attention_training.h"
#include "cuda/cuda_context.h"
#include "cuda/cudnn_graph.h"

namespace memc::cuda {

// A plan for heads of one shape, and the tensors that it is given.
class FusedAttention {
 public:
  // Null where cuDNN is missing, or has no kernel for the shape in this workspace. With the
  // context's mutex held.
  static std::unique_ptr<FusedAttention> Of(Context& context, const TrainingShape& shape,
                                            const Place& place);

  // Enqueues the call; returns cuDNN's status.
  int Run(Context& context, const TrainingData& data, const Place& place);

 private:
  explicit FusedAttention(const TrainingShape& shape);

  CudnnGraph graph_;
  std::unique_ptr<CudnnPlan> plan_;
  std::vector<GraphTensor> tensors_;
  float scale_;
  float hidden_;  // What stands for a score that a query does not see.
  bool is_causal_;
};

// Whether a call is one that such kernels may take: halves, heads without masks but that of causal
// attention, of at most 128 columns, and a result that is not where q is.
bool MayFuse(const TrainingShape& shape, const TrainingData& data);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_FUSED_ATTENTION_H_
