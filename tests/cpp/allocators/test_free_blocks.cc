// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "allocators/free_blocks.h"
#include "check.h"

namespace {

using memc::FreeBlock;
using memc::FreeBlocks;

// Against the standard's ordered set, over enough blocks for several chunks.
TEST(DoesWhatAnOrderedSetDoes) {
  memc::tests::Random random(7);
  FreeBlocks blocks;
  std::set<std::pair<int64_t, int64_t>> expected;
  for (int step = 0; step < 20000; ++step) {
    const FreeBlock block{1 + random.Below(40), random.Below(60), 1};
    const std::pair<int64_t, int64_t> key(block.size, block.address);
    if (expected.count(key) != 0) {
      blocks.EraseBlock(block);
      expected.erase(key);
    } else if (random.Below(3) != 0 || step < 3000) {
      blocks.Insert(block);
      expected.insert(key);
    }
    const FreeBlock asked{1 + random.Below(50), random.Below(61), 0};
    const auto place = blocks.LowerBound(asked);
    const auto found = expected.lower_bound({asked.size, asked.address});
    CHECK_EQ(blocks.AtEnd(place), found == expected.end());
    if (found == expected.end() || blocks.AtEnd(place)) continue;
    CHECK_EQ(blocks.At(place).size, found->first);
    CHECK_EQ(blocks.At(place).address, found->second);
    CHECK_EQ(blocks.AtBegin(place), found == expected.begin());
    const auto next = blocks.Next(place);
    CHECK_EQ(blocks.AtEnd(next), std::next(found) == expected.end());
    if (found != expected.begin()) {
      CHECK_EQ(blocks.At(blocks.Previous(place)).address, std::prev(found)->second);
    }
  }
  size_t count = 0;
  for (auto at = blocks.begin(); !blocks.AtEnd(at); at = blocks.Next(at)) ++count;
  CHECK_EQ(count, expected.size());
  CHECK(count > 300);
}

}  // namespace
