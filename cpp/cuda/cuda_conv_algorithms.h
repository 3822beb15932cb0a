// SPDX-License-Identifier: Apache-2.0
// The ways to compute a convolution: cuDNN's algorithms, products of matrices, and memc's own
// kernels.
#ifndef MEMC_CUDA_CONV_ALGORITHMS_H_
#define MEMC_CUDA_CONV_ALGORITHMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/cuda_library_kernels.h"

namespace memc::cuda {

// Which word of a choice says what.
inline int AlgoOf(const Choice& choice) { return static_cast<int>(choice[0]); }
inline bool IsFused(const Choice& choice) { return !choice[8] && choice[1] != 0; }
inline int64_t MathOf(const Choice& choice) { return choice[2]; }
inline bool IsProduct(const Choice& choice) { return choice[8] == 1; }
inline int64_t PartsOf(const Choice& choice) { return choice[9]; }

// A call that needs a way to be computed.
struct ConvolutionCall {
  Context& context;
  CudnnHandle* handle;
  Kind kind;
  const Convolution& shape;
  const Place& place;
  bool may_fuse;  // Whether the library may add the bias, and apply ReLU, within its kernel.
  Taken taken;
};

// Whether products of matrices are among the ways. Sums of a gradient in weights, in f32, would
// need one more pass to become halves.
bool MayBeProduct(Kind kind, const Convolution& shape);

// All ways that fit the workspace, the library's in the order of its guess. Unless `steady`, also
// those that are not deterministic, which is said on standard error.
std::vector<Choice> ConvolutionWays(const ConvolutionCall& call, ConvolutionSite& site,
                                    bool steady);

// Why no algorithm fits: what the library says of each.
std::string NoAlgorithm(const ConvolutionCall& call, ConvolutionSite& s);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_CONV_ALGORITHMS_H_
