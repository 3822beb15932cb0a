// SPDX-License-Identifier: Apache-2.0
// What goes along the lines of one axis of a tensor on the CPU, as packed functions.
//
//   memc.cpu.top_k(x, values, positions, workspace?, axis, number, descending)
//   memc.cpu.sort_ranks(x, ranks, workspace?, axis, number, descending)
//   memc.cpu.rank_positions(ranks, positions, axis)
//   memc.cpu.cumsum(x, y, axis, exclusive, reverse), and cumprod
//
// `number`: which of memc::Number the elements of x are, as brain floats are handed over as u16.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <stdexcept>
#include <string>

#include "exports/cpu_packed.h"
#include "kernels/running_product.h"
#include "kernels/running_sum.h"
#include "kernels/sorts.h"

namespace {

namespace ffi = tvm::ffi;
using memc::Elements;

// The lines of a tensor along an axis.
memc::Lines LinesOf(const ffi::TensorView& t, int64_t axis) {
  if (axis < 0 || axis >= t.ndim()) throw std::invalid_argument("expected an axis of the tensor");
  memc::Lines lines{1, t.size(axis), 1};
  for (int64_t i = 0; i < axis; ++i) lines.lead *= t.size(i);
  for (int64_t i = axis + 1; i < t.ndim(); ++i) lines.trail *= t.size(i);
  return lines;
}

// Whether `t` has the lines of `s`, with `extent` elements each.
void RequireLines(const memc::Lines& s, int64_t extent, const ffi::TensorView& t, int64_t axis) {
  const memc::Lines own = LinesOf(t, axis);
  if (own.lead != s.lead || own.trail != s.trail || own.extent != extent) {
    throw std::invalid_argument("the shapes do not fit each other");
  }
}

int64_t* Int64s(const ffi::TensorView& t) {
  const DLDataType type = t.dtype();
  if (type.code != kDLInt || type.bits != 64) throw std::invalid_argument("expected i64");
  return Elements<int64_t>(t);
}

memc::SortedElements ToSort(const ffi::TensorView& x, int64_t number, bool descending) {
  const int64_t bytes = x.dtype().bits / 8;
  if (x.dtype().lanes != 1 || bytes * 8 != x.dtype().bits || number < 0 || number > 3) {
    throw std::invalid_argument("expected numbers of 1, 2, 4 or 8 bytes");
  }
  return {Elements<const char>(x), bytes, static_cast<memc::Number>(number), descending};
}

// The argument at `index`, if that comes before the `scalars` last ones. It must have `least`
// bytes.
memc::Workspace WorkspaceOf(const ffi::PackedArgs& args, int index, int scalars, int64_t least,
                            const char* symbol) {
  memc::Workspace found{nullptr, 0};
  if (args.size() == index + 1 + scalars) {
    const auto t = args[index].cast<ffi::TensorView>();
    found = {Elements<char>(t), t.numel()};
  }
  if (found.bytes < least) {
    throw std::invalid_argument(std::string(symbol) + ": expected a workspace of " +
                                std::to_string(least) + " bytes or more, got " +
                                std::to_string(found.bytes));
  }
  return found;
}

void TopK(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const auto x = args[0].cast<ffi::TensorView>();
  const auto values = args[1].cast<ffi::TensorView>();
  const auto positions = args[2].cast<ffi::TensorView>();
  const int first = args.size() - 3;
  const auto axis = args[first].cast<int64_t>();
  const memc::Lines lines = LinesOf(x, axis);
  const int64_t count = LinesOf(values, axis).extent;
  RequireLines(lines, count, values, axis);
  RequireLines(lines, count, positions, axis);
  if (count > lines.extent || lines.extent > memc::kLongestLine) {
    throw std::invalid_argument("expected lines of at least k elements");
  }
  if (values.numel() == 0) return;
  const auto sorted =
      ToSort(x, args[first + 1].cast<int64_t>(), args[first + 2].cast<int64_t>() != 0);
  memc::TopK(lines, count, sorted, Elements<char>(values), Int64s(positions),
             WorkspaceOf(args, 3, 3, memc::TopKRoom(lines, count, sorted.bytes), "memc.cpu.top_k"));
}

void SortRanks(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const auto x = args[0].cast<ffi::TensorView>();
  const auto ranks = args[1].cast<ffi::TensorView>();
  const int first = args.size() - 3;
  const auto axis = args[first].cast<int64_t>();
  const memc::Lines lines = LinesOf(x, axis);
  RequireLines(lines, lines.extent, ranks, axis);
  if (lines.extent > memc::kLongestLine) throw std::invalid_argument("the line is too long");
  if (x.numel() == 0) return;
  const auto sorted =
      ToSort(x, args[first + 1].cast<int64_t>(), args[first + 2].cast<int64_t>() != 0);
  memc::SortRanks(
      lines, sorted, Int64s(ranks),
      WorkspaceOf(args, 2, 3, memc::RanksRoom(lines, sorted.bytes), "memc.cpu.sort_ranks"));
}

void RankPositions(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const auto ranks = args[0].cast<ffi::TensorView>();
  const auto positions = args[1].cast<ffi::TensorView>();
  const auto axis = args[2].cast<int64_t>();
  const memc::Lines lines = LinesOf(ranks, axis);
  const int64_t count = LinesOf(positions, axis).extent;
  RequireLines(lines, count, positions, axis);
  if (positions.numel() == 0) return;
  memc::RankPositions(lines, count, Int64s(ranks), Int64s(positions));
}

void Scan(const ffi::PackedArgs& args, bool product) {
  const auto x = args[0].cast<ffi::TensorView>();
  const auto y = args[1].cast<ffi::TensorView>();
  const auto axis = args[2].cast<int64_t>();
  const memc::Lines lines = LinesOf(x, axis);
  RequireLines(lines, lines.extent, y, axis);
  const auto run = [&](auto one) {
    using T = decltype(one);
    const auto scan = product ? memc::RunningProduct<T> : memc::RunningSum<T>;
    scan(lines, args[3].cast<int64_t>() != 0, args[4].cast<int64_t>() != 0, Elements<const T>(x),
         Elements<T>(y));
  };
  const bool is_float = x.dtype().code == kDLFloat;
  const int bits = x.dtype().bits;
  if (is_float && bits == 32) return run(float{});
  if (is_float && bits == 64) return run(double{});
  if (!is_float && bits == 8) return run(uint8_t{});
  if (!is_float && bits == 16) return run(uint16_t{});
  if (!is_float && bits == 32) return run(uint32_t{});
  if (!is_float && bits == 64) return run(uint64_t{});
  throw std::invalid_argument("expected f32, f64 or integers");
}

void CumSum(ffi::PackedArgs args, ffi::Any* /*result*/) { Scan(args, false); }
void CumProd(ffi::PackedArgs args, ffi::Any* /*result*/) { Scan(args, true); }

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def_packed("memc.cpu.top_k", memc::Guarded<TopK>)
      .def_packed("memc.cpu.sort_ranks", memc::Guarded<SortRanks>)
      .def_packed("memc.cpu.rank_positions", memc::Guarded<RankPositions>)
      .def_packed("memc.cpu.cumsum", memc::Guarded<CumSum>)
      .def_packed("memc.cpu.cumprod", memc::Guarded<CumProd>);
}
