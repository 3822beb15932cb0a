// SPDX-License-Identifier: Apache-2.0
// Products and convolutions of f32 by memc's own kernels (split_product.cu), which need no
// workspace: the depth of a tile is split among the blocks of a cluster. They are one more way to
// compute what cuDNN and cuBLASLt compute, for results with few tiles.
#ifndef MEMC_CUDA_SPLIT_PRODUCT_H_
#define MEMC_CUDA_SPLIT_PRODUCT_H_

#include <vector>

#include "cuda/cuda_library_kernels.h"

namespace memc::cuda {

// Whether a choice is one of these.
bool IsSplit(const Choice& choice);

// The ways to compute a product or a convolution, those that should be fastest first; none for what
// the kernels cannot do, or without kernels.
std::vector<Choice> SplitWays(const Context& context, const Product& product);
std::vector<Choice> SplitWays(const Context& context, const Convolution& shape);

// Enqueues one way and returns the driver's status.
int RunSplit(Context& context, const Choice& choice, const Place& place, const Product& product,
             const float* a, const float* b, const Terms& terms, float* c);
int RunSplit(Context& context, const Choice& choice, const Place& place, const Convolution& shape,
             const float* x, const float* w, const Terms& terms, float* y);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_SPLIT_PRODUCT_H_
