// SPDX-License-Identifier: Apache-2.0
// Scatters on CUDA, as packed functions, by memc's own kernels; memc.cuda.add_kernels
// (cuda_library_kernels.cc) must have brought them.
//
//   memc.cuda.scatter_elements(data, indices, updates, y, workspace?, axis, reduction, number)
//   memc.cuda.scatter_elements_combine(indices, updates, y, workspace?, axis, reduction, number)
//   memc.cuda.scatter_nd(data, indices, updates, y, workspace?, reduction, number)
//   memc.cuda.scatter_nd_combine(indices, updates, y, workspace?, reduction, number)
//   memc.cuda.gather_grad(indices, g, y, workspace?, axis, number)
//
// `reduction`: 0 none, 1 sum, 2 product, 3 greatest, 4 least; `number`: what the updates are, 0
// unsigned, 1 signed, 2 float, 3 brain float, which are handed over as u16. Without data, `none`
// writes positions.
#include "cuda/cuda_scatters.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "exports/cuda_packed.h"

namespace {

namespace ffi = tvm::ffi;
namespace cuda = memc::cuda;
using cuda::Require;

std::vector<int64_t> ShapeOf(const ffi::TensorView& t) {
  return {t.shape().begin(), t.shape().end()};
}

// The arguments of a scatter with so many scalars, of data or of none.
struct Call {
  ffi::PackedArgs args;
  int scalars;
  bool has_data;

  int Tensors() const { return has_data ? 4 : 3; }
  ffi::TensorView Tensor(int i) const {
    return args[i + (has_data ? 1 : 0)].cast<ffi::TensorView>();
  }
  int64_t Scalar(int i) const { return args[args.size() - scalars + i].cast<int64_t>(); }

  cuda::Place Place() const {
    const int rest = args.size() - Tensors() - scalars;
    Require(rest == 0 || rest == 1, "expected operands, a result and at most a workspace");
    cuda::Place place = cuda::PlaceOf(Tensor(2));
    if (rest == 1) {
      const auto workspace = args[Tensors()].cast<ffi::TensorView>();
      place.workspace = cuda::DataOf(workspace);
      place.bytes = static_cast<size_t>(workspace.numel());
    }
    return place;
  }

  // All but the places.
  cuda::Scattered Updates(int64_t reduction, int64_t number) const {
    const DLDataType type = Tensor(0).dtype();
    Require(type.code == kDLInt && type.lanes == 1 && (type.bits == 32 || type.bits == 64),
            "expected indices of i32 or i64");
    Require(reduction >= 0 && reduction <= 4 && number >= 0 && number <= 3,
            "expected a reduction and a number");
    cuda::Scattered s;
    s.indices = cuda::DataOf(Tensor(0));
    s.is_wide = type.bits == 64;
    s.reduction = reduction;
    s.positions = !has_data && reduction == 0;
    s.bytes = Tensor(1).dtype().bits / 8;
    s.number = number;
    s.result_bytes = Tensor(2).dtype().bits / 8;
    s.updates = cuda::DataOf(Tensor(1));
    s.start = has_data ? cuda::DataOf(args[0].cast<ffi::TensorView>()) : nullptr;
    s.result = cuda::DataOf(Tensor(2));
    for (const int64_t bytes : {s.bytes, s.result_bytes}) {
      Require(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8, "expected 1, 2, 4 or 8 bytes");
    }
    return s;
  }
};

void OfElements(const Call& call) {
  cuda::Scattered s = call.Updates(call.Scalar(1), call.Scalar(2));
  s.from = ShapeOf(call.Tensor(0));
  s.to = ShapeOf(call.Tensor(2));
  s.axis = call.Scalar(0);
  s.count = call.Tensor(1).numel();
  Require(s.from.size() == s.to.size() && s.axis >= 0 &&
              s.axis < static_cast<int64_t>(s.to.size()) && ShapeOf(call.Tensor(1)) == s.from,
          "the operands do not fit each other");
  cuda::ScatterUpdates(s, call.Place());
}

void OfRows(const Call& call) {
  cuda::Scattered s = call.Updates(call.Scalar(0), call.Scalar(1));
  const std::vector<int64_t> from = ShapeOf(call.Tensor(0));
  const std::vector<int64_t> to = ShapeOf(call.Tensor(2));
  Require(!from.empty() && from.back() >= 1 && from.back() <= static_cast<int64_t>(to.size()),
          "expected indices with an axis of coordinates");
  s.to = {to.begin(), to.begin() + from.back()};
  s.count = call.Tensor(0).numel() / from.back();
  for (auto size = to.begin() + from.back(); size != to.end(); ++size) s.row *= *size;
  Require(call.Tensor(1).numel() == s.count * s.row, "the operands do not fit each other");
  cuda::ScatterUpdates(s, call.Place());
}

void ScatterElements(ffi::PackedArgs args) { OfElements({args, 3, true}); }
void ElementsCombine(ffi::PackedArgs args) { OfElements({args, 3, false}); }
void ScatterNd(ffi::PackedArgs args) { OfRows({args, 2, true}); }
void NdCombine(ffi::PackedArgs args) { OfRows({args, 2, false}); }

void GatherGrad(ffi::PackedArgs args) {
  const Call call{args, 2, false};
  const ffi::TensorView out = call.Tensor(2);
  const auto axis = static_cast<int>(call.Scalar(0));
  Require(axis >= 0 && axis < out.ndim(), "expected an axis of the result");
  cuda::Scattered s = call.Updates(1, call.Scalar(1));
  s.count = call.Tensor(0).numel();
  s.to = {out.size(axis)};
  for (int i = 0; i < axis; ++i) s.lead *= out.size(i);
  for (int i = axis + 1; i < out.ndim(); ++i) s.row *= out.size(i);
  Require(call.Tensor(1).numel() == s.lead * s.count * s.row, "the operands do not fit each other");
  cuda::ScatterUpdates(s, call.Place());
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  const auto add = [](const char* symbol, const ffi::Function& function) {
    ffi::Function::SetGlobal(symbol, function, true);
  };
  add("memc.cuda.scatter_elements", cuda::Named<ScatterElements>("memc.cuda.scatter_elements"));
  add("memc.cuda.scatter_elements_combine",
      cuda::Named<ElementsCombine>("memc.cuda.scatter_elements_combine"));
  add("memc.cuda.scatter_nd", cuda::Named<ScatterNd>("memc.cuda.scatter_nd"));
  add("memc.cuda.scatter_nd_combine", cuda::Named<NdCombine>("memc.cuda.scatter_nd_combine"));
  add("memc.cuda.gather_grad", cuda::Named<GatherGrad>("memc.cuda.gather_grad"));
}
