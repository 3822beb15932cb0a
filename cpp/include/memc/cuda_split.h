// SPDX-License-Identifier: Apache-2.0
// Products and convolutions of f32 by memc's own kernels (runtime/codegen/cuda_kernels), which need
// no workspace: the depth of a tile is split among the blocks of a cluster. They are one more way
// to compute what cuDNN and cuBLASLt compute, for results with few tiles.
#ifndef MEMC_CUDA_SPLIT_H_
#define MEMC_CUDA_SPLIT_H_

#include <string>
#include <vector>

#include "memc/cuda_kernels.h"

namespace memc::cuda {

// Takes the kernels of a device from a cubin, unless it has some. Throws std::runtime_error if the
// driver cannot load it.
void AddSplitKernels(int device, const std::string& cubin);

// One of them by its name, and the driver's status. With the context's mutex held.
int FindKernel(Context& context, const std::string& name, Handle* kernel);

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

#endif  // MEMC_CUDA_SPLIT_H_
