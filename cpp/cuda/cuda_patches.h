// SPDX-License-Identifier: Apache-2.0
// Convolutions of f32 and their gradients as products with patches that are never stored, by memc's
// own kernels: in TF32 on tensor cores (tensor_product.cu), where cuDNN copies images to have the
// channels last, and over volumes in f32 (patch_product.cu), for which cuDNN has fast algorithms
// only with a workspace. These need none. Gradients in weights, few sums of many terms, they add up
// in tables in the workspace (patch_sums.cu): cuDNN has few blocks for them.
#ifndef MEMC_CUDA_PATCHES_H_
#define MEMC_CUDA_PATCHES_H_

#include <vector>

#include "cuda/cuda_library_kernels.h"

namespace memc::cuda {

// Whether a choice is one of these.
bool IsPatches(const Choice& choice);

// The ways to compute a convolution, or a gradient of one, those that should be fastest first; none
// in TF32 where cuDNN's own are faster with the `bytes` of workspace that there are. None either
// for what the kernels cannot do, or without kernels; of TF32 on devices before sm_80.
std::vector<Choice> PatchWays(const Context& context, Kind kind, const Convolution& shape,
                              size_t bytes);

// Enqueues one way and returns the driver's status: `to` is a convolution of the images `from` with
// w (kForward), the gradient in images of the gradient `from` (kData), or the gradient in weights
// of the images `from` and the gradient `w` (kFilter), for which there are no terms.
int RunPatches(Context& context, Kind kind, const Choice& choice, const Place& place,
               const Convolution& shape, const float* from, const float* w, const Terms& terms,
               float* to);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_PATCHES_H_
