// SPDX-License-Identifier: Apache-2.0
// What the placement searches are made of: decomposition, sections, the canonical search and the
// race.
#include <set>

#include "check.h"
#include "solvers/placement/canonical_search.h"
#include "solvers/placement/check.h"
#include "solvers/placement/decompose.h"
#include "solvers/placement/live_blocks.h"
#include "solvers/placement/packer.h"
#include "solvers/placement/race.h"
#include "solvers/placement/random_problems.h"
#include "solvers/placement/solvers.h"

namespace {

using memc::Problem;
using Status = memc::CanonicalSearch::Status;

// Plans of the parts, each on its base, together with the offsets of what is in none.
TEST(PartsAreIndependentAndExact) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    memc::tests::Random random(seed);
    const Problem problem = memc::tests::RandomProblem(random, random.Below(7), 9, 20);
    const memc::Decomposition whole = memc::Decompose(problem);
    std::vector<int64_t> offsets = whole.offsets;
    std::set<int32_t> seen;
    for (const memc::Part& part : whole.parts) {
      Problem own;
      own.alignment = problem.alignment;
      for (const int32_t i : part.buffers) {
        CHECK(seen.insert(i).second);
        own.buffers.push_back(problem.buffers[i]);
      }
      const memc::Solution best = memc::Search(own, {}).solution;
      for (size_t k = 0; k < part.buffers.size(); ++k)
        offsets[part.buffers[k]] = part.base + best.offsets[k];
    }
    const int64_t peak = memc::Peak(problem, offsets);
    CHECK_EQ(static_cast<int>(memc::CheckByDefinition(problem, {offsets, peak}).violation), 0);
    CHECK_EQ(peak, memc::tests::LeastPeak(problem));
  }
}

TEST(SectionsKeepEveryPair) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    memc::tests::Random random(seed);
    const Problem problem = memc::tests::RandomProblem(random, random.Within(1, 14), 10, 20);
    Problem nonempty;
    std::vector<memc::Buffer>& all = nonempty.buffers;
    for (const memc::Buffer& b : problem.buffers) {
      if (b.size > 0) all.push_back(b);
    }
    const memc::Sections sections = memc::MakeSections(nonempty);
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<int32_t> expected;
      for (size_t j = 0; j < all.size(); ++j) {
        const bool share =
            sections.begin[i] < sections.end[j] && sections.begin[j] < sections.end[i];
        CHECK_EQ(share, memc::tests::Meet(all[i], all[j]));
        if (i != j && share) expected.push_back(static_cast<int32_t>(j));
      }
      const auto at = [&](int64_t k) { return sections.neighbours.begin() + k; };
      const std::vector<int32_t> found(at(sections.neighbours_first[i]),
                                       at(sections.neighbours_first[i + 1]));
      std::stable_sort(expected.begin(), expected.end(),
                       [&](int32_t a, int32_t b) { return all[a].lower < all[b].lower; });
      CHECK(found == expected);
    }
    // No section's buffers are part of another's.
    for (int32_t s = 0; s < sections.count; ++s) {
      const auto row = [&](int32_t k) {
        return std::vector<int32_t>(sections.live.begin() + sections.live_first[k],
                                    sections.live.begin() + sections.live_first[k + 1]);
      };
      const std::vector<int32_t> here = row(s);
      CHECK(std::is_sorted(here.begin(), here.end()));
      for (int32_t t = 0; t < sections.count; ++t) {
        const std::vector<int32_t> there = row(t);
        CHECK(s == t || !std::includes(there.begin(), there.end(), here.begin(), here.end()));
      }
    }
  }
}

// With and without fixed offsets: found exactly where the limit is the least peak or above.
TEST(SearchAndRaceDecideEveryLimit) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    memc::tests::Random random(seed);
    Problem problem = memc::tests::RandomProblem(random, 6, 6, 9);
    problem.alignment = 1;
    for (memc::Buffer& b : problem.buffers) b.size += 1;
    if (random.Below(3) == 0) memc::tests::Fix(random, memc::Sequential(problem), problem);
    const int64_t least = memc::tests::LeastPeak(problem);
    for (const int64_t limit : {least - 1, least, least + 3}) {
      const Status expected = limit < least ? Status::kInfeasible : Status::kFound;
      memc::CanonicalSearch search(
          problem, {memc::Trait::kArea, memc::Trait::kTotal, memc::Trait::kWidth}, limit);
      while (search.status() == Status::kRunning) search.Run(3);  // Resumed again and again.
      CHECK(search.status() == expected);
      const memc::RaceResult race =
          memc::Race(problem, limit, 1'000'000'000, memc::Budget({-1, 2}));
      CHECK(race.status == expected);
      if (expected == Status::kInfeasible) continue;
      for (const std::vector<int64_t>* offsets : {&search.offsets(), &race.offsets}) {
        const int64_t peak = memc::Peak(problem, *offsets);
        CHECK(peak <= limit);
        CHECK_EQ(static_cast<int>(memc::CheckByDefinition(problem, {*offsets, peak}).violation), 0);
      }
    }
  }
}

TEST(ThePackerPacksAsFirstFitDoes) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    memc::tests::Random random(seed);
    Problem problem = memc::tests::RandomProblem(random, random.Below(20), 9, 20);
    if (random.Flip()) memc::tests::Fix(random, memc::Sequential(problem), problem);
    memc::Packer packer(problem);
    std::vector<int32_t> order = packer.movable();
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random.Below(static_cast<int64_t>(i))]);
    std::vector<int32_t> all = order;
    for (size_t i = 0; i < problem.buffers.size(); ++i) {
      if (problem.buffers[i].offset) all.push_back(static_cast<int32_t>(i));
    }
    const int64_t peak = memc::tests::PackedPeak(problem, all);
    CHECK(packer.Pack(order, peak));
    CHECK_EQ(packer.peak(), peak);
    if (peak > 0) CHECK(!packer.Pack(order, peak - 1));
  }
}

// Against a list of all live blocks.
TEST(LiveBlocksTakeTheLowestGap) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    memc::tests::Random random(seed);
    constexpr int32_t kBlocks = 60;
    memc::LiveBlocks blocks(kBlocks);
    std::vector<std::pair<int64_t, int64_t>> live(kBlocks, {-1, 0});  // Offset and size.
    for (int32_t next = 0; next < kBlocks;) {
      const auto old = static_cast<int32_t>(random.Below(kBlocks));
      if (live[old].first >= 0) {
        blocks.Free(old);
        live[old].first = -1;
        continue;
      }
      const int64_t size = random.Within(1, 9);
      std::vector<std::pair<int64_t, int64_t>> sorted;
      for (const auto& block : live) {
        if (block.first >= 0) sorted.push_back(block);
      }
      std::sort(sorted.begin(), sorted.end());
      int64_t lowest = 0;
      for (const auto& [offset, bytes] : sorted) {
        if (offset - lowest >= size) break;
        lowest = offset + bytes;
      }
      CHECK_EQ(blocks.Place(next, size), lowest);
      live[next++] = {lowest, size};
    }
  }
}

}  // namespace
