// SPDX-License-Identifier: Apache-2.0
// Sekiyama et al. 2018, "Profile-guided memory optimization for deep neural networks", section
// 3.2: the best-fit heuristic of Burke et al. for rectangle packing, with fixed time intervals.
#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "solvers/common/interval_tree.h"
#include "solvers/placement/packer.h"
#include "solvers/placement/solvers.h"

namespace memc {

namespace {

// The offset lines: the tops of what is placed, as a step function over time. Neighbours at the
// same offset are one line. Times are counted as positions among all ends of lifetimes.
//
//   offset ^   +--+
//          |---+  |      +---    chosen: the lowest line, leftmost among equals
//          |      +------+
//          +------------------> time
class OffsetLines {
 public:
  struct Line {
    int32_t lower, upper;  // Positions.
    int64_t offset;        // Bytes.
  };

  // One line at offset 0 over all positions up to `last`.
  explicit OffsetLines(int32_t last) : lines_(last + 1) {
    lines_[0] = {last, kNone, 0};
    queue_.push({0, 0});
  }

  Line Lowest() {
    while (lines_[queue_.top().second].offset != queue_.top().first) queue_.pop();
    const int32_t lower = queue_.top().second;
    return {lower, lines_[lower].upper, lines_[lower].offset};
  }

  // Raises [lower, upper), a part of `line`, to `offset`.
  void Raise(const Line& line, int32_t lower, int32_t upper, int64_t offset) {
    if (upper < line.upper) Split(line.lower, upper);
    if (line.lower < lower) Split(line.lower, lower);
    lines_[lower].offset = offset;
    const int32_t left = lines_[lower].left;
    if (upper < End() && lines_[upper].offset == offset) Join(lower, upper);
    if (left != kNone && lines_[left].offset == offset) {
      Join(left, lower);
    } else {
      queue_.push({offset, lower});
    }
  }

  // Merges the line with its lowest neighbour, or with both if they are equally high.
  void LiftUp(const Line& line) {
    const int32_t left = lines_[line.lower].left;
    int64_t offset = std::numeric_limits<int64_t>::max();
    if (left != kNone) offset = lines_[left].offset;
    if (line.upper < End()) offset = std::min(offset, lines_[line.upper].offset);
    Raise(line, line.lower, line.upper, offset);
  }

 private:
  static constexpr int32_t kNone = -1;

  struct Entry {
    int32_t upper = kNone;
    int32_t left = kNone;  // The lower end of the line to the left.
    int64_t offset = -1;   // Bytes; -1 where no line begins.
  };

  int32_t End() const { return static_cast<int32_t>(lines_.size()) - 1; }

  void Split(int32_t lower, int32_t at) {
    lines_[at] = {lines_[lower].upper, lower, lines_[lower].offset};
    if (lines_[at].upper < End()) lines_[lines_[at].upper].left = at;
    lines_[lower].upper = at;
    queue_.push({lines_[at].offset, at});
  }

  void Join(int32_t lower, int32_t right) {
    lines_[lower].upper = lines_[right].upper;
    if (lines_[lower].upper < End()) lines_[lines_[lower].upper].left = lower;
    lines_[right].offset = -1;
  }

  using OffsetAndLower = std::pair<int64_t, int32_t>;
  std::vector<Entry> lines_;  // By lower end.
  // What has been raised or joined stays in the queue until it comes up.
  std::priority_queue<OffsetAndLower, std::vector<OffsetAndLower>, std::greater<>> queue_;
};

// The movable blocks by longest lifetime; ties go to the larger, then to the earlier.
std::vector<int32_t> LongestFirst(const Problem& problem, const std::vector<int64_t>& sizes) {
  std::vector<int32_t> blocks;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!problem.buffers[i].offset && sizes[i] > 0) blocks.push_back(static_cast<int32_t>(i));
  }
  const auto duration = [&](int32_t i) {
    return static_cast<__int128>(problem.buffers[i].upper) - problem.buffers[i].lower;
  };
  std::stable_sort(blocks.begin(), blocks.end(), [&](int32_t a, int32_t b) {
    if (duration(a) != duration(b)) return duration(a) > duration(b);
    return problem.buffers[a].size > problem.buffers[b].size;
  });
  return blocks;
}

void PlaceAll(const Problem& problem, const std::vector<int64_t>& sizes,
              const std::vector<int32_t>& blocks, std::vector<int64_t>& offsets) {
  std::vector<Interval> lifetimes;
  std::vector<int64_t> times;
  lifetimes.reserve(blocks.size());
  times.reserve(2 * blocks.size());
  for (const int32_t block : blocks) {
    const Buffer& b = problem.buffers[block];
    lifetimes.push_back({b.lower, b.upper});
    times.push_back(b.lower);
    times.push_back(b.upper);
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto position = [&](int64_t time) {
    return static_cast<int32_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  IntervalTree waiting(lifetimes);
  OffsetLines lines(static_cast<int32_t>(times.size()) - 1);
  for (size_t placed = 0; placed < blocks.size();) {
    const OffsetLines::Line line = lines.Lowest();
    const int32_t longest = waiting.Take(times[line.lower], times[line.upper]);
    if (longest < 0) {
      lines.LiftUp(line);
      continue;
    }
    const auto [lower, upper] = lifetimes[longest];
    const int32_t block = blocks[longest];
    offsets[block] = line.offset;
    lines.Raise(line, position(lower), position(upper), AddBytes(line.offset, sizes[block]));
    ++placed;
  }
}

}  // namespace

Solution BestFit(const Problem& problem) {
  Validate(problem);
  const std::vector<int64_t> sizes = RoundedSizes(problem);
  Solution solution;
  solution.offsets.assign(sizes.size(), 0);
  const std::vector<int32_t> blocks = LongestFirst(problem, sizes);
  if (!blocks.empty()) PlaceAll(problem, sizes, blocks, solution.offsets);
  const bool any_fixed = std::any_of(problem.buffers.begin(), problem.buffers.end(),
                                     [](const Buffer& b) { return b.offset.has_value(); });
  if (any_fixed || !problem.Plain()) {
    // The paper has no fixed blocks, no gaps in lifetimes, and one alignment. Keep the order that
    // it found for whole lifetimes, and fit first with all of these.
    Packer packer(problem);
    std::vector<int32_t> order = packer.movable();
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return solution.offsets[a] < solution.offsets[b];
    });
    packer.Pack(order, std::numeric_limits<int64_t>::max());
    solution.offsets = packer.offsets();
  }
  solution.peak = Peak(problem, solution.offsets);
  return solution;
}

}  // namespace memc
