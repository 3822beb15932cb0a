// SPDX-License-Identifier: Apache-2.0
// Convolutions of f32 with kernels of 3 x 3 in steps of 1, and their gradients in the images, by
// memc's own kernels (winograd.cu), whose workspace is 16/9 of the weights: one more way to compute
// what cuDNN computes, whose algorithms with as few products take workspace for the images. Where
// the workspace is smaller, they keep the transformed weights in their own result, where the last
// filters' results of the last image will be, and compute those in the end.
#ifndef MEMC_CUDA_WINOGRAD_H_
#define MEMC_CUDA_WINOGRAD_H_

#include <vector>

#include "cuda/cuda_library_kernels.h"

namespace memc::cuda {

// Whether a choice is one of these.
bool IsWinograd(const Choice& choice);

// The ways to compute a convolution (kForward) or its gradient in x (kData) with `bytes` of
// workspace; none for what the kernels cannot do, or without kernels. `is_residual`: whether what
// is added lies where the result goes.
std::vector<Choice> WinogradWays(const Context& context, Kind kind, const Convolution& shape,
                                 size_t bytes, bool is_residual);

// Enqueues one way and returns the driver's status: `from` is x, or the gradient in y for kData,
// and `to` the other one.
int RunWinograd(Context& context, Kind kind, const Choice& choice, const Place& place,
                const Convolution& shape, const float* from, const float* w, const Terms& terms,
                float* to);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_WINOGRAD_H_
