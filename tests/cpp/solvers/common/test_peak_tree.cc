// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "check.h"
#include "solvers/common/peak_tree.h"

namespace {

TEST(AgreesWithAnArray) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    memc::tests::Random random(seed);
    const auto size = static_cast<int32_t>(random.Within(1, 40));
    memc::PeakTree tree(size);
    std::vector<int64_t> sums(size, 0);
    for (int k = 0; k < 100; ++k) {
      const auto lower = static_cast<int32_t>(random.Below(size));
      const auto upper = static_cast<int32_t>(random.Within(lower, size - 1));
      // Sums stay 0 or more, as those of live bytes do.
      const int64_t least = *std::min_element(sums.begin() + lower, sums.begin() + upper + 1);
      const int64_t amount = random.Flip() ? random.Below(1000) : -random.Within(0, least);
      tree.Add(lower, upper, amount);
      for (int32_t i = lower; i <= upper; ++i) sums[i] += amount;
      const auto greatest = std::max_element(sums.begin(), sums.end());
      CHECK_EQ(tree.Max(), *greatest);
      CHECK_EQ(tree.ArgMax(), static_cast<int32_t>(greatest - sums.begin()));
      const auto from = static_cast<int32_t>(random.Below(size));
      const auto to = static_cast<int32_t>(random.Within(from, size - 1));
      CHECK_EQ(tree.MaxIn(from, to), *std::max_element(sums.begin() + from, sums.begin() + to + 1));
    }
  }
}

}  // namespace
