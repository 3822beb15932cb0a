// SPDX-License-Identifier: Apache-2.0
#include "cuda/cudnn_graph.h"

#include <utility>

#include "cuda/cuda_context.h"

namespace memc::cuda {

namespace {

// cudnnBackendDescriptorType_t
enum Kind : int {
  kPointwise = 0,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kPointwiseOp = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOp = 19,
  kReduction = 21,
  kReductionOp = 22,
};

// cudnnBackendAttributeType_t
enum Type : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kPointer = 6,
  kHeuristicsMode = 8,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReductionOperator = 18,
};

// cudnnBackendAttributeName_t
enum Name : int {
  kPointwiseModeName = 0,
  kPointwisePrecision = 1,
  kPointwiseAxis = 9,
  kHeuristicsModeName = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kPointwiseOpHow = 750,
  kPointwiseOpX = 751,
  kPointwiseOpOther = 752,
  kPointwiseOpY = 753,
  kPointwiseOpAlpha1 = 754,
  kPointwiseOpAlpha2 = 755,
  kPointwiseOpWhere = 758,
  kGraphHandle = 800,
  kGraphOps = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorShape = 902,
  kTensorStrides = 903,
  kTensorNumber = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackNumbers = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kMatmulPrecision = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulHow = 1523,
  kReductionWhat = 1600,
  kReductionPrecision = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionHow = 1612,
};

constexpr int kBestFirst = 3;  // CUDNN_HEUR_MODE_A

Owned<CudnnDescriptor> Make(Kind kind) {
  CudnnDescriptor* made = nullptr;
  CheckCudnn(LoadCudnn().create_descriptor(kind, &made), "cudnnBackendCreateDescriptor");
  return Owned<CudnnDescriptor>(made);
}

template <typename Value>
void Set(const Owned<CudnnDescriptor>& to, Name name, Type type, const Value& value) {
  CheckCudnn(LoadCudnn().set_attribute(to.get(), name, type, 1, &value),
             "cudnnBackendSetAttribute");
}

template <typename Values>
void SetAll(const Owned<CudnnDescriptor>& to, Name name, Type type, const Values& values) {
  const auto count = static_cast<int64_t>(values.size());
  CheckCudnn(LoadCudnn().set_attribute(to.get(), name, type, count, values.data()),
             "cudnnBackendSetAttribute");
}

void Finish(const Owned<CudnnDescriptor>& made) {
  CheckCudnn(LoadCudnn().finalize(made.get()), "cudnnBackendFinalize");
}

// Ways to run a graph, the best guess first.
std::vector<Owned<CudnnDescriptor>> Configurations(const Owned<CudnnDescriptor>& graph) {
  const Cudnn& cudnn = LoadCudnn();
  const Owned<CudnnDescriptor> heuristics = Make(kHeuristics);
  Set(heuristics, kHeuristicsGraph, kDescriptor, graph.get());
  Set(heuristics, kHeuristicsModeName, kHeuristicsMode, kBestFirst);
  if (cudnn.finalize(heuristics.get()) != 0) return {};  // There is no kernel for this graph.
  int64_t count = 0;
  if (cudnn.get_attribute(heuristics.get(), kHeuristicsResults, kDescriptor, 0, &count, nullptr) !=
      0) {
    return {};
  }
  std::vector<Owned<CudnnDescriptor>> found;
  std::vector<CudnnDescriptor*> places;
  for (int64_t i = 0; i < count; ++i) {
    found.push_back(Make(kEngineConfig));
    places.push_back(found.back().get());
  }
  int64_t filled = 0;
  if (count == 0 || cudnn.get_attribute(heuristics.get(), kHeuristicsResults, kDescriptor, count,
                                        &filled, places.data()) != 0) {
    return {};
  }
  found.resize(static_cast<size_t>(filled));
  return found;
}

}  // namespace

int CudnnPlan::Run(CudnnHandle* handle, const std::vector<GraphTensor>& tensors,
                   const std::vector<void*>& data, void* workspace) const {
  const Owned<CudnnDescriptor> pack = Make(kVariantPack);
  SetAll(pack, kPackPointers, kPointer, data);
  SetAll(pack, kPackNumbers, kInt64, tensors);
  Set(pack, kPackWorkspace, kPointer, workspace);
  Finish(pack);
  return LoadCudnn().execute(handle, plan_.get(), pack.get());
}

CudnnDescriptor* CudnnGraph::Keep(Owned<CudnnDescriptor> made) {
  kept_.push_back(std::move(made));
  return kept_.back().get();
}

CudnnDescriptor* CudnnGraph::At(GraphTensor tensor) const {
  return tensors_.at(static_cast<size_t>(tensor - 1));
}

GraphTensor CudnnGraph::Tensor(int type, const Extents& shape, const Extents& strides, int flag) {
  constexpr int64_t kAlignment = 16;  // Bytes.
  Owned<CudnnDescriptor> made = Make(kTensor);
  const auto number = static_cast<GraphTensor>(tensors_.size() + 1);
  Set(made, kTensorType, kDataType, type);
  SetAll(made, kTensorShape, kInt64, shape);
  SetAll(made, kTensorStrides, kInt64, strides);
  Set(made, kTensorNumber, kInt64, number);
  Set(made, kTensorAlignment, kInt64, kAlignment);
  if (flag != 0) Set(made, static_cast<Name>(flag), kBoolean, true);
  Finish(made);
  tensors_.push_back(Keep(std::move(made)));
  return number;
}

GraphTensor CudnnGraph::Given(int type, const Extents& shape, const Extents& strides) {
  return Tensor(type, shape, strides, 0);
}

GraphTensor CudnnGraph::Scalar() {
  return Tensor(kCudnnFloat, {1, 1, 1, 1}, {1, 1, 1, 1}, kTensorIsByValue);
}

GraphTensor CudnnGraph::Between(int type, const Extents& shape) {
  const Extents strides{shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
  return Tensor(type, shape, strides, kTensorIsVirtual);
}

void CudnnGraph::Multiply(GraphTensor a, GraphTensor b, GraphTensor c) {
  Owned<CudnnDescriptor> how = Make(kMatmul);
  Set(how, kMatmulPrecision, kDataType, kCudnnFloat);
  Finish(how);
  Owned<CudnnDescriptor> op = Make(kMatmulOp);
  Set(op, kMatmulA, kDescriptor, At(a));
  Set(op, kMatmulB, kDescriptor, At(b));
  Set(op, kMatmulC, kDescriptor, At(c));
  Set(op, kMatmulHow, kDescriptor, Keep(std::move(how)));
  Finish(op);
  ops_.push_back(Keep(std::move(op)));
}

void CudnnGraph::Point(CudnnDescriptor* how, GraphTensor x, GraphTensor y, GraphTensor other,
                       GraphTensor where) {
  constexpr float kOne = 1;
  Owned<CudnnDescriptor> op = Make(kPointwiseOp);
  Set(op, kPointwiseOpHow, kDescriptor, how);
  Set(op, kPointwiseOpX, kDescriptor, At(x));
  Set(op, kPointwiseOpY, kDescriptor, At(y));
  if (other != kNoTensor) Set(op, kPointwiseOpOther, kDescriptor, At(other));
  if (where != kNoTensor) Set(op, kPointwiseOpWhere, kDescriptor, At(where));
  Set(op, kPointwiseOpAlpha1, kFloat, kOne);
  Set(op, kPointwiseOpAlpha2, kFloat, kOne);
  Finish(op);
  ops_.push_back(Keep(std::move(op)));
}

void CudnnGraph::Compute(Pointwise what, GraphTensor x, GraphTensor y, GraphTensor other,
                         GraphTensor where) {
  Owned<CudnnDescriptor> how = Make(kPointwise);
  Set(how, kPointwiseModeName, kPointwiseMode, static_cast<int>(what));
  const int type = what == Pointwise::kAtLeast ? kCudnnBoolean : kCudnnFloat;
  Set(how, kPointwisePrecision, kDataType, type);
  Finish(how);
  Point(Keep(std::move(how)), x, y, other, where);
}

void CudnnGraph::Index(GraphTensor x, GraphTensor y, int64_t axis) {
  Owned<CudnnDescriptor> how = Make(kPointwise);
  Set(how, kPointwiseModeName, kPointwiseMode, static_cast<int>(Pointwise::kIndex));
  Set(how, kPointwisePrecision, kDataType, kCudnnFloat);
  Set(how, kPointwiseAxis, kInt64, axis);
  Finish(how);
  Point(Keep(std::move(how)), x, y, kNoTensor, kNoTensor);
}

void CudnnGraph::Reduce(Reduction what, GraphTensor x, GraphTensor y) {
  Owned<CudnnDescriptor> how = Make(kReduction);
  Set(how, kReductionPrecision, kDataType, kCudnnFloat);
  Set(how, kReductionWhat, kReductionOperator, static_cast<int>(what));
  Finish(how);
  Owned<CudnnDescriptor> op = Make(kReductionOp);
  Set(op, kReductionHow, kDescriptor, Keep(std::move(how)));
  Set(op, kReductionX, kDescriptor, At(x));
  Set(op, kReductionY, kDescriptor, At(y));
  Finish(op);
  ops_.push_back(Keep(std::move(op)));
}

std::unique_ptr<CudnnPlan> CudnnGraph::Plan(CudnnHandle* handle) const {
  const Cudnn& cudnn = LoadCudnn();
  Owned<CudnnDescriptor> graph = Make(kOperationGraph);
  Set(graph, kGraphHandle, kHandle, handle);
  SetAll(graph, kGraphOps, kDescriptor, ops_);
  if (cudnn.finalize(graph.get()) != 0) return nullptr;
  for (Owned<CudnnDescriptor>& configuration : Configurations(graph)) {
    Owned<CudnnDescriptor> plan = Make(kPlan);
    Set(plan, kPlanHandle, kHandle, handle);
    Set(plan, kPlanConfig, kDescriptor, configuration.get());
    if (cudnn.finalize(plan.get()) != 0) continue;
    int64_t count = 0, bytes = 0;
    CheckCudnn(cudnn.get_attribute(plan.get(), kPlanWorkspace, kInt64, 1, &count, &bytes),
               "cudnnBackendGetAttribute");
    std::vector<Owned<CudnnDescriptor>> parts;
    parts.push_back(std::move(graph));
    parts.push_back(std::move(configuration));
    return std::make_unique<CudnnPlan>(std::move(plan), std::move(parts),
                                       static_cast<size_t>(bytes));
  }
  return nullptr;
}

}  // namespace memc::cuda
