// SPDX-License-Identifier: Apache-2.0
// Gradients of depthwise convolutions of f32 by memc's own kernels (depthwise.cu), which need no
// workspace.
#ifndef MEMC_CUDA_DEPTHWISE_H_
#define MEMC_CUDA_DEPTHWISE_H_

#include <vector>

#include "cuda/cuda_library_kernels.h"

namespace memc::cuda {

// Whether a choice is one of these.
bool IsDepthwise(const Choice& choice);

// The ways to compute a gradient, in images (kData) or in weights (kFilter); none for what the
// kernels cannot do, or without kernels.
std::vector<Choice> DepthwiseWays(const Context& context, Kind kind, const Convolution& shape);

// Enqueues one way and returns the driver's status: the gradient in images of the gradient `g`
// with w and a bias or null (kData), or the gradient in weights of the images x and `g` (kFilter).
int RunDepthwise(Context& context, Kind kind, const Choice& choice, const Place& place,
                 const Convolution& shape, const float* x_or_w, const float* g, const float* bias,
                 float* to);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_DEPTHWISE_H_
