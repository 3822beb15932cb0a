// SPDX-License-Identifier: Apache-2.0
// Buffers are placed in order of offset, each as low as what lies below allows. Any plan can be
// pushed down into such a one, so these are all that need to be looked at:
//
//   - The next buffer never lies lower than the last one.
//   - If buffer j would fit entirely below where buffer i comes to lie, j goes first: i and all
//     later ones lie at or above i's offset, so j could be moved down without hurting any.
//   - Of buffers with equal size and lifetime, only the first is tried.
//
// A branch ends when some time has more bytes left to place than room above its floor, the lowest
// offset any of its remaining buffers can still get (the idea of minimalloc's section inference;
// Moffitt 2023).
#include "memc/branch_and_bound.h"

#include <algorithm>

namespace memc {

namespace {

class Search {
 public:
  Search(const Problem& problem, int64_t limit, int64_t work)
      : problem_(problem), limit_(limit), work_left_(work), sizes_(RoundedSizes(problem)) {
    std::vector<int64_t> times;
    for (const Buffer& b : problem.buffers) times.insert(times.end(), {b.lower, b.upper});
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    const auto index = [&](int64_t time) {
      return std::lower_bound(times.begin(), times.end(), time) - times.begin();
    };
    top_.assign(times.size(), 0);
    left_.assign(times.size(), 0);
    for (size_t i = 0; i < sizes_.size(); ++i) {
      begin_.push_back(index(problem.buffers[i].lower));
      end_.push_back(index(problem.buffers[i].upper));
      for (int64_t t = begin_[i]; t < end_[i]; ++t) left_[t] += sizes_[i];
    }
    solution_.offsets.assign(sizes_.size(), 0);
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (sizes_[i] > 0) waiting_.push_back(static_cast<int32_t>(i));
    }
  }

  std::optional<Solution> Run() {
    if (!Place(0)) return std::nullopt;
    solution_.peak = Peak(problem_, solution_.offsets);
    return solution_;
  }

 private:
  struct Choice {
    int64_t offset;
    int32_t index;
  };

  // Places what waits at `last` bytes or above. Whether that worked.
  bool Place(int64_t last) {
    if (waiting_.empty()) return true;
    std::vector<Choice> choices;
    if (!FindChoices(last, choices)) return false;
    for (const Choice& choice : choices) {
      const std::vector<int64_t> tops(top_.begin() + begin_[choice.index],
                                      top_.begin() + end_[choice.index]);
      Take(choice);
      if (Place(choice.offset)) return true;
      PutBack(choice, tops);
      if (work_left_ <= 0) return false;
    }
    return false;
  }

  // The buffers that may come next, best first; false if the limit cannot be kept.
  bool FindChoices(int64_t last, std::vector<Choice>& choices) {
    floor_.assign(top_.size(), std::numeric_limits<int64_t>::max());
    int64_t least_end = std::numeric_limits<int64_t>::max();
    for (const int32_t i : waiting_) {
      const int64_t offset = *std::max_element(top_.begin() + begin_[i], top_.begin() + end_[i]);
      const int64_t reachable = std::max(offset, last);
      for (int64_t t = begin_[i]; t < end_[i]; ++t) floor_[t] = std::min(floor_[t], reachable);
      work_left_ -= 2 * (end_[i] - begin_[i]) + 8;
      least_end = std::min(least_end, offset + sizes_[i]);
      if (offset >= last) choices.push_back({offset, i});
    }
    for (size_t t = 0; t < top_.size(); ++t) {
      if (left_[t] > 0 && floor_[t] > limit_ - left_[t]) return false;
    }
    const auto same = [&](const Choice& a, const Choice& b) {
      return begin_[a.index] == begin_[b.index] && end_[a.index] == end_[b.index] &&
             sizes_[a.index] == sizes_[b.index];
    };
    choices.erase(std::remove_if(choices.begin(), choices.end(),
                                 [&](const Choice& c) { return c.offset >= least_end; }),
                  choices.end());
    std::sort(choices.begin(), choices.end(), [&](const Choice& a, const Choice& b) {
      if (a.offset != b.offset) return a.offset < b.offset;
      const int64_t span_a = end_[a.index] - begin_[a.index];
      const int64_t span_b = end_[b.index] - begin_[b.index];
      if (span_a != span_b) return span_a > span_b;
      if (sizes_[a.index] != sizes_[b.index]) return sizes_[a.index] > sizes_[b.index];
      return std::make_pair(begin_[a.index], a.index) < std::make_pair(begin_[b.index], b.index);
    });
    choices.erase(std::unique(choices.begin(), choices.end(), same), choices.end());
    return work_left_ > 0;
  }

  void Take(const Choice& choice) {
    const int32_t i = choice.index;
    solution_.offsets[i] = choice.offset;
    for (int64_t t = begin_[i]; t < end_[i]; ++t) {
      top_[t] = choice.offset + sizes_[i];
      left_[t] -= sizes_[i];
    }
    waiting_.erase(std::lower_bound(waiting_.begin(), waiting_.end(), i));
  }

  void PutBack(const Choice& choice, const std::vector<int64_t>& tops) {
    const int32_t i = choice.index;
    std::copy(tops.begin(), tops.end(), top_.begin() + begin_[i]);
    for (int64_t t = begin_[i]; t < end_[i]; ++t) left_[t] += sizes_[i];
    waiting_.insert(std::lower_bound(waiting_.begin(), waiting_.end(), i), i);
  }

  const Problem& problem_;
  int64_t limit_;
  int64_t work_left_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> begin_, end_;  // Each buffer's lifetime, as indices of distinct times.
  std::vector<int64_t> top_;          // Bytes below which all is placed, at each time.
  std::vector<int64_t> left_;         // Bytes still to place, at each time.
  std::vector<int64_t> floor_;        // Scratch.
  std::vector<int32_t> waiting_;      // Indices, ascending.
  Solution solution_;
};

}  // namespace

std::optional<Solution> BranchAndBound(const Problem& problem, int64_t limit, int64_t work) {
  return Search(problem, limit, work).Run();
}

}  // namespace memc
