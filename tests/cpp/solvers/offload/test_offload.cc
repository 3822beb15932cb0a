// SPDX-License-Identifier: Apache-2.0
// Schedules with copies on small problems, measured by a definition written apart from the search.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "solvers/offload/lane_clock.h"
#include "solvers/offload/offload.h"
#include "solvers/recompute/random_recompute.h"

namespace {

using memc::Direction;
using memc::Item;
using memc::LaneClock;
using memc::OffloadProblem;
using memc::Schedule;
using memc::Step;

constexpr int64_t kMiB = int64_t{1} << 20;  // A lane of this many picoseconds a MiB: one a byte.

OffloadProblem RandomOffload(memc::tests::Random& random, int32_t ops) {
  OffloadProblem problem;
  problem.ops = memc::tests::RandomRecompute(random, ops);
  for (size_t v = 0; v < problem.ops.sizes.size(); ++v) {
    problem.movable.push_back(random.Below(5) != 0 ? 1 : 0);
  }
  for (memc::Lane* lane : {&problem.lanes.out, &problem.lanes.in}) {
    *lane = {random.Below(3), kMiB * random.Below(3) / 2, 1024};
  }
  return problem;
}

// When the items are over, if lanes do not slow each other: each copy begins at its start's time or
// at the end of the copy before it.
int64_t MakespanOf(const OffloadProblem& p, const std::vector<Item>& items) {
  int64_t now = 0, out_end = 0, in_end = 0;
  std::vector<int64_t> ends(p.ops.sizes.size(), 0);
  for (const Item& item : items) {
    const int64_t size = item.step == Step::kRun ? 0 : p.ops.sizes[item.number];
    if (item.step == Step::kRun) now += p.ops.costs[item.number];
    if (item.step == Step::kOutStart) {
      ends[item.number] = out_end = std::max(now, out_end) + p.lanes.out.Duration(size);
    }
    if (item.step == Step::kInStart) {
      ends[item.number] = in_end = std::max(now, in_end) + p.lanes.in.Duration(size);
    }
    if (item.step == Step::kOutDone || item.step == Step::kInDone) {
      now = std::max(now, ends[item.number]);
    }
  }
  return now;
}

bool Uses(const OffloadProblem& p, const Item& item, int32_t value, bool makes) {
  if (item.step != Step::kRun) return false;
  const memc::Rows& rows = makes ? p.ops.makes : p.ops.reads;
  return std::count(rows.begin(item.number), rows.end(item.number), value) != 0;
}

// Whether the value's bytes are taken at an item, and for the last time: from what makes or fetches
// it to its last use before that happens again or it leaves.
std::pair<bool, bool> LifeAt(const OffloadProblem& p, const std::vector<Item>& items, int32_t value,
                             size_t at) {
  const auto moves = [&](const Item& item, Step step) {
    return item.step == step && item.number == value;
  };
  size_t made = items.size();
  for (size_t i = 0; i <= at; ++i) {
    if (Uses(p, items[i], value, true) || moves(items[i], Step::kInStart)) made = i;
  }
  if (made == items.size()) return {false, false};
  size_t last = made;
  for (size_t i = made + 1; i < items.size(); ++i) {
    if (Uses(p, items[i], value, false) || moves(items[i], Step::kInDone)) last = i;
    if (moves(items[i], Step::kOutDone)) last = i;
    if (moves(items[i], Step::kOutDone) || moves(items[i], Step::kDrop)) break;
    if (Uses(p, items[i], value, true)) break;
  }
  return {at <= last, at == last};
}

int64_t PeakOf(const OffloadProblem& p, const std::vector<Item>& items) {
  int64_t peak = 0;
  for (size_t at = 0; at < items.size(); ++at) {
    int64_t bytes = 0;
    for (size_t v = 0; v < p.ops.sizes.size(); ++v) {
      if (LifeAt(p, items, static_cast<int32_t>(v), at).first) bytes += p.ops.sizes[v];
    }
    peak = items[at].step == Step::kRun ? peak : std::max(peak, bytes);
    if (items[at].step != Step::kRun) continue;
    const int32_t op = items[at].number;
    bytes += p.ops.scratch[op];
    for (const int32_t* v = p.ops.over.begin(op); v != p.ops.over.end(op); ++v) {
      if (!LifeAt(p, items, *v, at).second) continue;
      bytes -= p.ops.sizes[*v];
      break;
    }
    for (const int32_t* v = p.ops.parts.begin(op); v != p.ops.parts.end(op); ++v) {
      if (LifeAt(p, items, *v, at).second) bytes -= p.ops.sizes[*v];
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

TEST(LanesRunSideBySideAndSlowEachOther) {
  LaneClock clock({{2, kMiB, 512}, {0, kMiB, 256}});
  const size_t first = clock.Issue(Direction::kOut, 10);
  const size_t second = clock.Issue(Direction::kOut, 8);
  clock.AwaitCopy(Direction::kOut, first);
  CHECK_EQ(clock.now(), 12);
  const size_t in = clock.Issue(Direction::kIn, 6);  // Out has 10 to go at half its speed.
  CHECK_EQ(clock.IdleFrom(Direction::kOut), 22);
  clock.AwaitCopy(Direction::kOut, second);
  CHECK_EQ(clock.now(), 32);
  CHECK_EQ(clock.Ended(Direction::kIn), size_t{0});  // In has done 5 of 6.
  clock.AwaitCopy(Direction::kIn, in);
  CHECK_EQ(clock.now(), 33);
  clock.AwaitCopy(Direction::kOut, first);
  CHECK_EQ(clock.now(), 33);
}

TEST(PlansAreWhatTheDefinitionsSay) {
  int copies = 0, mixed = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    memc::tests::Random random(seed);
    const OffloadProblem problem = RandomOffload(random, 6 + random.Below(12));
    const std::vector<Schedule> ladder = memc::OffloadLadder(problem, 0);
    CHECK(!ladder.empty() && ladder.front().makespan == ladder.front().computing);
    for (const Schedule& plan : ladder) {
      CHECK_EQ(plan.makespan, MakespanOf(problem, plan.items));
      CHECK_EQ(plan.peak, PeakOf(problem, plan.items));
      const Schedule again = memc::MeasureSchedule(problem, plan.items);
      CHECK_EQ(again.makespan, plan.makespan);
      CHECK_EQ(again.peak, plan.peak);
      CHECK_EQ(again.added_cost, plan.added_cost);
      CHECK_EQ(again.bytes_in, plan.bytes_in);
      CHECK_EQ(again.bytes_out, plan.bytes_out);
      copies += plan.bytes_in > 0;
      mixed += plan.bytes_in > 0 && plan.added_cost > 0;
    }
  }
  CHECK(copies > 50 && mixed > 10);
}

TEST(NeverWorseThanRecomputationAlone) {
  int better = 0;
  for (uint32_t seed = 100; seed < 110; ++seed) {
    memc::tests::Random random(seed);
    OffloadProblem problem = RandomOffload(random, 16);
    const std::vector<Schedule> ladder = memc::OffloadLadder(problem, 0);
    const std::vector<memc::RecomputePlan> alone = memc::RecomputeLadder(problem.ops, 0);
    for (const memc::RecomputePlan& plan : alone) {
      const auto found = std::find_if(ladder.rbegin(), ladder.rend(), [&](const Schedule& other) {
        return other.peak <= plan.peak && other.makespan - plan.added_cost <= ladder[0].computing;
      });
      CHECK(found != ladder.rend());
    }
    const auto lowest = [](const Schedule& a, const Schedule& b) { return a.peak < b.peak; };
    better += std::min_element(ladder.begin(), ladder.end(), lowest)->peak < alone.back().peak;
    problem.movable.assign(problem.movable.size(), 0);
    const std::vector<Schedule> without = memc::OffloadLadder(problem, 0);
    for (const Schedule& plan : without) {
      CHECK(std::all_of(plan.items.begin(), plan.items.end(),
                        [](const Item& item) { return item.step == Step::kRun; }));
    }
    CHECK_EQ(without.back().peak, alone.back().peak);
  }
  CHECK(better > 1);
}

TEST(SchedulesThatAreNone) {
  memc::tests::Random random(3);
  OffloadProblem problem = RandomOffload(random, 3);
  problem.movable = {1, 1, 0};
  problem.ops.until.first = {0, 0, 0, 0};
  const auto measure = [&](std::vector<Item> items) {
    return memc::MeasureSchedule(problem, std::move(items));
  };
  const Item run0{Step::kRun, 0}, run1{Step::kRun, 1}, run2{Step::kRun, 2};
  CHECK_EQ(measure({run0, run1, run2}).added_cost, 0);
  CHECK_THROWS(std::invalid_argument, measure({run0, run1}), "op 2 does not run");
  CHECK_THROWS(std::invalid_argument, measure({run0, run1, {Step::kRun, 3}}),
               "none of this number");
  CHECK_THROWS(std::invalid_argument, measure({run0, run1, run2, {Step::kOutStart, 2}}),
               "may not be copied");
  CHECK_THROWS(std::invalid_argument, measure({{Step::kOutStart, 0}}), "it is not there");
  CHECK_THROWS(std::invalid_argument, measure({run0, {Step::kDrop, 0}}), "has no copy");
  CHECK_THROWS(std::invalid_argument, measure({run0, {Step::kInStart, 0}}), "it is there");
  CHECK_THROWS(std::invalid_argument, measure({run0, run1, run2, {Step::kOutStart, 0}}),
               "its copy is not done");
  CHECK_THROWS(std::invalid_argument, measure({run0, {Step::kOutDone, 0}}), "not being copied out");
  CHECK_THROWS(std::invalid_argument, measure({run0, {Step::kInDone, 0}}), "not being copied in");
}

}  // namespace
