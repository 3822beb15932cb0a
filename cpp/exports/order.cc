// SPDX-License-Identifier: Apache-2.0
// The order solvers' doors for Python. Arrays are one-dimensional contiguous i64 host tensors.
#include "solvers/order/order.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <limits>
#include <string>

#include "exports/ffi_arrays.h"
#include "exports/ffi_rows.h"
#include "solvers/order/order_bound.h"

namespace {

namespace ffi = tvm::ffi;
using memc::Int64s;

memc::OrderProblem MakeProblem(ffi::TensorView sizes, ffi::TensorView kept,
                               ffi::TensorView touch_first, ffi::TensorView touch_index,
                               ffi::TensorView after_first, ffi::TensorView after_index,
                               ffi::TensorView scratch) {
  memc::OrderProblem problem;
  const int64_t storages = sizes.size(0);
  const int64_t* size = Int64s(sizes, -1, "sizes");
  problem.sizes.assign(size, size + storages);
  const int64_t* keep = Int64s(kept, storages, "kept");
  problem.kept.assign(keep, keep + storages);
  const int64_t ops = scratch.size(0);
  const int64_t* bytes = Int64s(scratch, -1, "scratch");
  problem.scratch.assign(bytes, bytes + ops);
  problem.touches = memc::MakeRows(touch_first, touch_index, ops, "storage");
  problem.after = memc::MakeRows(after_first, after_index, ops, "dependency");
  memc::Validate(problem);
  return problem;
}

// Writes the order and returns [peak, lower bound, work], in bytes and steps.
ffi::Array<int64_t> SolveOrder(ffi::String solver, ffi::TensorView sizes, ffi::TensorView kept,
                               ffi::TensorView touch_first, ffi::TensorView touch_index,
                               ffi::TensorView after_first, ffi::TensorView after_index,
                               ffi::TensorView scratch, double time_limit, int64_t beam_width,
                               int64_t target, int64_t work, double slack, int64_t worth,
                               ffi::TensorView watch, ffi::TensorView order) {
  return memc::Translate([&] {
    const memc::OrderProblem problem =
        MakeProblem(sizes, kept, touch_first, touch_index, after_first, after_index, scratch);
    int64_t* out = Int64s(order, problem.ops(), "order");
    memc::OrderOptions options;
    options.time_limit = time_limit;
    options.beam_width = beam_width;
    options.target = target;
    options.work = work;
    options.slack = slack;
    options.worth = worth;
    options.watch = memc::MakeWatch(watch);
    const memc::OrderResult result = memc::FindOrderSolver(std::string(solver))(problem, options);
    std::copy(result.order.begin(), result.order.end(), out);
    return ffi::Array<int64_t>{result.peak, result.lower_bound, result.work};
  });
}

int64_t OrderPeak(ffi::TensorView sizes, ffi::TensorView kept, ffi::TensorView touch_first,
                  ffi::TensorView touch_index, ffi::TensorView after_first,
                  ffi::TensorView after_index, ffi::TensorView scratch, ffi::TensorView order) {
  return memc::Translate([&] {
    const memc::OrderProblem problem =
        MakeProblem(sizes, kept, touch_first, touch_index, after_first, after_index, scratch);
    const int64_t* at = Int64s(order, -1, "order");
    return memc::OrderPeak(problem, std::vector<int32_t>(at, at + order.size(0)));
  });
}

int64_t OrderLowerBound(ffi::TensorView sizes, ffi::TensorView kept, ffi::TensorView touch_first,
                        ffi::TensorView touch_index, ffi::TensorView after_first,
                        ffi::TensorView after_index, ffi::TensorView scratch, ffi::TensorView order,
                        int64_t work, double time_limit) {
  return memc::Translate([&] {
    const memc::OrderProblem problem =
        MakeProblem(sizes, kept, touch_first, touch_index, after_first, after_index, scratch);
    const int64_t* at = Int64s(order, problem.ops(), "order");
    memc::WorkBudget budget(work, time_limit);
    return memc::OrderLowerBound(problem, std::vector<int32_t>(at, at + problem.ops()), &budget);
  });
}

// Writes, for each op, the fewest bytes live while it runs over all orders.
void OrderLeastLive(ffi::TensorView sizes, ffi::TensorView kept, ffi::TensorView touch_first,
                    ffi::TensorView touch_index, ffi::TensorView after_first,
                    ffi::TensorView after_index, ffi::TensorView scratch, ffi::TensorView least) {
  memc::Translate([&] {
    const memc::OrderProblem problem =
        MakeProblem(sizes, kept, touch_first, touch_index, after_first, after_index, scratch);
    int64_t* out = Int64s(least, problem.ops(), "least");
    memc::LiveCuts cuts(problem);
    memc::WorkBudget budget(std::numeric_limits<int64_t>::max(), -1);
    for (int32_t op = 0; op < problem.ops(); ++op) {
      out[op] = cuts.At(op, std::numeric_limits<int64_t>::max(), &budget);
    }
    return 0;
  });
}

ffi::Array<ffi::String> OrderSolverNames() {
  ffi::Array<ffi::String> names;
  for (const memc::OrderSolverEntry& entry : memc::OrderSolverTable()) names.push_back(entry.name);
  return names;
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_solve_order, SolveOrder);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_order_peak, OrderPeak);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_order_lower_bound, OrderLowerBound);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_order_least_live, OrderLeastLive);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_order_solver_names, OrderSolverNames);
