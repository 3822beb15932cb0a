// SPDX-License-Identifier: Apache-2.0
// A plan is repaired from window to window, each a small problem of its own:
//
//   limit -----------+---+------------------     V ends above the limit and is taken out. The
//     +---+      +---|-V-|---+                   buffers whose lifetimes lie in the window are free,
//   --+-+ +------+   +---+   +--+------          those that only reach into it stay where they are,
//       | |        window       |                and a complete search looks for a plan of the
//   ----+-+---------------------+------          window within the limit.
//
// Small windows are tried for all buffers taken out before larger ones for those left. Where the
// largest fails, the limit is raised as little as is found to do. What remains is a plan again, and
// only where the limit had to be raised does the next attempt find buffers to take out.
#include "solvers/placement/repair.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "solvers/placement/improve.h"
#include "solvers/placement/race.h"
#include "solvers/placement/windows.h"

namespace memc {

namespace {

constexpr int64_t kSmallest = 12;       // Free buffers of the first windows.
constexpr int64_t kLargest = 3'072;     // And of the last.
constexpr int64_t kMostFixed = 8'192;   // Buffers that reach into a window; each costs time.
constexpr int64_t kWorkEach = 6'000;    // Of a search, for each free buffer.
constexpr int64_t kSetupEach = 100;     // For each buffer of a window, before the search.

constexpr int64_t kSetupPair = 20;      // For each two of them live together.

class Repair {
 public:
  Repair(const Problem& problem, int64_t work, uint64_t seed, const Budget& budget)
      : problem_(problem),
        sizes_(RoundedSizes(problem)),
        windows_(problem),
        free_(problem.buffers.size(), 0),
        random_(seed),
        work_(work),
        budget_(budget) {}

  bool Over() const { return work_ <= 0 || budget_.Over(); }

  // Tries for `limit` bytes with windows of up to `largest` free buffers. Whether there is a plan
  // below that in `best`, which it then becomes.
  bool Attempt(int64_t limit, int64_t largest, Solution& best) {
    offsets_ = best.offsets;
    placed_.assign(offsets_.size(), 1);
    limit_ = limit;
    std::vector<int32_t> out;
    for (const int32_t i : windows_.by_beginning()) {
      if (offsets_[i] + sizes_[i] <= limit || problem_.buffers[i].offset) continue;
      placed_[i] = 0;
      out.push_back(i);
    }
    for (int64_t count = kSmallest; count <= largest && !out.empty(); count *= 2) {
      std::vector<int32_t> left;
      for (const int32_t i : out) {
        if (Over()) return false;
        if (placed_[i] || TryGap(i) || TryWindow(i, count, limit_)) continue;
        left.push_back(i);
      }
      out = std::move(left);
    }
    for (const int32_t i : out) {
      if (!placed_[i] && !RaiseLimit(i, largest, best.peak)) return false;
    }
    best = {offsets_, Peak(problem_, offsets_)};
    return true;
  }

 private:
  // The lowest offset at which a buffer meets none of those placed.
  int64_t LowestFree(int32_t index) {
    const Buffer& buffer = problem_.buffers[index];
    std::vector<std::pair<int64_t, int64_t>> taken;  // (offset, end) in bytes.
    for (const int32_t other : windows_.Touching(buffer.lower, buffer.upper)) {
      work_ -= 8;
      if (!placed_[other] || !Together(problem_, index, other)) continue;
      taken.emplace_back(offsets_[other], offsets_[other] + sizes_[other]);
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (begin >= offset && begin - offset >= sizes_[index]) break;
      offset = std::max(offset, RoundUp(end, problem_.AlignmentOf(index)));
    }
    return offset;
  }

  void Put(int32_t index, int64_t offset) {
    offsets_[index] = offset;
    placed_[index] = 1;
  }

  bool TryGap(int32_t index) {
    const int64_t offset = LowestFree(index);
    if (offset > limit_ - sizes_[index]) return false;
    Put(index, offset);
    return true;
  }

  // Places what lies within a window around the buffer, itself included, within `limit` bytes.
  bool TryWindow(int32_t index, int64_t count, int64_t limit) {
    const double shift = static_cast<double>(random_() % 1024) / 512 - 1;
    std::vector<int32_t> members;
    int64_t lower = std::numeric_limits<int64_t>::max();
    int64_t upper = std::numeric_limits<int64_t>::min();
    for (const int32_t i : windows_.Around(index, count, shift / 2, 16 * count)) {
      if (problem_.buffers[i].offset) continue;
      members.push_back(i);
      free_[i] = 1;
      lower = std::min(lower, problem_.buffers[i].lower);
      upper = std::max(upper, problem_.buffers[i].upper);
    }
    const size_t movable = members.size();
    for (const int32_t i : windows_.Touching(lower, upper)) {
      if (!free_[i] && placed_[i]) members.push_back(i);
    }
    for (size_t k = 0; k < movable; ++k) free_[members[k]] = 0;
    const auto all = static_cast<int64_t>(members.size());
    work_ -= kSetupEach * all;
    if (all - static_cast<int64_t>(movable) > kMostFixed) return false;
    Problem window = Subproblem(problem_, members);
    for (size_t k = movable; k < members.size(); ++k) {
      window.buffers[k].offset = offsets_[members[k]];
      Clip(window, k, lower, upper);
    }
    work_ -= kSetupPair * OverlapPairs(window, std::numeric_limits<int64_t>::max());
    const RaceResult result =
        Race(window, limit, std::min(work_, kWorkEach * static_cast<int64_t>(movable)), budget_);
    work_ -= result.work;
    if (result.status != CanonicalSearch::Status::kFound) return false;
    for (size_t k = 0; k < movable; ++k) Put(members[k], result.offsets[k]);
    return true;
  }

  // What a buffer is live outside the window does not matter there.
  static void Clip(Problem& window, size_t k, int64_t lower, int64_t upper) {
    if (window.HasGaps(k)) return;
    Buffer& buffer = window.buffers[k];
    buffer.lower = std::max(buffer.lower, lower);
    buffer.upper = std::min(buffer.upper, upper);
    if (!window.lives.empty()) window.lives[k].clear();
  }

  // Places the buffer at the least limit below `most` that is found to do.
  bool RaiseLimit(int32_t index, int64_t largest, int64_t most) {
    const int64_t offset = LowestFree(index);
    const int64_t highest = std::min(offset + sizes_[index], most);
    for (const int64_t part : {16, 8, 4, 2}) {
      if (Over()) return false;
      const int64_t limit = limit_ + (highest - limit_) / part;
      if (!TryWindow(index, std::min<int64_t>(largest, 4 * kSmallest), limit)) continue;
      limit_ = limit;
      return true;
    }
    if (offset + sizes_[index] >= most) return false;
    Put(index, offset);
    limit_ = std::max(limit_, offset + sizes_[index]);
    return true;
  }

  const Problem& problem_;
  std::vector<int64_t> sizes_;
  Windows windows_;
  std::vector<char> free_;  // Scratch of TryWindow.
  std::vector<int64_t> offsets_;
  std::vector<char> placed_;
  int64_t limit_ = 0;
  std::mt19937_64 random_;
  int64_t work_;
  const Budget& budget_;
};

}  // namespace

Solution RepairPlan(const Problem& problem, const Solution& start, int64_t target, int64_t work,
                    uint64_t seed, const Budget& budget) {
  Solution best = start;
  Repair repair(problem, work, seed, budget);
  int64_t part = 1;
  for (int64_t largest = 4 * kSmallest; best.peak > target && !repair.Over();) {
    const int64_t limit = best.peak - std::max<int64_t>(1, (best.peak - target) / part);
    if (repair.Attempt(limit, largest, best)) {
      part = 1;
    } else {
      part *= 2;
    }
    if (largest >= kLargest && part > 64) break;
    largest = std::min(2 * largest, kLargest);
  }
  return best;
}

}  // namespace memc
