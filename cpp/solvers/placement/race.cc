// SPDX-License-Identifier: Apache-2.0
// Which preference leads to a plan soon differs from problem to problem by orders of magnitude. So
// one search for each takes turns, in rounds of growing work. The answer is that of the earliest
// round and, within it, of the first search in the list, whatever the number of threads.
#include "solvers/placement/race.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "solvers/common/run_on_threads.h"

namespace memc {

namespace {

using Status = CanonicalSearch::Status;

constexpr Preference kPreferences[] = {
    {Trait::kTotal, Trait::kWidth, Trait::kArea},
    {Trait::kTotal, Trait::kArea, Trait::kWidth},
    {Trait::kWidth, Trait::kArea, Trait::kTotal},
};
constexpr int kCount = 3;

constexpr int64_t kFirstRound = 100'000;  // Work of each search.
constexpr int64_t kSlice = 1'000'000;     // Work between looks at the clock: some 3 ms.
constexpr int64_t kWorthAThread = 1'000'000;

}  // namespace

RaceResult Race(const Problem& problem, int64_t limit, int64_t work, const Budget& budget) {
  std::unique_ptr<CanonicalSearch> searches[kCount];
  RaceResult result;
  for (int64_t round = kFirstRound; result.work < work; round *= 2) {
    round = std::min(round, std::max<int64_t>(1, (work - result.work) / kCount));
    std::atomic<int> next{0};
    std::atomic<int> first_done{kCount};
    const auto run = [&] {
      for (int k = next++; k < kCount; k = next++) {
        Status status = Status::kRunning;
        // A search after one with an answer is of no more use.
        for (int64_t left = round; left > 0 && k < first_done && !budget.Over(); left -= kSlice) {
          if (!searches[k]) {
            searches[k] = std::make_unique<CanonicalSearch>(problem, kPreferences[k], limit);
          }
          status = searches[k]->Run(std::min(left, kSlice));
          if (status != Status::kRunning) break;
        }
        if (status == Status::kRunning) continue;
        int seen = first_done;
        while (k < seen && !first_done.compare_exchange_weak(seen, k)) {
        }
      }
    };
    RunOnThreads(run, round >= kWorthAThread ? std::min<int64_t>(budget.threads, kCount) : 1);
    result.work += round * kCount;
    budget.watch.Add(round * kCount);
    if (first_done < kCount) {
      const CanonicalSearch& winner = *searches[first_done];
      result.status = winner.status();
      if (result.status == Status::kFound) result.offsets = winner.offsets();
      return result;
    }
    if (budget.Over()) return result;
  }
  return result;
}

}  // namespace memc
