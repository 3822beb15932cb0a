// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "check.h"
#include "solvers/common/interval_tree.h"

namespace {

using memc::Interval;
using memc::IntervalTree;

// What Take() gives, by looking at all intervals.
int32_t TakeByScan(const std::vector<Interval>& ranked, std::vector<char>& taken, int64_t lower,
                   int64_t upper) {
  for (size_t i = 0; i < ranked.size(); ++i) {
    if (taken[i] || ranked[i].lower < lower || ranked[i].upper > upper) continue;
    taken[i] = 1;
    return static_cast<int32_t>(i);
  }
  return -1;
}

std::vector<Interval> RandomIntervals(memc::tests::Random& random, int64_t count, int64_t end) {
  std::vector<Interval> found;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t lower = random.Below(end);
    found.push_back({lower, lower + random.Within(1, end / 2)});
  }
  std::stable_sort(found.begin(), found.end(), [](const Interval& a, const Interval& b) {
    return a.upper - a.lower > b.upper - b.lower;
  });
  return found;
}

TEST(AgreesWithAScan) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    memc::tests::Random random(seed);
    const int64_t end = random.Within(2, 60);
    const std::vector<Interval> ranked = RandomIntervals(random, random.Below(70), end);
    IntervalTree tree(ranked);
    std::vector<char> taken(ranked.size(), 0);
    for (int k = 0; k < 120; ++k) {
      const int64_t lower = random.Below(end);
      const int64_t upper = lower + random.Within(1, end);
      CHECK_EQ(tree.Take(lower, upper), TakeByScan(ranked, taken, lower, upper));
    }
  }
}

TEST(NothingIsWithinAnEmptyTree) {
  const std::vector<Interval> none;
  CHECK_EQ(IntervalTree(none).Take(0, 100), -1);
}

TEST(EachIsTakenOnce) {
  const std::vector<Interval> ranked(20, Interval{3, 5});
  IntervalTree tree(ranked);
  CHECK_EQ(tree.Take(4, 9), -1);
  for (int32_t i = 0; i < 20; ++i) CHECK_EQ(tree.Take(3, 5), i);
  CHECK_EQ(tree.Take(0, 9), -1);
}

TEST(TheRangeOfInt64IsAllowed) {
  const std::vector<Interval> ranked{{INT64_MIN, INT64_MAX}, {INT64_MAX - 1, INT64_MAX}};
  IntervalTree tree(ranked);
  CHECK_EQ(tree.Take(0, INT64_MAX), 1);
  CHECK_EQ(tree.Take(INT64_MIN, INT64_MAX), 0);
}

}  // namespace
