// SPDX-License-Identifier: Apache-2.0
// A plan is repaired near what is too high in it:
//
//   limit -----------+---+------------------     V ends above the limit and is taken out. Buffers
//     +---+      +---|-V-|---+                   whose lifetimes lie in a window around V are free,
//   --+-+ +------+   +---+   +--+------          those that only reach into it stay where they are,
//       | |        window       |                and a complete search looks for a plan of the
//   ----+-+---------------------+------          window within the limit.
//
// Small windows are tried for all buffers taken out before larger ones for those left. What is
// still out then is put where the least is in its way, and that is taken out in turn. Where both
// fail, the limit is raised as little as is found to do. What remains is a plan again, and only
// where the limit had to be raised does the next attempt find buffers to take out.
#include "solvers/placement/repair.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "solvers/placement/race.h"
#include "solvers/placement/windows.h"

namespace memc {

namespace {

constexpr int64_t kSmallest = 12;     // Free buffers of the first windows.
constexpr int64_t kSmall = 48;        // And of those before anything else is tried.
constexpr int64_t kLargest = 768;     // And of the last.
constexpr int64_t kMostFixed = 4;     // Buffers that stay, for each free one.
constexpr int64_t kQuickEach = 600;   // Of a short search, for each free buffer.
constexpr int64_t kWorkEach = 6'000;  // Of a search, for each free buffer.
constexpr int64_t kSetupEach = 100;   // For each buffer of a window, before the search.
constexpr int64_t kSetupPair = 60;    // For each two of them live together.
constexpr int64_t kMostPairs = int64_t{1} << 20;
constexpr int64_t kLookWork = 8;            // For each buffer looked at in search of a gap.
constexpr int64_t kWeighWork = 40;          // And of the least that is in the way.
constexpr double kImmovable = 1e30;         // The weight of a buffer with a fixed offset.
constexpr int64_t kSteps[] = {1, 2, 4, 8};  // Parts of the way to the target, in turn.

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
    work_ -= static_cast<int64_t>(offsets_.size());
    std::vector<int32_t> out;
    for (const int32_t i : windows_.by_beginning()) {
      if (offsets_[i] + sizes_[i] <= limit || problem_.buffers[i].offset) continue;
      placed_[i] = 0;
      out.push_back(i);
    }
    for (int64_t count = kSmallest; count <= largest && !out.empty(); count *= 2) {
      TryWindows(count, work_ / 4, out);
      if (count == kSmall && !out.empty()) Eject(work_ / 8, out);
    }
    for (const int32_t i : out) {
      if (!placed_[i] && !RaiseLimit(i, best.peak)) return false;
    }
    best = {offsets_, Peak(problem_, offsets_)};
    return true;
  }

 private:
  // Places what it can of `out` by windows of about `count` free buffers; the others stay there.
  void TryWindows(int64_t count, int64_t work, std::vector<int32_t>& out) {
    const int64_t end = work_ - work;
    std::vector<int32_t> left;
    for (const int32_t i : out) {
      if (placed_[i] || TryGap(i)) continue;
      if (work_ < end || Over() || !TryWindow(i, count, limit_)) left.push_back(i);
    }
    out = std::move(left);
  }

  // The lowest offset at which a buffer meets none of those placed.
  int64_t LowestFree(int32_t index) {
    const Buffer& buffer = problem_.buffers[index];
    std::vector<std::pair<int64_t, int64_t>> taken;  // (offset, end) in bytes.
    for (const int32_t other : windows_.Touching(buffer.lower, buffer.upper)) {
      work_ -= kLookWork;
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

  // The movable buffers of a window around one, then those that stay; and how many move. `lifetime`
  // becomes that of all that move.
  std::pair<std::vector<int32_t>, size_t> Members(int32_t index, int64_t count, Live& lifetime) {
    const double shift = static_cast<double>(random_() % 1024) / 1024 - 0.5;
    std::vector<int32_t> members;
    lifetime = {problem_.buffers[index].lower, problem_.buffers[index].upper};
    for (const int32_t i : windows_.Around(index, count, shift, 16 * count)) {
      const Buffer& buffer = problem_.buffers[i];
      if (buffer.offset) continue;
      members.push_back(i);
      free_[i] = 1;
      lifetime = {std::min(lifetime.lower, buffer.lower), std::max(lifetime.upper, buffer.upper)};
    }
    const size_t movable = members.size();
    for (const int32_t i : windows_.Touching(lifetime.lower, lifetime.upper)) {
      if (!free_[i] && placed_[i]) members.push_back(i);
    }
    for (size_t k = 0; k < movable; ++k) free_[members[k]] = 0;
    return {std::move(members), movable};
  }

  // Places what lies within a window around the buffer, itself included, within `limit` bytes.
  bool TryWindow(int32_t index, int64_t count, int64_t limit) {
    Live lifetime{};
    const auto [members, movable] = Members(index, count, lifetime);
    const auto all = static_cast<int64_t>(members.size());
    const auto moving = static_cast<int64_t>(movable);
    work_ -= kSetupEach * all;
    if (all - moving > kMostFixed * moving) return false;
    Problem window = Subproblem(problem_, members);
    for (size_t k = movable; k < members.size(); ++k) {
      window.buffers[k].offset = offsets_[members[k]];
      Clip(window, k, lifetime);
    }
    const int64_t pairs = OverlapPairs(window, kMostPairs);
    work_ -= kSetupPair * std::min(pairs, kMostPairs);
    if (work_ <= 0 || pairs > kMostPairs) return false;
    // A race is charged in full, so a short one goes first: most windows need no more.
    RaceResult result;
    for (const int64_t each : {kQuickEach, kWorkEach}) {
      result = Race(window, limit, std::min(work_, each * moving), budget_);
      work_ -= result.work;
      if (result.status != CanonicalSearch::Status::kRunning || Over()) break;
    }
    if (result.status != CanonicalSearch::Status::kFound) return false;
    for (size_t k = 0; k < movable; ++k) Put(members[k], result.offsets[k]);
    return true;
  }

  // When a buffer that stays is live outside the window does not matter there.
  static void Clip(Problem& window, size_t k, const Live& lifetime) {
    if (window.HasGaps(k)) return;
    Buffer& buffer = window.buffers[k];
    buffer.lower = std::max(buffer.lower, lifetime.lower);
    buffer.upper = std::min(buffer.upper, lifetime.upper);
    if (!window.lives.empty()) window.lives[k].clear();
  }

  // Puts each buffer of `out`, the largest first, where the least is in its way, and takes that out
  // in turn; what has been taken out often weighs more. Undone if the work is done before all are
  // placed again; otherwise `out` is empty.
  void Eject(int64_t work, std::vector<int32_t>& out) {
    const std::vector<int64_t> old_offsets = offsets_;
    const std::vector<char> old_placed = placed_;
    std::priority_queue<std::pair<double, int32_t>> waiting;  // (area, buffer).
    times_out_.assign(offsets_.size(), 0);
    work_ -= 2 * static_cast<int64_t>(offsets_.size());
    for (const int32_t i : out) waiting.push({Area(i), i});
    const int64_t end = work_ - work;
    bool possible = true;
    while (possible && !waiting.empty() && work_ > end && !budget_.Over()) {
      const int32_t index = waiting.top().second;
      waiting.pop();
      possible = PutAnyway(index);
      for (const int32_t other : in_the_way_) {
        placed_[other] = 0;
        ++times_out_[other];
        waiting.push({Area(other), other});
      }
    }
    if (possible && waiting.empty()) {
      out.clear();
      return;
    }
    offsets_ = old_offsets;
    placed_ = old_placed;
  }

  // Bytes x time steps.
  double Area(int32_t i) const {
    const Buffer& b = problem_.buffers[i];
    return (static_cast<double>(b.upper) - static_cast<double>(b.lower)) *
           static_cast<double>(sizes_[i]);
  }

  // Puts the buffer where what it meets, then in_the_way_, weighs least. False if it meets buffers
  // with fixed offsets wherever it lies within the limit.
  bool PutAnyway(int32_t index) {
    const Buffer& buffer = problem_.buffers[index];
    const int64_t alignment = problem_.AlignmentOf(index);
    const int64_t highest = limit_ - sizes_[index];
    std::vector<int32_t> met;
    WeightBelow begins, ends;
    std::vector<int64_t> candidates{0, highest / alignment * alignment};
    for (const int32_t other : windows_.Touching(buffer.lower, buffer.upper)) {
      work_ -= kWeighWork;
      if (!placed_[other] || !Together(problem_, index, other)) continue;
      met.push_back(other);
      const double weight =
          problem_.buffers[other].offset ? kImmovable : Area(other) * (1 + times_out_[other]);
      const int64_t top = offsets_[other] + sizes_[other];
      begins.Add(offsets_[other], weight);
      ends.Add(top, weight);
      if (top <= highest) candidates.push_back(RoundUp(top, alignment));
      candidates.push_back((offsets_[other] - sizes_[index]) / alignment * alignment);
    }
    begins.Sum();
    ends.Sum();
    double least = kImmovable / 2;
    int64_t best = -1;
    for (const int64_t offset : candidates) {
      if (offset < 0 || offset > highest) continue;
      const double weight = begins.Of(offset + sizes_[index]) - ends.Of(offset + 1);
      if (weight >= least) continue;
      least = weight;
      best = offset;
    }
    in_the_way_.clear();
    if (best < 0) return false;
    for (const int32_t other : met) {
      if (offsets_[other] < best + sizes_[index] && best < offsets_[other] + sizes_[other]) {
        in_the_way_.push_back(other);
      }
    }
    Put(index, best);
    return true;
  }

  // Sums of weights by bytes.
  struct WeightBelow {
    std::vector<std::pair<int64_t, double>> sums;

    void Add(int64_t bytes, double weight) { sums.emplace_back(bytes, weight); }
    void Sum() {
      std::sort(sums.begin(), sums.end());
      double sum = 0;
      for (auto& [bytes, weight] : sums) weight = sum += weight;
    }
    // Of all that was added with fewer bytes.
    double Of(int64_t bytes) const {
      const auto at = std::lower_bound(sums.begin(), sums.end(), std::make_pair(bytes, -1.0));
      return at == sums.begin() ? 0.0 : std::prev(at)->second;
    }
  };

  // Places the buffer within the least limit below `most` that is found to do.
  bool RaiseLimit(int32_t index, int64_t most) {
    const int64_t end = LowestFree(index) + sizes_[index];
    const int64_t highest = std::min(end, most);
    for (const int64_t part : {16, 8, 4, 2}) {
      if (Over()) return false;
      const int64_t limit = limit_ + (highest - limit_) / part;
      if (!TryWindow(index, kSmall, limit)) continue;
      limit_ = limit;
      return true;
    }
    if (end >= most) return false;
    Put(index, end - sizes_[index]);
    limit_ = std::max(limit_, end);
    return true;
  }

  const Problem& problem_;
  std::vector<int64_t> sizes_;
  Windows windows_;
  std::vector<char> free_;  // Scratch of Members.
  std::vector<int64_t> offsets_;
  std::vector<char> placed_;         // Of each buffer: whether it is in the plan.
  std::vector<int32_t> in_the_way_;  // Of what PutAnyway has put.
  std::vector<int32_t> times_out_;   // Of each buffer: how often Eject has taken it out.
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
  size_t step = 0;
  // The target itself first; then what is likely to be reached: half the way to it, or less where
  // that fails.
  for (int64_t largest = kSmall; best.peak > target && !repair.Over();) {
    const int64_t way = (best.peak - target) / kSteps[step];
    if (repair.Attempt(best.peak - std::max<int64_t>(1, way), largest, best)) {
      step = std::min<size_t>(step, 1);
    } else {
      step = (step + 1) % std::size(kSteps);
      largest = std::min(2 * largest, kLargest);
    }
  }
  return best;
}

}  // namespace memc
