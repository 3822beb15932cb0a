// SPDX-License-Identifier: Apache-2.0
// What goes along the lines of one axis of a tensor on CUDA, as packed functions, by memc's own
// kernels; memc.cuda.add_kernels (cuda_library_kernels.cc) must have brought them.
//
//   memc.cuda.top_k(x, values, positions, workspace?, axis, number, descending)
//   memc.cuda.sort_ranks(x, ranks, workspace?, axis, number, descending)
//   memc.cuda.rank_positions(ranks, positions, axis)
//   memc.cuda.cumsum(x, y, workspace?, axis, exclusive, reverse), and cumprod
//
// `number`: 0 for unsigned elements, 1 signed, 2 float, 3 brain float, which are handed over as
// u16.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "cuda/cuda_scans.h"
#include "cuda/cuda_sorts.h"
#include "exports/cuda_packed.h"

namespace {

namespace ffi = tvm::ffi;
namespace cuda = memc::cuda;
using cuda::Require;

cuda::Lines LinesOf(const ffi::TensorView& t, int64_t axis) {
  Require(axis >= 0 && axis < t.ndim(), "expected an axis of the tensor");
  const auto at = static_cast<int>(axis);
  cuda::Lines lines{1, t.size(at), 1};
  for (int i = 0; i < at; ++i) lines.lead *= t.size(i);
  for (int i = at + 1; i < t.ndim(); ++i) lines.trail *= t.size(i);
  return lines;
}

// Throws unless `t` has the lines of `s`, with `extent` elements each.
void RequireLines(const cuda::Lines& s, int64_t extent, const ffi::TensorView& t, int64_t axis) {
  const cuda::Lines own = LinesOf(t, axis);
  Require(own.lead == s.lead && own.trail == s.trail && own.extent == extent,
          "the shapes do not fit each other");
}

int64_t* Int64s(const ffi::TensorView& t) {
  Require(t.dtype().code == kDLInt && t.dtype().bits == 64, "expected i64");
  return static_cast<int64_t*>(cuda::DataOf(t));
}

// The arguments of a call with so many tensors before its workspace, if it has one, and scalars.
struct Call {
  ffi::PackedArgs args;
  int tensors, scalars;

  ffi::TensorView Tensor(int i) const { return args[i].cast<ffi::TensorView>(); }
  int64_t Scalar(int i) const { return args[args.size() - scalars + i].cast<int64_t>(); }
  cuda::Place Place() const {
    const int rest = args.size() - tensors - scalars;
    Require(rest == 0 || rest == 1, "expected operands, results and at most a workspace");
    cuda::Place place = cuda::PlaceOf(Tensor(1));
    if (rest == 1) {
      place.workspace = cuda::DataOf(Tensor(tensors));
      place.bytes = static_cast<size_t>(Tensor(tensors).numel());
    }
    return place;
  }
};

cuda::Sorted SortedOf(const Call& call) {
  const ffi::TensorView x = call.Tensor(0);
  const DLDataType type = x.dtype();
  const int64_t number = call.Scalar(1);
  Require(type.lanes == 1 && number >= 0 && number <= 3 &&
              (type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64),
          "expected numbers of 1, 2, 4 or 8 bytes");
  return {cuda::DataOf(x), type.bits / 8, number, call.Scalar(2) != 0};
}

void TopK(ffi::PackedArgs args) {
  const Call call{args, 3, 3};
  const ffi::TensorView values = call.Tensor(1);
  const ffi::TensorView positions = call.Tensor(2);
  const int64_t axis = call.Scalar(0);
  const cuda::Lines lines = LinesOf(call.Tensor(0), axis);
  const int64_t count = LinesOf(values, axis).extent;
  RequireLines(lines, count, values, axis);
  RequireLines(lines, count, positions, axis);
  Require(count <= lines.extent, "expected lines of at least k elements");
  cuda::SortLines(lines, count, call.Place(), SortedOf(call), cuda::DataOf(values),
                  Int64s(positions));
}

void SortRanks(ffi::PackedArgs args) {
  const Call call{args, 2, 3};
  const ffi::TensorView ranks = call.Tensor(1);
  const int64_t axis = call.Scalar(0);
  const cuda::Lines lines = LinesOf(call.Tensor(0), axis);
  RequireLines(lines, lines.extent, ranks, axis);
  cuda::SortLines(lines, lines.extent, call.Place(), SortedOf(call), nullptr, Int64s(ranks));
}

void RankPositions(ffi::PackedArgs args) {
  const Call call{args, 2, 1};
  const int64_t axis = call.Scalar(0);
  const cuda::Lines lines = LinesOf(call.Tensor(0), axis);
  const int64_t count = LinesOf(call.Tensor(1), axis).extent;
  RequireLines(lines, count, call.Tensor(1), axis);
  cuda::InvertLines(lines, count, call.Place(), Int64s(call.Tensor(0)), Int64s(call.Tensor(1)));
}

void Scan(ffi::PackedArgs args, bool product) {
  const Call call{args, 2, 3};
  const ffi::TensorView x = call.Tensor(0);
  const ffi::TensorView y = call.Tensor(1);
  const int64_t axis = call.Scalar(0);
  cuda::Scan scan;
  scan.lines = LinesOf(x, axis);
  RequireLines(scan.lines, scan.lines.extent, y, axis);
  const DLDataType type = x.dtype();
  scan.is_float = type.code == kDLFloat;
  scan.bytes = type.bits / 8;
  Require(type.lanes == 1 && y.dtype().bits == type.bits &&
              (!scan.is_float || type.bits == 32 || type.bits == 64),
          "expected f32, f64 or integers");
  scan.product = product;
  scan.exclusive = call.Scalar(1) != 0;
  scan.reverse = call.Scalar(2) != 0;
  cuda::ScanLines(scan, call.Place(), cuda::DataOf(x), cuda::DataOf(y));
}

void CumSum(ffi::PackedArgs args) { Scan(args, false); }
void CumProd(ffi::PackedArgs args) { Scan(args, true); }

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  const auto add = [](const char* symbol, const ffi::Function& function) {
    ffi::Function::SetGlobal(symbol, function, true);
  };
  add("memc.cuda.top_k", cuda::Named<TopK>("memc.cuda.top_k"));
  add("memc.cuda.sort_ranks", cuda::Named<SortRanks>("memc.cuda.sort_ranks"));
  add("memc.cuda.rank_positions", cuda::Named<RankPositions>("memc.cuda.rank_positions"));
  add("memc.cuda.cumsum", cuda::Named<CumSum>("memc.cuda.cumsum"));
  add("memc.cuda.cumprod", cuda::Named<CumProd>("memc.cuda.cumprod"));
}
