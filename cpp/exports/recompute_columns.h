// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_RECOMPUTE_COLUMNS_H_
#define MEMC_RECOMPUTE_COLUMNS_H_

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "exports/ffi_arrays.h"
#include "exports/ffi_rows.h"
#include "solvers/recompute/recompute.h"

namespace memc {

using Tensors = tvm::ffi::Array<tvm::ffi::Tensor>;

inline std::vector<int64_t> Numbers(const tvm::ffi::Tensor& array, int64_t length,
                                    const char* what) {
  const int64_t* from = Int64s(array, length, what);
  return {from, from + array.size(0)};
}

// `columns`: sizes, costs, once, scratch; then first and index of reads, makes, over, parts, until;
// in_order; the watch.
inline RecomputeProblem MakeRecomputeProblem(const Tensors& columns) {
  if (columns.size() != 16) throw std::invalid_argument("expected 16 columns");
  RecomputeProblem problem;
  problem.sizes = Numbers(columns[0], -1, "sizes");
  problem.costs = Numbers(columns[1], -1, "costs");
  const auto ops = static_cast<int64_t>(problem.costs.size());
  const std::vector<int64_t> once = Numbers(columns[2], ops, "once");
  problem.once.assign(once.begin(), once.end());
  problem.scratch = Numbers(columns[3], ops, "scratch");
  problem.reads = MakeRows(columns[4], columns[5], ops, "value read");
  problem.makes = MakeRows(columns[6], columns[7], ops, "value made");
  problem.over = MakeRows(columns[8], columns[9], ops, "value taken over");
  problem.parts = MakeRows(columns[10], columns[11], ops, "part");
  problem.until = MakeRows(columns[12], columns[13], ops, "last op");
  problem.in_order = Numbers(columns[14], 1, "in_order").front() != 0;
  problem.watch = MakeWatch(columns[15]);
  return problem;
}

}  // namespace memc

#endif  // MEMC_RECOMPUTE_COLUMNS_H_
