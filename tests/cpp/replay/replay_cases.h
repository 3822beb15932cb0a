// SPDX-License-Identifier: Apache-2.0
// Steps and plans for the tests of replay.
#ifndef MEMC_TESTS_REPLAY_CASES_H_
#define MEMC_TESTS_REPLAY_CASES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "check.h"
#include "replay/replay.h"

namespace memc::tests {

// A step: request i asks for `bytes[i]` on `streams[i]` and is freed before request `freed[i]`, or
// at the step's end if that is the count.
struct Step {
  std::vector<int64_t> bytes, streams, freed, offsets;
  int64_t arena = 0;
  int64_t count() const { return static_cast<int64_t>(bytes.size()); }
};

// At the lowest offset that is free among the blocks placed before it.
inline void PlaceFirstFit(Step* step) {
  step->offsets.clear();
  step->arena = 512;
  for (int64_t i = 0; i < step->count(); ++i) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (int64_t j = 0; j < i; ++j) {
      const bool other_stream = step->streams[j] != step->streams[i];
      if (step->freed[j] > i || other_stream) {
        taken.emplace_back(step->offsets[j], step->offsets[j] + step->bytes[j]);
      }
    }
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (at + step->bytes[i] <= begin) break;
      at = std::max(at, (end + 511) / 512 * 512);
    }
    step->offsets.push_back(at);
    step->arena = std::max(step->arena, at + step->bytes[i]);
  }
}

inline Step RandomStep(Random* random, int64_t count, int64_t streams) {
  Step step;
  for (int64_t i = 0; i < count; ++i) {
    step.bytes.push_back(random->Within(1, 8) * 300);
    step.streams.push_back(i < streams ? i : random->Below(streams));
    step.freed.push_back(std::min(count, i + 1 + random->Below(random->Flip() ? 4 : count)));
  }
  PlaceFirstFit(&step);
  return step;
}

inline int AddPlan(memc_replay_engine* engine, int64_t key, const Step& step) {
  const std::vector<int64_t> zeros(step.bytes.size());
  const memc_replay_plan plan{
      step.count(),        step.bytes.data(), step.streams.data(), zeros.data(),
      step.offsets.data(), zeros.data(),      step.arena,          -1};
  return memc_replay_add_plan(engine, key, &plan);
}

}  // namespace memc::tests

#endif  // MEMC_TESTS_REPLAY_CASES_H_
