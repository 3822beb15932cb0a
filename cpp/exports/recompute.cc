// SPDX-License-Identifier: Apache-2.0
// The doors to recomputation for Python. Arrays are one-dimensional contiguous i64 host
// tensors.
#include "solvers/recompute/recompute.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "exports/ffi_arrays.h"
#include "exports/ffi_rows.h"

namespace {

namespace ffi = tvm::ffi;
using memc::Int64s;
using Tensors = ffi::Array<ffi::Tensor>;

std::vector<int64_t> Numbers(const ffi::Tensor& array, int64_t length, const char* what) {
  const int64_t* from = Int64s(array, length, what);
  return {from, from + array.size(0)};
}

// `columns`: sizes, costs, once, scratch; then first and index of reads, makes, over, parts, until;
// in_order.
memc::RecomputeProblem MakeProblem(const Tensors& columns) {
  if (columns.size() != 15) throw std::invalid_argument("expected 15 columns");
  memc::RecomputeProblem problem;
  problem.sizes = Numbers(columns[0], -1, "sizes");
  problem.costs = Numbers(columns[1], -1, "costs");
  const auto ops = static_cast<int64_t>(problem.costs.size());
  const std::vector<int64_t> once = Numbers(columns[2], ops, "once");
  problem.once.assign(once.begin(), once.end());
  problem.scratch = Numbers(columns[3], ops, "scratch");
  problem.reads = memc::MakeRows(columns[4], columns[5], ops, "value read");
  problem.makes = memc::MakeRows(columns[6], columns[7], ops, "value made");
  problem.over = memc::MakeRows(columns[8], columns[9], ops, "value taken over");
  problem.parts = memc::MakeRows(columns[10], columns[11], ops, "part");
  problem.until = memc::MakeRows(columns[12], columns[13], ops, "last op");
  problem.in_order = Numbers(columns[14], 1, "in_order").front() != 0;
  return problem;
}

std::vector<int32_t> MakeSequence(const ffi::Tensor& sequence) {
  const int64_t* from = Int64s(sequence, -1, "sequence");
  return {from, from + sequence.size(0)};
}

// Peak, added cost, then the ops in execution order.
ffi::Array<int64_t> Flat(const memc::RecomputePlan& plan) {
  ffi::Array<int64_t> found{plan.peak, plan.added_cost};
  for (int32_t op : plan.sequence) found.push_back(op);
  return found;
}

ffi::Array<ffi::Array<int64_t>> RecomputeLadder(Tensors columns, int64_t lowest, int64_t bound) {
  return memc::Translate([&] {
    ffi::Array<ffi::Array<int64_t>> found;
    for (const memc::RecomputePlan& plan :
         memc::RecomputeLadder(MakeProblem(columns), lowest, bound)) {
      found.push_back(Flat(plan));
    }
    return found;
  });
}

// Peak and added cost, by definition.
ffi::Array<int64_t> MeasureSequence(Tensors columns, ffi::Tensor sequence) {
  return memc::Translate([&] {
    const memc::RecomputeProblem problem = MakeProblem(columns);
    memc::Validate(problem);
    const memc::RecomputePlan plan = memc::MeasureSequence(problem, MakeSequence(sequence));
    return ffi::Array<int64_t>{plan.peak, plan.added_cost};
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_recompute_ladder, RecomputeLadder);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_measure_sequence, MeasureSequence);
