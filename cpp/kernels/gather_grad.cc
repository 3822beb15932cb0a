// SPDX-License-Identifier: Apache-2.0
// Rows added up by index. Each thread has rows of the result to itself and meets the indices in
// order, so the sums do not depend on the number of threads.
#include <algorithm>

#include "kernels/cpu_kernels.h"
#include "kernels/parallel.h"

namespace memc {

namespace {

MEMC_CLONES void AddRow(float* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

template <typename Index>
void GatherGrad(const GatherShape& s, const Index* indices, const float* g, float* out) {
  const bool serial = s.lead * std::max(s.count, s.extent) * s.row < kSerialWork;
  ParallelFor(serial, [&](int64_t task, int64_t tasks) {
    const int64_t low = task * s.extent / tasks;
    const int64_t high = (task + 1) * s.extent / tasks;
    for (int64_t lead = 0; lead < s.lead; ++lead) {
      float* table = out + lead * s.extent * s.row;
      std::fill(table + low * s.row, table + high * s.row, 0.0F);
      for (int64_t i = 0; i < s.count; ++i) {
        const int64_t given = indices[i];
        const int64_t at =
            std::clamp<int64_t>(given < 0 ? given + s.extent : given, 0, s.extent - 1);
        if (low <= at && at < high) {
          AddRow(table + at * s.row, g + (lead * s.count + i) * s.row, s.row);
        }
      }
    }
  });
}

template void GatherGrad(const GatherShape&, const int32_t*, const float*, float*);
template void GatherGrad(const GatherShape&, const int64_t*, const float*, float*);

}  // namespace memc
