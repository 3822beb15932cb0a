// SPDX-License-Identifier: Apache-2.0
// Graphs of cuDNN's ops, which it runs as one kernel where it has one for them.
#ifndef MEMC_CUDNN_GRAPH_H_
#define MEMC_CUDNN_GRAPH_H_

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/cuda_api.h"
#include "cuda/cuda_handles.h"

namespace memc::cuda {

// What ops compute, in cuDNN's numbers.
enum class Pointwise : int {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kAtLeast = 303,  // Whether x >= other.
  kIndex = 501,    // Of each element, along an axis.
  kSelect = 601,   // x where `where` is true, elsewhere the other.
};
enum class Reduction : int { kSum = 0, kMost = 3 };

using Extents = std::array<int64_t, 4>;

// A tensor of a graph, by its number.
using GraphTensor = int64_t;
constexpr GraphTensor kNoTensor = 0;

// A plan that runs a graph.
class CudnnPlan {
 public:
  // `parts`: what the plan was made of, which lives as long.
  CudnnPlan(Owned<CudnnDescriptor> plan, std::vector<Owned<CudnnDescriptor>> parts,
            size_t workspace_bytes)
      : parts_(std::move(parts)), plan_(std::move(plan)), workspace_bytes_(workspace_bytes) {}

  size_t workspace_bytes() const { return workspace_bytes_; }

  // Enqueues a run on the handle's stream. `data`: of each tensor that is given or a scalar, where
  // it lies; scalars in the host's memory. Returns cuDNN's status.
  int Run(CudnnHandle* handle, const std::vector<GraphTensor>& tensors,
          const std::vector<void*>& data, void* workspace) const;

 private:
  std::vector<Owned<CudnnDescriptor>> parts_;
  Owned<CudnnDescriptor> plan_;
  size_t workspace_bytes_;
};

// All throw std::runtime_error where cuDNN is missing or refuses.
class CudnnGraph {
 public:
  // A tensor in device memory, aligned to 16 bytes; strides are in elements.
  GraphTensor Given(int type, const Extents& shape, const Extents& strides);
  // One number in the host's memory, with the axes of the others.
  GraphTensor Scalar();
  // A value between ops, which is stored nowhere.
  GraphTensor Between(int type, const Extents& shape);

  // c = a b, of matrices in the last two axes.
  void Multiply(GraphTensor a, GraphTensor b, GraphTensor c);
  void Compute(Pointwise what, GraphTensor x, GraphTensor y, GraphTensor other = kNoTensor,
               GraphTensor where = kNoTensor);
  // y = the index of each element of x along `axis`.
  void Index(GraphTensor x, GraphTensor y, int64_t axis);
  // Over the axes along which y has one element.
  void Reduce(Reduction what, GraphTensor x, GraphTensor y);

  // The first plan that cuDNN proposes, of those that can be made; null if it has none.
  std::unique_ptr<CudnnPlan> Plan(CudnnHandle* handle) const;

 private:
  GraphTensor Tensor(int type, const Extents& shape, const Extents& strides, int flag);
  CudnnDescriptor* At(GraphTensor tensor) const;
  CudnnDescriptor* Keep(Owned<CudnnDescriptor> made);
  void Point(CudnnDescriptor* how, GraphTensor x, GraphTensor y, GraphTensor other,
             GraphTensor where);

  std::vector<Owned<CudnnDescriptor>> kept_;
  std::vector<CudnnDescriptor*> tensors_;  // Number n is at n - 1.
  std::vector<CudnnDescriptor*> ops_;
};

}  // namespace memc::cuda

#endif  // MEMC_CUDNN_GRAPH_H_
