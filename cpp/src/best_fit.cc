// SPDX-License-Identifier: Apache-2.0
// Sekiyama et al. 2018, "Profile-guided memory optimization for deep neural networks", section
// 3.2: the best-fit heuristic of Burke et al. for rectangle packing, with fixed time intervals.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "memc/packer.h"
#include "memc/solvers.h"

namespace memc {

namespace {

// The blocks not placed yet, asked for the longest-lived one inside a time interval. A segment tree
// over the blocks by lower end; a node knows its best block and its least upper end, which
// together prune the descent.
class Waiting {
 public:
  Waiting(const Problem& problem, std::vector<int32_t> blocks)
      : problem_(problem), blocks_(std::move(blocks)) {
    std::stable_sort(blocks_.begin(), blocks_.end(), [&](int32_t a, int32_t b) {
      return problem_.buffers[a].lower < problem_.buffers[b].lower;
    });
    while (leaves_ < blocks_.size()) leaves_ *= 2;
    nodes_.resize(2 * leaves_);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      nodes_[leaves_ + i] = {static_cast<int64_t>(i), problem_.buffers[blocks_[i]].upper};
    }
    for (size_t i = leaves_ - 1; i > 0; --i) Combine(i);
  }

  // Takes out the block with the longest lifetime among those within [lower, upper); ties go to the
  // larger, then to the earlier. -1 if there is none.
  int32_t TakeLongest(int64_t lower, int64_t upper) {
    const auto begin = std::lower_bound(
        blocks_.begin(), blocks_.end(), lower,
        [&](int32_t block, int64_t value) { return problem_.buffers[block].lower < value; });
    const auto end = std::lower_bound(
        begin, blocks_.end(), upper,
        [&](int32_t block, int64_t value) { return problem_.buffers[block].lower < value; });
    const int64_t found = Find(1, 0, static_cast<int64_t>(leaves_), begin - blocks_.begin(),
                               end - blocks_.begin(), upper, kNone);
    if (found == kNone) return -1;
    size_t node = leaves_ + static_cast<size_t>(found);
    nodes_[node] = Node{};
    for (node /= 2; node > 0; node /= 2) Combine(node);
    return blocks_[found];
  }

 private:
  static constexpr int64_t kNone = -1;

  struct Node {
    int64_t best = kNone;  // Position in blocks_ of the node's longest-lived block.
    int64_t least_upper = std::numeric_limits<int64_t>::max();
  };

  bool Better(int64_t a, int64_t b) const {
    if (a == kNone || b == kNone) return b == kNone && a != kNone;
    const auto rank = [&](int64_t position) {
      const Buffer& block = problem_.buffers[blocks_[position]];
      const auto span = static_cast<__int128>(block.upper) - block.lower;
      return std::make_tuple(span, block.size, -blocks_[position]);
    };
    return rank(a) > rank(b);
  }

  void Combine(size_t node) {
    const Node& left = nodes_[2 * node];
    const Node& right = nodes_[2 * node + 1];
    nodes_[node].best = Better(right.best, left.best) ? right.best : left.best;
    nodes_[node].least_upper = std::min(left.least_upper, right.least_upper);
  }

  // The best block among positions [from, to) that ends by `upper`, if it beats `best`; else
  // `best`.
  int64_t Find(size_t node, int64_t low, int64_t high, int64_t from, int64_t to, int64_t upper,
               int64_t best) const {
    if (from >= high || to <= low) return best;
    if (nodes_[node].least_upper > upper || !Better(nodes_[node].best, best)) return best;
    const int64_t top = nodes_[node].best;
    if (from <= top && top < to && problem_.buffers[blocks_[top]].upper <= upper) return top;
    const int64_t middle = (low + high) / 2;
    size_t first = 2 * node;
    if (Better(nodes_[first + 1].best, nodes_[first].best)) {
      best = Find(first + 1, middle, high, from, to, upper, best);
      return Find(first, low, middle, from, to, upper, best);
    }
    best = Find(first, low, middle, from, to, upper, best);
    return Find(first + 1, middle, high, from, to, upper, best);
  }

  const Problem& problem_;
  std::vector<int32_t> blocks_;
  size_t leaves_ = 1;
  std::vector<Node> nodes_;
};

// The offset lines: the tops of what is placed, as a step function over time. Neighbours at the
// same offset are one line.
//
//   offset ^   +--+
//          |---+  |      +---    chosen: the lowest line, leftmost among equals
//          |      +------+
//          +------------------> time
class OffsetLines {
 public:
  struct Line {
    int64_t lower, upper;  // Time.
    int64_t offset;        // Bytes.
  };

  OffsetLines(int64_t lower, int64_t upper) { Add({lower, upper, 0}); }

  Line Lowest() const { return lines_.at(by_offset_.begin()->second); }

  // Raises [lower, upper), a part of `line`, to `offset`.
  void Raise(const Line& line, int64_t lower, int64_t upper, int64_t offset) {
    Remove(line);
    if (line.lower < lower) Add({line.lower, lower, line.offset});
    if (upper < line.upper) Add({upper, line.upper, line.offset});
    Line raised{lower, upper, offset};
    if (const Line* left = LeftOf(lower); left != nullptr && left->offset == offset) {
      raised.lower = left->lower;
      Remove(Line(*left));
    }
    if (const Line* right = RightOf(upper); right != nullptr && right->offset == offset) {
      raised.upper = right->upper;
      Remove(Line(*right));
    }
    Add(raised);
  }

  // Merges the line with its lowest neighbour, or with both if they are equally high.
  void LiftUp(const Line& line) {
    const Line* left = LeftOf(line.lower);
    const Line* right = RightOf(line.upper);
    int64_t offset = std::numeric_limits<int64_t>::max();
    if (left != nullptr) offset = left->offset;
    if (right != nullptr) offset = std::min(offset, right->offset);
    Raise(line, line.lower, line.upper, offset);
  }

 private:
  void Add(const Line& line) {
    lines_[line.lower] = line;
    by_offset_.emplace(line.offset, line.lower);
  }

  void Remove(const Line& line) {
    by_offset_.erase({line.offset, line.lower});
    lines_.erase(line.lower);
  }

  const Line* LeftOf(int64_t lower) const {
    const auto at = lines_.lower_bound(lower);
    return at == lines_.begin() ? nullptr : &std::prev(at)->second;
  }

  const Line* RightOf(int64_t upper) const {
    const auto at = lines_.find(upper);
    return at == lines_.end() ? nullptr : &at->second;
  }

  std::map<int64_t, Line> lines_;                    // By lower end.
  std::set<std::pair<int64_t, int64_t>> by_offset_;  // (offset, lower end)
};

}  // namespace

Solution BestFit(const Problem& problem) {
  Validate(problem);
  const std::vector<int64_t> sizes = RoundedSizes(problem);
  Solution solution;
  solution.offsets.assign(sizes.size(), 0);
  std::vector<int32_t> blocks;
  bool any_fixed = false;
  int64_t lower = std::numeric_limits<int64_t>::max();
  int64_t upper = std::numeric_limits<int64_t>::min();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Buffer& b = problem.buffers[i];
    any_fixed = any_fixed || b.offset.has_value();
    if (b.offset || sizes[i] == 0) continue;
    blocks.push_back(static_cast<int32_t>(i));
    lower = std::min(lower, b.lower);
    upper = std::max(upper, b.upper);
  }
  if (!blocks.empty()) {
    Waiting waiting(problem, blocks);
    OffsetLines lines(lower, upper);
    for (size_t placed = 0; placed < blocks.size();) {
      const OffsetLines::Line line = lines.Lowest();
      const int32_t block = waiting.TakeLongest(line.lower, line.upper);
      if (block < 0) {
        lines.LiftUp(line);
        continue;
      }
      const Buffer& b = problem.buffers[block];
      solution.offsets[block] = line.offset;
      lines.Raise(line, b.lower, b.upper, AddBytes(line.offset, sizes[block]));
      ++placed;
    }
  }
  if (any_fixed) {
    // The paper has no fixed blocks. Keep the order it found, and fit first around them.
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
