// SPDX-License-Identifier: Apache-2.0
// The heads of attention's operands, as packed functions of CUDA kernels find them.
#ifndef MEMC_EXPORTS_CUDA_HEADS_H_
#define MEMC_EXPORTS_CUDA_HEADS_H_

#include <tvm/ffi/container/tensor.h>

#include <array>

#include "cuda/cuda_attention.h"
#include "exports/cuda_packed.h"

namespace memc::cuda {

// What a kernel of heads takes: extents [outer, inner] of the axes other than `axis`, that of
// positions, and the last one. -1 for one that is missing.
inline std::array<int, 2> HeadAxes(int64_t axis, int rank) {
  std::array<int, 2> found{-1, -1};
  for (int d = rank - 2, at = 1; d >= 0; --d) {
    if (d != axis) found.at(static_cast<size_t>(at--)) = d;
  }
  return found;
}

inline int64_t Extent(const tvm::ffi::TensorView& t, int axis) {
  return axis < 0 ? 1 : t.size(axis);
}

// Elements between neighbours of an axis of a tensor without gaps.
inline int64_t Step(const tvm::ffi::TensorView& t, int axis) {
  int64_t step = 1;
  for (int d = axis + 1; d < t.ndim(); ++d) step *= t.size(d);
  return step;
}

inline HeadStrides StridesOf(const tvm::ffi::TensorView& t, const std::array<int, 2>& heads,
                             int64_t axis) {
  const auto step = [&](int d) { return d < 0 ? 0 : Step(t, d); };
  return {step(heads[0]), step(heads[1]), step(static_cast<int>(axis))};
}

// Elements from one outer head, inner head, query and key of scores [outer, inner, queries, keys]
// to the next in their mask; axes that it lacks or has 1 of are spread out.
inline std::array<int64_t, 4> MaskSteps(const tvm::ffi::TensorView& mask,
                                        const std::array<int64_t, 4>& scores) {
  std::array<int64_t, 4> steps{};
  for (int d = 1; d <= mask.ndim(); ++d) {
    const int64_t extent = mask.size(-d);
    Require(d <= 4 && (extent == 1 || extent == scores.at(4 - d)),
            "the mask does not fit the scores");
    if (extent != 1) steps.at(4 - d) = Step(mask, mask.ndim() - d);
  }
  return steps;
}

}  // namespace memc::cuda

#endif  // MEMC_EXPORTS_CUDA_HEADS_H_
