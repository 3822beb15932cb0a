// SPDX-License-Identifier: Apache-2.0
// Attention by memc's own CUDA kernels as a packed function, which registers itself when this
// library is loaded; memc.cuda.add_kernels (cuda_library_kernels.cc) must have brought the kernels.
//
//   memc.cuda.attention(q, k, v, mask?, result, axis, scale)
//
// All tensors are f32. `axis` is that of positions: the last one are columns, and the others tell
// heads apart. `scale` is a float.
#include "cuda/cuda_attention.h"

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

void Attention(ffi::PackedArgs args) {
  std::vector<ffi::TensorView> tensors;
  for (int i = 0; i + 2 < args.size(); ++i) tensors.push_back(args[i].cast<ffi::TensorView>());
  Require(tensors.size() == 4 || tensors.size() == 5, "expected q, k, v, maybe a mask, a result");
  const auto axis = args[args.size() - 2].cast<int64_t>();
  const ffi::TensorView &q = tensors[0], &k = tensors[1], &v = tensors[2], &y = tensors.back();
  const int rank = q.ndim();
  Require(rank >= 2 && rank <= 4 && axis >= 0 && axis < rank - 1, "expected rank 2, 3 or 4");
  for (const ffi::TensorView& t : tensors) {
    Require(t.dtype().code == kDLFloat && t.dtype().bits == 32 && t.dtype().lanes == 1,
            "expected tensors of f32");
    Require(t.ndim() <= rank, "expected operands of one rank");
  }
  const std::array<int, 2> heads = cuda::HeadAxes(axis, rank);
  const auto row = static_cast<int>(axis);
  for (const ffi::TensorView* t : {&k, &v, &y}) {
    Require(t->ndim() == rank && Extent(*t, heads[0]) == Extent(q, heads[0]) &&
                Extent(*t, heads[1]) == Extent(q, heads[1]),
            "expected as many heads of each operand");
  }
  Require(v.size(row) == k.size(row) && y.size(row) == q.size(row) && k.size(-1) == q.size(-1) &&
              y.size(-1) == v.size(-1),
          "the operands' shapes do not fit the result's");
  cuda::Attention a;
  a.scale = static_cast<float>(args[args.size() - 1].cast<double>());
  a.outer = Extent(q, heads[0]);
  a.inner = Extent(q, heads[1]);
  a.queries = q.size(row);
  a.keys = k.size(row);
  a.depth = q.size(-1);
  a.width = v.size(-1);
  a.q = StridesOf(q, heads, axis);
  a.k = StridesOf(k, heads, axis);
  a.v = StridesOf(v, heads, axis);
  a.result = StridesOf(y, heads, axis);
  if (tensors.size() == 5) {
    const std::array<int64_t, 4> steps =
        cuda::MaskSteps(tensors[3], {a.outer, a.inner, a.queries, a.keys});
    a.mask = {steps[0], steps[1], steps[2]};
    a.mask_column = steps[3];
  }
  const auto data = [](const ffi::TensorView& t) { return static_cast<float*>(cuda::DataOf(t)); };
  cuda::Attend(a, cuda::PlaceOf(y), data(q), data(k), data(v),
               tensors.size() == 5 ? data(tensors[3]) : nullptr, data(y));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::Function::SetGlobal("memc.cuda.attention", cuda::Named<Attention>("memc.cuda.attention"),
                           true);
}
