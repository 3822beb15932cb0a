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

CopyCosts::Moment CopyCosts::At(const RecomputeState& state, int32_t tag) const {
  const int64_t bytes = state.Absent(tag), count = state.AbsentCount(tag);
  const int64_t before = state.CostUpTo(tag - 1);
  return {before, state.CostUpTo(state.last_tag()) - before, lanes_.out.Duration(bytes, count),
          lanes_.in.Duration(bytes, count), bytes};
}

int64_t CopyCosts::Stall(const RecomputeState& state, int32_t value, int32_t last,
                         const Moment& moment, int32_t next) const {
  const int64_t bytes = sizes_[value];
  const int64_t since = moment.before - state.CostUpTo(last);
  const int64_t until = state.CostUpTo(next - 1) - moment.before;
  return Lack(lanes_.out.Duration(bytes), since, moment.out, moment.before) +
         Lack(lanes_.in.Duration(bytes), until, moment.in, moment.after);
}

}  // namespace memc
