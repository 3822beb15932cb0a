// SPDX-License-Identifier: Apache-2.0
// What a call site of a cuDNN convolution keeps: the descriptors of its tensors, and of parts of
// its images.
#ifndef MEMC_CUDA_CONV_SITE_H_
#define MEMC_CUDA_CONV_SITE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/cuda_library_kernels.h"

namespace memc::cuda {

// How a convolution adds a residual.
enum Residual : int64_t { kNone, kBeside, kInPlace };

Key KeyOf(Kind kind, const Convolution& c, bool bias, Residual residual, size_t bytes);

// How many elements a tensor with `rank` spatial axes has.
size_t Elements(const std::array<int, 5>& shape, int rank);

// The parts that the images of a convolution are cut into.
struct Parts {
  int64_t count;
  size_t of_x;  // Bytes of one part.
  size_t of_y;

  Parts(const Convolution& c, int64_t n)
      : count(n),
        of_x(SizeOf(c.type) * Elements(c.x, c.rank) / n),
        of_y(SizeOf(c.type) * Elements(c.y, c.rank) / n) {}
};

// The descriptors of a convolution with `channels` biases, without images or an algorithm.
ConvolutionSite Describe(const Convolution& c, int channels);

// The images of one of `parts` parts.
const Images& ImagesOf(const Convolution& c, int64_t parts, ConvolutionSite& site);

// Has the descriptor compute in TF32 where that is faster (1), or in strict f32 (0); for halves,
// `math` is the library's own number.
void SetMath(const Convolution& c, const ConvolutionSite& s, int64_t math);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_CONV_SITE_H_
