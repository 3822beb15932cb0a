// SPDX-License-Identifier: Apache-2.0
// The solvers' doors for Python. Arrays are one-dimensional contiguous i64 tensors on the host.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "exports/ffi_arrays.h"
#include "solvers/placement/check.h"
#include "solvers/placement/conflict.h"
#include "solvers/placement/lower_bound.h"
#include "solvers/placement/solvers.h"

namespace {

namespace ffi = tvm::ffi;

using memc::Int64s;
using memc::Translate;

// `first`: where the bounds of each buffer begin in `lives`, and where the last end; each interval
// has two, its lower and its upper.
void AddLives(ffi::TensorView first, ffi::TensorView lives, memc::Problem& problem) {
  const auto n = static_cast<int64_t>(problem.buffers.size());
  const int64_t* start = Int64s(first, n + 1, "first intervals");
  const int64_t* bound = Int64s(lives, -1, "intervals");
  problem.lives.resize(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t count = start[i + 1] - start[i];
    if (start[i] < 0 || count < 0 || count % 2 != 0 || start[i + 1] > lives.size(0)) {
      throw std::invalid_argument("intervals of buffer " + std::to_string(i) +
                                  " are not pairs within the array");
    }
    for (int64_t k = start[i]; k < start[i + 1]; k += 2) {
      problem.lives[i].push_back({bound[k], bound[k + 1]});
    }
    const memc::Buffer& b = problem.buffers[i];
    const bool whole = count == 2 && bound[start[i]] == b.lower && bound[start[i] + 1] == b.upper;
    if (whole) problem.lives[i].clear();
  }
  const bool none = std::all_of(problem.lives.begin(), problem.lives.end(),
                                [](const std::vector<memc::Live>& all) { return all.empty(); });
  if (none) problem.lives.clear();
}

// Empty `own` and `first`: one alignment, no gaps. A negative fixed offset means that there is
// none.
memc::Problem MakeProblem(ffi::TensorView sizes, ffi::TensorView lowers, ffi::TensorView uppers,
                          ffi::TensorView fixed, ffi::TensorView own, ffi::TensorView first,
                          ffi::TensorView lives, int64_t alignment, int64_t capacity) {
  const int64_t* size = Int64s(sizes, -1, "sizes");
  const int64_t n = sizes.size(0);
  const int64_t* lower = Int64s(lowers, n, "lowers");
  const int64_t* upper = Int64s(uppers, n, "uppers");
  const int64_t* offset = Int64s(fixed, n, "fixed offsets");
  memc::Problem problem;
  problem.alignment = alignment;
  problem.capacity = capacity;
  problem.buffers.reserve(n);
  for (int64_t i = 0; i < n; ++i) {
    problem.buffers.push_back({size[i], lower[i], upper[i], std::nullopt});
    if (offset[i] >= 0) problem.buffers.back().offset = offset[i];
  }
  if (own.size(0) > 0) {
    const int64_t* bytes = Int64s(own, n, "alignments");
    const bool common = std::all_of(bytes, bytes + n, [&](int64_t b) { return b == alignment; });
    if (!common) problem.alignments.assign(bytes, bytes + n);
  }
  if (first.size(0) > 0) {
    AddLives(first, lives, problem);
  }
  return problem;
}

// Writes the offsets and returns [peak, lower bound], in bytes.
ffi::Array<int64_t> Solve(ffi::String solver, ffi::TensorView sizes, ffi::TensorView lowers,
                          ffi::TensorView uppers, ffi::TensorView fixed, ffi::TensorView own,
                          ffi::TensorView first, ffi::TensorView lives, int64_t alignment,
                          int64_t capacity, double time_limit, int64_t threads, bool one_round,
                          ffi::TensorView watch, ffi::TensorView offsets) {
  return Translate([&] {
    const memc::Problem problem =
        MakeProblem(sizes, lowers, uppers, fixed, own, first, lives, alignment, capacity);
    int64_t* out = Int64s(offsets, sizes.size(0), "offsets");
    memc::SolverOptions options;
    options.time_limit = time_limit;
    options.threads = threads;
    options.one_round = one_round;
    options.watch = memc::MakeWatch(watch);
    const memc::Outcome outcome = memc::FindSolver(std::string(solver))(problem, options);
    std::copy(outcome.solution.offsets.begin(), outcome.solution.offsets.end(), out);
    return ffi::Array<int64_t>{outcome.solution.peak, outcome.lower_bound};
  });
}

int64_t LowerBound(ffi::TensorView sizes, ffi::TensorView lowers, ffi::TensorView uppers,
                   ffi::TensorView fixed, ffi::TensorView own, ffi::TensorView first,
                   ffi::TensorView lives, int64_t alignment) {
  return Translate([&] {
    return memc::LowerBound(
        MakeProblem(sizes, lowers, uppers, fixed, own, first, lives, alignment, 0));
  });
}

// [violation code, first buffer, second buffer]; `by_definition` takes the quadratic checker.
ffi::Array<int64_t> Check(ffi::TensorView sizes, ffi::TensorView lowers, ffi::TensorView uppers,
                          ffi::TensorView fixed, ffi::TensorView own, ffi::TensorView first,
                          ffi::TensorView lives, int64_t alignment, int64_t capacity,
                          ffi::TensorView offsets, int64_t peak, bool by_definition) {
  return Translate([&] {
    const memc::Problem problem =
        MakeProblem(sizes, lowers, uppers, fixed, own, first, lives, alignment, capacity);
    memc::Validate(problem);
    const int64_t* at = Int64s(offsets, -1, "offsets");
    const memc::Solution solution{std::vector<int64_t>(at, at + offsets.size(0)), peak};
    const memc::CheckResult result =
        by_definition ? memc::CheckByDefinition(problem, solution) : memc::Check(problem, solution);
    return ffi::Array<int64_t>{static_cast<int64_t>(result.violation), result.first, result.second};
  });
}

// [moment (0 if there is none), whether there is one, proven, minimal, indices of the buffers...].
ffi::Array<int64_t> FindConflict(ffi::TensorView sizes, ffi::TensorView lowers,
                                 ffi::TensorView uppers, ffi::TensorView fixed, ffi::TensorView own,
                                 ffi::TensorView first, ffi::TensorView lives, int64_t alignment,
                                 int64_t capacity, double time_limit, int64_t threads,
                                 ffi::TensorView watch) {
  return Translate([&] {
    const memc::Problem problem =
        MakeProblem(sizes, lowers, uppers, fixed, own, first, lives, alignment, capacity);
    memc::SolverOptions options;
    options.time_limit = time_limit;
    options.threads = threads;
    options.watch = memc::MakeWatch(watch);
    const memc::Conflict conflict = memc::FindConflict(problem, options);
    ffi::Array<int64_t> result{conflict.moment.value_or(0), conflict.moment.has_value(),
                               conflict.proven, conflict.minimal};
    for (const int32_t index : conflict.buffers) result.push_back(index);
    return result;
  });
}

ffi::Array<ffi::String> SolverNames() {
  ffi::Array<ffi::String> names;
  for (const memc::SolverEntry& entry : memc::SolverTable()) names.push_back(entry.name);
  return names;
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_solve, Solve);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_lower_bound, LowerBound);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_check, Check);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_find_conflict, FindConflict);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_solver_names, SolverNames);
