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
#include "exports/recompute_columns.h"

namespace {

namespace ffi = tvm::ffi;
using memc::Int64s;
using memc::Tensors;

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
    const memc::RecomputeProblem problem = memc::MakeRecomputeProblem(columns);
    problem.watch.Expect(memc::Descending::kParts);
    for (const memc::RecomputePlan& plan : memc::RecomputeLadder(problem, lowest, bound)) {
      found.push_back(Flat(plan));
    }
    return found;
  });
}

// Peak and added cost, by definition.
ffi::Array<int64_t> MeasureSequence(Tensors columns, ffi::Tensor sequence) {
  return memc::Translate([&] {
    const memc::RecomputeProblem problem = memc::MakeRecomputeProblem(columns);
    memc::Validate(problem);
    const memc::RecomputePlan plan = memc::MeasureSequence(problem, MakeSequence(sequence));
    return ffi::Array<int64_t>{plan.peak, plan.added_cost};
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_recompute_ladder, RecomputeLadder);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_measure_sequence, MeasureSequence);
