// SPDX-License-Identifier: Apache-2.0
// The door to the check of plans for Python. Columns are one-dimensional contiguous i64 host
// tensors, in the order in which they are taken here.
#include "verify/plan_walk.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include "exports/ffi_arrays.h"

namespace {

namespace ffi = tvm::ffi;
using memc::Int64s;

// Takes columns one after another.
class Columns {
 public:
  explicit Columns(const ffi::Array<ffi::Tensor>& columns) : columns_(columns) {}

  const int64_t* Take(int64_t length, const char* what) {
    if (next_ == columns_.size()) throw std::invalid_argument("expected more columns");
    last_ = columns_[next_++];
    return Int64s(last_, length, what);
  }
  int64_t length() const { return last_.size(0); }

  // Rows: where each of `count` begins and the last ends, then what they consist of.
  const int64_t* TakeRows(int64_t count, const int64_t** rows, const char* what) {
    const int64_t* first = Take(count + 1, what);
    const int64_t* found = Take(first[count], what);
    if (first[0] != 0) throw std::invalid_argument(std::string(what) + " must begin with row 0");
    for (int64_t n = 0; n < count; ++n) {
      if (first[n + 1] < first[n]) throw std::invalid_argument(std::string(what) + " must rise");
    }
    *rows = found;
    return first;
  }

 private:
  ffi::Array<ffi::Tensor> columns_;
  ffi::Tensor last_;
  size_t next_ = 0;
};

bool PlanHolds(const ffi::Array<ffi::Tensor>& columns, int64_t params, int64_t lanes) {
  return memc::Translate([&] {
    Columns next(columns);
    memc::WalkProblem problem;
    problem.params = params;
    problem.lanes = lanes;
    problem.space = next.Take(-1, "spaces");
    problem.values = next.length();
    problem.begin = next.Take(problem.values, "begins");
    problem.bytes = next.Take(problem.values, "bytes");
    problem.constant = next.Take(problem.values, "constants");
    problem.kind = next.Take(-1, "kinds");
    problem.ops = next.length();
    problem.first_result = next.Take(problem.ops, "first results");
    problem.results = next.Take(problem.ops, "results");
    problem.workspace = next.Take(problem.ops, "workspaces");
    problem.in_place = next.Take(problem.ops, "in place");
    problem.within = next.Take(problem.ops, "within");
    problem.lane = next.Take(problem.ops, "lanes");
    problem.first_operand = next.TakeRows(problem.ops, &problem.operands, "operands");
    problem.first_allowed = next.TakeRows(problem.ops, &problem.allowed, "allowed");
    problem.first_kept = next.TakeRows(problem.ops, &problem.kept, "kept");
    problem.kept_at = next.Take(problem.first_kept[problem.ops], "where operands are kept");
    problem.end_place = next.Take(-1, "places at the end");
    problem.ends = next.length();
    problem.end_content = next.Take(problem.ends, "contents at the end");
    return memc::PlanHolds(problem);
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_plan_holds, PlanHolds);
