// SPDX-License-Identifier: Apache-2.0
// The doors to offload for Python. Arrays are one-dimensional contiguous i64 host tensors.
#include "solvers/offload/offload.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "exports/ffi_arrays.h"
#include "exports/lane_numbers.h"
#include "exports/recompute_columns.h"

namespace {

namespace ffi = tvm::ffi;
using memc::Int64s;
using memc::Tensors;

// `lanes`: those of copies out and of copies in, and the host budget, negative for none.
memc::OffloadProblem MakeProblem(const Tensors& columns, const ffi::Tensor& movable,
                                 const ffi::Tensor& lanes) {
  memc::OffloadProblem problem;
  problem.ops = memc::MakeRecomputeProblem(columns);
  memc::Validate(problem.ops);
  const auto values = static_cast<int64_t>(problem.ops.sizes.size());
  const std::vector<int64_t> may = memc::Numbers(movable, values, "movable");
  problem.movable.assign(may.begin(), may.end());
  const std::vector<int64_t> numbers = memc::Numbers(lanes, memc::kLaneNumbers, "lanes");
  problem.lanes = memc::MakeLanes(numbers, problem.ops.sizes);
  if (numbers.back() >= 0) problem.host_budget = numbers.back();
  return problem;
}

// The figures in the order of `memc.solvers.offload.Schedule`, then step and number of each item.
// As bytes of i64: an array of numbers would be an object for each.
ffi::Bytes Flat(const memc::Schedule& plan) {
  std::vector<int64_t> found{plan.peak,       plan.copied_peak, plan.makespan, plan.computing,
                             plan.added_cost, plan.bytes_out,   plan.bytes_in};
  found.reserve(found.size() + 2 * plan.items.size());
  for (const memc::Item& item : plan.items) {
    found.push_back(static_cast<int64_t>(item.step));
    found.push_back(item.number);
  }
  return ffi::Bytes(reinterpret_cast<const char*>(found.data()), found.size() * sizeof(found[0]));
}

ffi::Array<ffi::Bytes> OffloadLadder(Tensors columns, ffi::Tensor movable, ffi::Tensor lanes,
                                     int64_t lowest, int64_t bound) {
  return memc::Translate([&] {
    ffi::Array<ffi::Bytes> found;
    const memc::OffloadProblem problem = MakeProblem(columns, movable, lanes);
    for (const memc::Schedule& plan : memc::OffloadLadder(problem, lowest, bound)) {
      found.push_back(Flat(plan));
    }
    return found;
  });
}

// `items`: step and number of each.
ffi::Bytes MeasureSchedule(Tensors columns, ffi::Tensor movable, ffi::Tensor lanes,
                           ffi::Tensor items) {
  return memc::Translate([&] {
    const memc::OffloadProblem problem = MakeProblem(columns, movable, lanes);
    const std::vector<int64_t> numbers = memc::Numbers(items, -1, "items");
    std::vector<memc::Item> list;
    for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
      if (numbers[i] < 0 || numbers[i] > static_cast<int64_t>(memc::Step::kInDone)) {
        throw std::invalid_argument("no step " + std::to_string(numbers[i]));
      }
      list.push_back({static_cast<memc::Step>(numbers[i]), static_cast<int32_t>(numbers[i + 1])});
    }
    return Flat(memc::MeasureSchedule(problem, std::move(list)));
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_offload_ladder, OffloadLadder);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_measure_schedule, MeasureSchedule);
