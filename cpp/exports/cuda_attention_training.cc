// SPDX-License-Identifier: Apache-2.0
// Attention in training by memc's own CUDA kernels as packed functions, which register themselves
// when this library is loaded; memc.cuda.add_kernels (cuda_library_kernels.cc) must have brought
// the kernels.
//
//   memc.cuda.attention_training(q, k, v, mask?, result, log_sum, workspace?, scalars...)
//   memc.cuda.attention_grad(q, k, v, mask?, log_sum, share, g, of_q, of_k, of_v, scalars...)
//
// All tensors are of one type, f32, f16 or bf16, but log_sum and share, which are f32, and the
// mask, which may be bool or f32. Scalars: how many of the tensors are operands; the axis of
// positions (the last one are columns, and the others tell heads apart); the scale; whether there
// is a diagonal; that; and whether factors of f32 are rounded to TF32.
#include "cuda/cuda_attention_training.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <array>
#include <vector>

#include "exports/cuda_heads.h"
#include "exports/cuda_packed.h"

namespace {

namespace ffi = tvm::ffi;
namespace cuda = memc::cuda;
using cuda::Extent;
using cuda::Require;
using cuda::StridesOf;

constexpr int kScalars = 6;

struct Call {
  std::vector<ffi::TensorView> tensors;
  int64_t operands = 0;
  cuda::TrainingShape shape;

  void* Data(int64_t i) const { return cuda::DataOf(tensors.at(i)); }
  float* Numbers(int64_t i) const { return static_cast<float*>(Data(i)); }
};

// Throws for tensors of other elements. Those of bf16 come as their bits, u16.
cuda::Element TypeOf(const ffi::TensorView& t) {
  const DLDataType type = t.dtype();
  Require(type.lanes == 1, "expected scalars as elements");
  if (type.code == kDLFloat && type.bits == 32) return cuda::kF32;
  if (type.code == kDLFloat && type.bits == 16) return cuda::kF16;
  Require((type.code == kDLUInt || type.code == kDLBfloat) && type.bits == 16,
          "expected tensors of f32, f16 or bf16");
  return cuda::kBf16;
}

// Tensors and scalars of a call with `operands` operands beside the mask, and `results` results.
Call Parse(ffi::PackedArgs args, int64_t operands, int64_t results) {
  Call call;
  const int count = args.size() - kScalars;
  Require(count >= 0, "too few arguments");
  for (int i = 0; i < count; ++i) call.tensors.push_back(args[i].cast<ffi::TensorView>());
  call.operands = args[count].cast<int64_t>();
  Require(call.operands == operands || call.operands == operands + 1, "another number of operands");
  const int64_t more = count - call.operands - results;
  Require(more == 0 || (more == 1 && operands == 3), "another number of tensors");
  return call;
}

void TakeMask(const ffi::TensorView& mask, cuda::TrainingShape& s) {
  const std::array<int64_t, 4> steps = cuda::MaskSteps(mask, {s.outer, s.inner, s.queries, s.keys});
  s.mask = {steps[0], steps[1], steps[2]};
  s.mask_column = steps[3];
  const DLDataType type = mask.dtype();
  if (type.bits == 8 && type.lanes == 1) {
    s.masked = cuda::Masked::kSeen;
    return;
  }
  const cuda::Element element = TypeOf(mask);
  Require(element == s.type || element == cuda::kF32, "expected a mask of bool, f32 or q's type");
  s.masked = element == s.type ? cuda::Masked::kAdded : cuda::Masked::kAddedAsF32;
}

// Takes heads and extents of q, k, v, of a tensor of the result's form, and of one of numbers of
// rows; then what the scalars say.
void TakeShape(ffi::PackedArgs args, const ffi::TensorView& result, const ffi::TensorView& rows,
               Call& call) {
  const ffi::TensorView &q = call.tensors[0], &k = call.tensors[1], &v = call.tensors[2];
  const int first = args.size() - kScalars;
  const auto axis = args[first + 1].cast<int64_t>();
  const int rank = q.ndim();
  Require(rank >= 2 && rank <= 4 && axis >= 0 && axis < rank - 1, "expected rank 2, 3 or 4");
  Require(k.ndim() == rank && v.ndim() == rank && result.ndim() == rank && rows.ndim() == rank - 1,
          "expected tensors of one rank");
  const std::array<int, 2> heads = cuda::HeadAxes(axis, rank);
  const auto row = static_cast<int>(axis);
  Require(k.size(-1) == q.size(-1) && v.size(row) == k.size(row) && v.size(-1) == result.size(-1) &&
              result.size(row) == q.size(row),
          "the operands' shapes do not fit the result's");
  cuda::TrainingShape& s = call.shape;
  s.type = TypeOf(q);
  Require(TypeOf(k) == s.type && TypeOf(v) == s.type && TypeOf(result) == s.type,
          "expected tensors of one type");
  Require(TypeOf(rows) == cuda::kF32, "expected numbers of f32 for rows");
  s.outer = Extent(q, heads[0]);
  s.inner = Extent(q, heads[1]);
  const int64_t outer = Extent(k, heads[0]), inner = Extent(k, heads[1]);
  Require(outer > 0 && inner > 0 && s.outer % outer == 0 && s.inner % inner == 0,
          "heads of q that are no multiple of k's");
  s.outer_share = s.outer / outer;
  s.inner_share = s.inner / inner;
  s.queries = q.size(row);
  s.keys = k.size(row);
  s.depth = q.size(-1);
  s.width = v.size(-1);
  s.q = StridesOf(q, heads, axis);
  s.k = StridesOf(k, heads, axis);
  s.v = StridesOf(v, heads, axis);
  s.result = StridesOf(result, heads, axis);
  s.rows = StridesOf(rows, heads, axis);
  s.scale = static_cast<float>(args[first + 2].cast<double>());
  s.diagonal = args[first + 3].cast<int64_t>() != 0 ? args[first + 4].cast<int64_t>() : s.keys;
  s.tf32 = args[first + 5].cast<int64_t>() != 0;
}

void Attention(ffi::PackedArgs args) {
  Call call = Parse(args, 3, 2);
  const int64_t n = call.operands;
  TakeShape(args, call.tensors[n], call.tensors[n + 1], call);
  if (n == 4) TakeMask(call.tensors[3], call.shape);
  cuda::TrainingData data;
  data.q = call.Data(0);
  data.k = call.Data(1);
  data.v = call.Data(2);
  data.mask = n == 4 ? call.Data(3) : nullptr;
  data.result = call.Data(n);
  data.log_sum = call.Numbers(n + 1);
  cuda::Place place = cuda::PlaceOf(call.tensors[n]);
  if (static_cast<int64_t>(call.tensors.size()) > n + 2) {
    place.workspace = call.Data(n + 2);
    place.bytes = static_cast<size_t>(call.tensors[n + 2].numel());
  }
  cuda::AttendTraining(call.shape, place, data);
}

void AttentionGrad(ffi::PackedArgs args) {
  Call call = Parse(args, 6, 3);
  const int64_t n = call.operands;
  TakeShape(args, call.tensors[n - 1], call.tensors[n - 2], call);
  if (n == 7) TakeMask(call.tensors[3], call.shape);
  cuda::TrainingData data;
  data.q = call.Data(0);
  data.k = call.Data(1);
  data.v = call.Data(2);
  data.mask = n == 7 ? call.Data(3) : nullptr;
  data.log_sum = call.Numbers(n - 3);
  data.share = call.Numbers(n - 2);
  data.g = call.Data(n - 1);
  data.of_q = call.Data(n);
  data.of_k = call.Data(n + 1);
  data.of_v = call.Data(n + 2);
  cuda::AttendGrad(call.shape, cuda::PlaceOf(call.tensors[n]), data);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::Function::SetGlobal("memc.cuda.attention_training",
                           cuda::Named<Attention>("memc.cuda.attention_training"), true);
  ffi::Function::SetGlobal("memc.cuda.attention_grad",
                           cuda::Named<AttentionGrad>("memc.cuda.attention_grad"), true);
}
