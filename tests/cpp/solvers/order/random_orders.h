// SPDX-License-Identifier: Apache-2.0
// Order problems, and their least peaks over all orders.
#ifndef MEMC_TESTS_RANDOM_ORDERS_H_
#define MEMC_TESTS_RANDOM_ORDERS_H_

#include <algorithm>
#include <limits>
#include <vector>

#include "check.h"
#include "solvers/order/order.h"

namespace memc::tests {

inline void AddRow(Rows& rows, std::vector<int32_t> row) {
  if (rows.first.empty()) rows.first.push_back(0);
  rows.index.insert(rows.index.end(), row.begin(), row.end());
  rows.first.push_back(static_cast<int64_t>(rows.index.size()));
}

// Each op makes a storage, and reads storages of ops before it, on which it depends.
inline OrderProblem RandomOrder(Random& random, int32_t ops, int64_t most) {
  OrderProblem problem;
  problem.touches.first = problem.after.first = {0};
  for (int32_t op = 0; op < ops; ++op) {
    problem.sizes.push_back(random.Below(most + 1));
    problem.kept.push_back(random.Below(6) == 0 ? 1 : 0);
    problem.scratch.push_back(random.Below(4) == 0 ? random.Below(most) : 0);
    std::vector<int32_t> touched{op};
    std::vector<int32_t> after;
    for (int32_t read = 0; read < op; ++read) {
      if (random.Below(op + 1) > 1) continue;
      touched.push_back(read);
      after.push_back(read);
    }
    AddRow(problem.touches, touched);
    AddRow(problem.after, after);
  }
  return problem;
}

// Sets of ops, op i being bit i.
class AllOrders {
 public:
  explicit AllOrders(const OrderProblem& problem)
      : problem_(problem), ops_(static_cast<int32_t>(problem.ops())) {}

  // Bytes live while the op runs if those of `done` have run.
  int64_t Live(uint32_t done, int32_t op) const {
    int64_t bytes = problem_.scratch[op];
    for (int32_t s = 0; s < static_cast<int32_t>(problem_.sizes.size()); ++s) {
      bool here = false, before = false, after = problem_.kept[s] != 0;
      for (int32_t i = 0; i < ops_; ++i) {
        if (std::count(problem_.touches.begin(i), problem_.touches.end(i), s) == 0) continue;
        here = here || i == op;
        before = before || (done >> i & 1) != 0;
        after = after || (i != op && (done >> i & 1) == 0);
      }
      if (here || (before && after)) bytes += problem_.sizes[s];
    }
    return bytes;
  }

  bool Ready(uint32_t done, int32_t op) const {
    bool ready = (done >> op & 1) == 0;
    for (const int32_t* i = problem_.after.begin(op); i != problem_.after.end(op); ++i) {
      ready = ready && (done >> *i & 1) != 0;
    }
    return ready;
  }

  // Of each op: the fewest bytes live while it runs, in any order.
  std::vector<int64_t> LeastLive() const {
    std::vector<int64_t> least(ops_, std::numeric_limits<int64_t>::max());
    const std::vector<int64_t> peaks = Peaks();
    for (uint32_t done = 0; done < peaks.size(); ++done) {
      if (peaks[done] == std::numeric_limits<int64_t>::max())
        continue;  // No order begins with these.
      for (int32_t op = 0; op < ops_; ++op) {
        if (Ready(done, op)) least[op] = std::min(least[op], Live(done, op));
      }
    }
    return least;
  }

  int64_t LeastPeak() const { return Peaks().back(); }

 private:
  // Of each set: the least peak of the orders that begin with it.
  std::vector<int64_t> Peaks() const {
    std::vector<int64_t> peaks(size_t{1} << ops_, std::numeric_limits<int64_t>::max());
    peaks[0] = 0;
    for (uint32_t done = 0; done < peaks.size(); ++done) {
      if (peaks[done] == std::numeric_limits<int64_t>::max()) continue;
      for (int32_t op = 0; op < ops_; ++op) {
        if (!Ready(done, op)) continue;
        int64_t& next = peaks[done | 1U << op];
        next = std::min(next, std::max(peaks[done], Live(done, op)));
      }
    }
    return peaks;
  }

  const OrderProblem& problem_;
  int32_t ops_;
};

}  // namespace memc::tests

#endif  // MEMC_TESTS_RANDOM_ORDERS_H_
