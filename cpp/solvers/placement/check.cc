// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/check.h"

#include <algorithm>
#include <map>
#include <vector>

namespace memc {

namespace {

using Wide = __int128;  // Ends of buffers may lie beyond int64.

Wide End(const Problem& problem, const Solution& solution, size_t i) {
  const Wide size = problem.buffers[i].size;
  const Wide alignment = problem.alignment;
  return solution.offsets[i] + (size + alignment - 1) / alignment * alignment;
}

int64_t Alignment(const Problem& problem, size_t i) {
  return problem.alignments.empty() ? problem.alignment : problem.alignments[i];
}

// The intervals in which buffer i is live: its whole lifetime where none are listed.
std::vector<Live> LivesOf(const Problem& problem, size_t i) {
  if (!problem.lives.empty() && !problem.lives[i].empty()) return problem.lives[i];
  return {{problem.buffers[i].lower, problem.buffers[i].upper}};
}

// What each offset must satisfy on its own, and the peak.
CheckResult CheckSingly(const Problem& problem, const Solution& solution) {
  const size_t n = problem.buffers.size();
  if (solution.offsets.size() != n) return {Violation::kWrongCount, -1, -1};
  Wide peak = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto index = static_cast<int64_t>(i);
    const Buffer& b = problem.buffers[i];
    const int64_t offset = solution.offsets[i];
    if (offset < 0) return {Violation::kNegative, index, -1};
    if (offset % Alignment(problem, i) != 0) return {Violation::kMisaligned, index, -1};
    if (b.offset && *b.offset != offset) return {Violation::kMoved, index, -1};
    if (b.size == 0) continue;
    const Wide end = End(problem, solution, i);
    if (end > problem.capacity) return {Violation::kOverCapacity, index, -1};
    peak = std::max(peak, end);
  }
  if (peak != solution.peak) return {Violation::kWrongPeak, -1, -1};
  return {};
}

bool ShareTime(const std::vector<Live>& a, const std::vector<Live>& b) {
  for (const Live& x : a) {
    for (const Live& y : b) {
      if (x.lower < y.upper && y.lower < x.upper) return true;
    }
  }
  return false;
}

CheckResult Overlap(size_t a, size_t b) {
  return {Violation::kOverlap, static_cast<int64_t>(std::min(a, b)),
          static_cast<int64_t>(std::max(a, b))};
}

}  // namespace

CheckResult Check(const Problem& problem, const Solution& solution) {
  const CheckResult singly = CheckSingly(problem, solution);
  if (singly.violation != Violation::kNone) return singly;

  struct Event {
    int64_t time;
    bool begins;  // At one time, ends come first: lifetimes are half-open.
    size_t index;
  };
  std::vector<Event> events;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& b = problem.buffers[i];
    if (b.size == 0) continue;
    for (const Live& live : LivesOf(problem, i)) {
      events.push_back({live.lower, true, i});
      events.push_back({live.upper, false, i});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.begins != b.begins) return b.begins;
    return a.index < b.index;
  });

  // The live buffers never overlap each other, so a new one need only be held against the
  // nearest below and above it.
  std::map<int64_t, size_t> live;  // Offset to index.
  for (const Event& event : events) {
    const int64_t offset = solution.offsets[event.index];
    if (!event.begins) {
      live.erase(offset);
      continue;
    }
    const auto above = live.lower_bound(offset);
    if (above != live.end() && End(problem, solution, event.index) > above->first) {
      return Overlap(event.index, above->second);
    }
    if (above != live.begin()) {
      const size_t below = std::prev(above)->second;
      if (End(problem, solution, below) > offset) return Overlap(event.index, below);
    }
    live.emplace(offset, event.index);
  }
  return {};
}

CheckResult CheckByDefinition(const Problem& problem, const Solution& solution) {
  const CheckResult singly = CheckSingly(problem, solution);
  if (singly.violation != Violation::kNone) return singly;
  std::vector<std::vector<Live>> lives;
  for (size_t i = 0; i < problem.buffers.size(); ++i) lives.push_back(LivesOf(problem, i));
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    for (size_t j = i + 1; j < problem.buffers.size(); ++j) {
      const Buffer& a = problem.buffers[i];
      const Buffer& b = problem.buffers[j];
      if (a.size == 0 || b.size == 0 || !ShareTime(lives[i], lives[j])) continue;
      if (solution.offsets[i] < End(problem, solution, j) &&
          solution.offsets[j] < End(problem, solution, i)) {
        return Overlap(i, j);
      }
    }
  }
  return {};
}

}  // namespace memc
