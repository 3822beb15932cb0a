// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/sections.h"

#include <algorithm>
#include <numeric>

namespace memc {

namespace {

std::vector<int32_t> ByLower(const std::vector<Buffer>& buffers) {
  std::vector<int32_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return buffers[a].lower < buffers[b].lower; });
  return order;
}

// Calls pair(a, b) for every two buffers that are live together.
template <typename Fn>
void ForEachPair(const Problem& problem, Fn pair) {
  const std::vector<Buffer>& buffers = problem.buffers;
  const bool gaps = !problem.lives.empty();
  const std::vector<int32_t> order = ByLower(buffers);
  for (size_t a = 0; a < order.size(); ++a) {
    const int64_t upper = buffers[order[a]].upper;
    for (size_t b = a + 1; b < order.size() && buffers[order[b]].lower < upper; ++b) {
      if (!gaps || Together(problem, order[a], order[b])) pair(order[a], order[b]);
    }
  }
}

// Lists of integers one after another: list k is [first[k], first[k + 1]).
struct Lists {
  std::vector<int64_t> first;
  std::vector<int32_t> items;
};

// `each(add)` calls add(list, item) for every item, and is called twice.
template <typename Fn>
Lists Collect(size_t count, Fn each) {
  Lists lists;
  lists.first.assign(count + 1, 0);
  each([&](int32_t list, int32_t) { ++lists.first[list + 1]; });
  std::partial_sum(lists.first.begin(), lists.first.end(), lists.first.begin());
  lists.items.resize(lists.first.back());
  std::vector<int64_t> next(lists.first.begin(), lists.first.end() - 1);
  each([&](int32_t list, int32_t item) { lists.items[next[list]++] = item; });
  return lists;
}

}  // namespace

Sections MakeSections(const Problem& problem) {
  const std::vector<Buffer>& buffers = problem.buffers;
  // A live set is greatest just before an end that follows a beginning: between these moments,
  // buffers only end and then only begin.
  std::vector<int64_t> lowers, uppers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    ForEachLive(problem, i, [&](int64_t lower, int64_t upper) {
      lowers.push_back(lower);
      uppers.push_back(upper);
    });
  }
  std::sort(lowers.begin(), lowers.end());
  std::sort(uppers.begin(), uppers.end());
  std::vector<int64_t> moments;  // The last beginning before each such end.
  for (size_t l = 0, u = 0; u < uppers.size(); ++u) {
    const size_t begun = l;
    while (l < lowers.size() && lowers[l] < uppers[u]) ++l;
    if (l > begun) moments.push_back(lowers[l - 1]);
  }
  Sections sections;
  sections.count = static_cast<int32_t>(moments.size());
  const auto at_or_after = [&](int64_t time) {
    return static_cast<int32_t>(std::lower_bound(moments.begin(), moments.end(), time) -
                                moments.begin());
  };
  for (const Buffer& b : buffers) {
    sections.begin.push_back(at_or_after(b.lower));
    sections.end.push_back(at_or_after(b.upper));
  }
  if (!problem.lives.empty()) {
    sections.runs_first.push_back(0);
    for (size_t i = 0; i < buffers.size(); ++i) {
      ForEachLive(problem, i, [&](int64_t lower, int64_t upper) {
        sections.runs.emplace_back(at_or_after(lower), at_or_after(upper));
      });
      sections.runs_first.push_back(static_cast<int64_t>(sections.runs.size()));
    }
  }
  Lists live = Collect(moments.size(), [&](auto add) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      const auto index = static_cast<int32_t>(i);
      sections.ForEachOf(index, [&](int32_t s) { add(s, index); });
    }
  });
  Lists neighbours = Collect(buffers.size(), [&](auto add) {
    ForEachPair(problem, [&](int32_t a, int32_t b) {
      add(a, b);
      add(b, a);
    });
  });
  sections.live_first = std::move(live.first);
  sections.live = std::move(live.items);
  sections.neighbours_first = std::move(neighbours.first);
  sections.neighbours = std::move(neighbours.items);
  return sections;
}

}  // namespace memc
