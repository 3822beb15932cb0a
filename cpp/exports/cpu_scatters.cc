// SPDX-License-Identifier: Apache-2.0
// Scatters on the CPU, as packed functions.
//
//   memc.cpu.scatter_elements(data, indices, updates, y, axis, reduction, number)
//   memc.cpu.scatter_elements_combine(indices, updates, y, axis, reduction, number)
//   memc.cpu.scatter_nd(data, indices, updates, y, reduction, number)
//   memc.cpu.scatter_nd_combine(indices, updates, y, reduction, number)
//   memc.cpu.gather_grad(indices, g, y, axis, number)
//
// `reduction`: which of memc::Reduction; `number`: which of memc::Number the updates are, as brain
// floats are handed over as u16. Without data, `none` writes positions.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <stdexcept>
#include <vector>

#include "exports/cpu_packed.h"
#include "kernels/scatters.h"

namespace {

namespace ffi = tvm::ffi;

void Require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

std::vector<int64_t> ShapeOf(const ffi::TensorView& t) {
  return {t.shape().begin(), t.shape().end()};
}

// The arguments of a scatter, of data or of none.
struct Call {
  ffi::PackedArgs args;
  bool has_data;

  ffi::TensorView Tensor(int i) const {
    return args[i + (has_data ? 1 : 0)].cast<ffi::TensorView>();
  }
  int64_t Scalar(int i) const { return Tensors(i).cast<int64_t>(); }
  ffi::AnyView Tensors(int i) const { return args[i + (has_data ? 4 : 3)]; }
  const void* Start() const {
    return has_data ? memc::Elements<const char>(args[0].cast<ffi::TensorView>()) : nullptr;
  }

  memc::Indices Indices() const {
    const DLDataType type = Tensor(0).dtype();
    Require(type.code == kDLInt && type.lanes == 1 && (type.bits == 32 || type.bits == 64),
            "expected indices of i32 or i64");
    return {memc::Elements<const char>(Tensor(0)), type.bits == 64};
  }

  memc::Updates Updates(int64_t reduction, int64_t number) const {
    Require(reduction >= 0 && reduction <= 4 && number >= 0 && number <= 3,
            "expected a reduction and a number");
    const ffi::TensorView given = Tensor(1);
    const int64_t bytes = given.dtype().bits / 8;
    Require(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8,
            "expected updates of 1 to 8 bytes");
    const auto kind = static_cast<memc::Reduction>(reduction);
    return {kind,
            !has_data && kind == memc::Reduction::kNone,
            bytes,
            static_cast<memc::Number>(number),
            Tensor(2).dtype().bits / 8,
            memc::Elements<const char>(given)};
  }
};

void OfElements(const Call& call) {
  memc::ElementPlaces places{call.Indices(), ShapeOf(call.Tensor(0)), ShapeOf(call.Tensor(2)),
                             call.Scalar(0)};
  Require(places.from.size() == places.to.size() && places.axis >= 0 &&
              places.axis < static_cast<int64_t>(places.to.size()) &&
              ShapeOf(call.Tensor(1)) == places.from,
          "the operands do not fit each other");
  if (call.Tensor(2).numel() == 0) return;
  memc::ScatterElements(places, call.Updates(call.Scalar(1), call.Scalar(2)), call.Start(),
                        memc::Elements<char>(call.Tensor(2)));
}

void OfRows(const Call& call) {
  const std::vector<int64_t> from = ShapeOf(call.Tensor(0));
  const std::vector<int64_t> to = ShapeOf(call.Tensor(2));
  Require(!from.empty() && from.back() >= 1 && from.back() <= static_cast<int64_t>(to.size()),
          "expected indices with an axis of coordinates");
  const int64_t count = call.Tensor(0).numel() / from.back();
  memc::RowPlaces places{call.Indices(), 1, count, 1, {to.begin(), to.begin() + from.back()}};
  for (auto size = to.begin() + from.back(); size != to.end(); ++size) places.row *= *size;
  Require(call.Tensor(1).numel() == count * places.row, "the operands do not fit each other");
  if (call.Tensor(2).numel() == 0) return;
  memc::ScatterRows(places, call.Updates(call.Scalar(0), call.Scalar(1)), call.Start(),
                    memc::Elements<char>(call.Tensor(2)));
}

void ScatterElements(ffi::PackedArgs args, ffi::Any* /*result*/) { OfElements({args, true}); }
void ElementsCombine(ffi::PackedArgs args, ffi::Any* /*result*/) { OfElements({args, false}); }
void ScatterNd(ffi::PackedArgs args, ffi::Any* /*result*/) { OfRows({args, true}); }
void NdCombine(ffi::PackedArgs args, ffi::Any* /*result*/) { OfRows({args, false}); }

void GatherGrad(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Call call{args, false};
  const ffi::TensorView g = call.Tensor(1);
  const ffi::TensorView out = call.Tensor(2);
  const int64_t axis = call.Scalar(0);
  Require(axis >= 0 && axis < out.ndim(), "expected an axis of the result");
  memc::RowPlaces places{call.Indices(), 1, call.Tensor(0).numel(), 1, {}};
  for (int64_t i = 0; i < axis; ++i) places.lead *= out.size(i);
  for (int64_t i = axis + 1; i < out.ndim(); ++i) places.row *= out.size(i);
  places.extents = {out.size(axis)};
  Require(g.numel() == places.lead * places.count * places.row,
          "the operands do not fit each other");
  if (out.numel() == 0) return;
  const auto add = static_cast<int64_t>(memc::Reduction::kAdd);
  memc::ScatterRows(places, call.Updates(add, call.Scalar(1)), nullptr, memc::Elements<char>(out));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def_packed("memc.cpu.scatter_elements", memc::Guarded<ScatterElements>)
      .def_packed("memc.cpu.scatter_elements_combine", memc::Guarded<ElementsCombine>)
      .def_packed("memc.cpu.scatter_nd", memc::Guarded<ScatterNd>)
      .def_packed("memc.cpu.scatter_nd_combine", memc::Guarded<NdCombine>)
      .def_packed("memc.cpu.gather_grad", memc::Guarded<GatherGrad>);
}
