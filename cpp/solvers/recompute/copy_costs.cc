// SPDX-License-Identifier: Apache-2.0
#include "solvers/recompute/copy_costs.h"

#include <algorithm>

namespace memc {

namespace {

// By how much more a lane lacks for one more copy in `time`, and for it and `others` in `all`.
int64_t Lack(int64_t copy, int64_t time, int64_t others, int64_t all) {
  const int64_t before = std::max<int64_t>(0, others - all);
  return std::max<int64_t>({0, copy - time, copy + others - all - before});
}

}  // namespace

int64_t CopyCosts::Stall(const RecomputeState& state, int32_t value, int32_t last, int32_t moment,
                         int32_t next) const {
  const int64_t bytes = sizes_[value], absent = state.Absent(moment);
  const int64_t count = state.AbsentCount(moment);
  const int64_t at = state.CostUpTo(moment - 1), whole = state.CostUpTo(state.last_slot());
  const Lane &out = lanes_.out, &in = lanes_.in;
  return Lack(out.Duration(bytes), at - state.CostUpTo(last), out.Duration(absent, count), at) +
         Lack(in.Duration(bytes), state.CostUpTo(next - 1) - at, in.Duration(absent, count),
              whole - at);
}

}  // namespace memc
