// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/conflict.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "solvers/common/budget.h"
#include "solvers/placement/check.h"
#include "solvers/placement/lower_bound.h"

namespace memc {

namespace {

enum class Verdict { kFits, kUnknown, kInfeasible };

// The moment of the largest live set.
int64_t FullestMoment(const Problem& problem, const std::vector<int64_t>& sizes) {
  std::vector<std::pair<int64_t, int64_t>> events;  // (time, change in live bytes)
  for (size_t i = 0; i < sizes.size(); ++i) {
    ForEachLive(problem, i, [&](int64_t lower, int64_t upper) {
      events.emplace_back(lower, sizes[i]);
      events.emplace_back(upper, -sizes[i]);
    });
  }
  std::sort(events.begin(), events.end());
  int64_t live = 0;
  int64_t most = 0;
  int64_t moment = 0;
  for (const auto& [time, change] : events) {
    live += change;
    if (live > most) {
      most = live;
      moment = time;
    }
  }
  return moment;
}

// As few buffers live at `moment` as exceed the capacity together; all of them if they do not.
std::vector<int32_t> LargestAt(const Problem& problem, const std::vector<int64_t>& sizes,
                               int64_t moment) {
  std::vector<int32_t> live;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ForEachLive(problem, i, [&](int64_t lower, int64_t upper) {
      if (sizes[i] > 0 && lower <= moment && moment < upper) {
        live.push_back(static_cast<int32_t>(i));
      }
    });
  }
  std::stable_sort(live.begin(), live.end(),
                   [&](int32_t a, int32_t b) { return sizes[a] > sizes[b]; });
  int64_t left = problem.capacity;
  size_t count = 0;
  while (count < live.size() && left >= 0) left -= sizes[live[count++]];
  live.resize(count);
  return live;
}

// Leaves buffers out of a set as long as the others do not fit.
class Deletion {
 public:
  Deletion(const Problem& problem, const SolverOptions& options)
      : problem_(problem), options_(options), budget_(options) {}

  // Whether these buffers fit, by a search with this share of the usual work.
  Verdict Fit(const std::vector<int32_t>& buffers, double effort) {
    const Problem part = Subproblem(problem_, buffers);
    SolverOptions options = options_;
    options.effort = effort;
    if (budget_.deadline) {
      const std::chrono::duration<double> left =
          *budget_.deadline - std::chrono::steady_clock::now();
      options.time_limit = std::max(0.0, left.count());
    }
    const Outcome outcome = Auto(part, options);
    if (outcome.lower_bound > part.capacity) return Verdict::kInfeasible;
    switch (Check(part, outcome.solution).violation) {
      case Violation::kNone:
        return Verdict::kFits;
      case Violation::kOverlap:  // Only buffers that are fixed so.
        return Verdict::kInfeasible;
      default:
        return Verdict::kUnknown;
    }
  }

  // `conflict`: buffers that do not fit, or of which no plan was found.
  void Shrink(Conflict& conflict) {
    std::vector<int32_t>& set = conflict.buffers;
    bool certain = true;  // Whether each one that was kept is needed.
    for (size_t group = std::max<size_t>(1, set.size() / 2);; group /= 2) {
      certain = true;
      for (size_t begin = 0; begin < set.size() && set.size() > 1;) {
        if (searches_ == kConflictSearches || budget_.Over()) return;
        ++searches_;
        const size_t end = std::min(begin + group, set.size());
        std::vector<int32_t> rest(set.begin(), set.begin() + static_cast<std::ptrdiff_t>(begin));
        rest.insert(rest.end(), set.begin() + static_cast<std::ptrdiff_t>(end), set.end());
        const Verdict verdict = Fit(rest, kConflictEffort);
        const bool leave_out =
            !rest.empty() &&
            (verdict == Verdict::kInfeasible || (verdict == Verdict::kUnknown && !conflict.proven));
        if (leave_out) {
          conflict.proven = conflict.proven || verdict == Verdict::kInfeasible;
          set = std::move(rest);
        } else {
          certain = certain && verdict == Verdict::kFits;
          begin = end;
        }
      }
      if (group == 1) break;
    }
    conflict.minimal = certain;
  }

 private:
  const Problem& problem_;
  const SolverOptions& options_;
  Budget budget_;
  int64_t searches_ = 0;
};

}  // namespace

Conflict FindConflict(const Problem& problem, const SolverOptions& options) {
  Validate(problem);
  const std::vector<int64_t> sizes = RoundedSizes(problem);
  const bool any_fixed = std::any_of(problem.buffers.begin(), problem.buffers.end(),
                                     [](const Buffer& b) { return b.offset.has_value(); });
  Conflict conflict;
  const int64_t bound = LowerBound(problem);
  const int64_t moment = FullestMoment(problem, sizes);
  std::vector<int32_t> live = LargestAt(problem, sizes, moment);
  const auto bytes = [&](int64_t sum, int32_t i) { return sum + sizes[i]; };
  if (bound > problem.capacity &&
      std::accumulate(live.begin(), live.end(), int64_t{0}, bytes) > problem.capacity) {
    conflict = {std::move(live), moment, true, true};
    std::sort(conflict.buffers.begin(), conflict.buffers.end());
    // Without the least of them the others fit one above the other, unless they have to lie apart.
    if (!any_fixed && problem.alignments.empty()) return conflict;
    conflict.minimal = false;
    Deletion(problem, options).Shrink(conflict);
    const std::vector<int32_t>& left = conflict.buffers;
    const int64_t sum = std::accumulate(left.begin(), left.end(), int64_t{0}, bytes);
    if (sum <= problem.capacity) conflict.moment = std::nullopt;
    return conflict;
  }
  Deletion deletion(problem, options);
  std::vector<int32_t> all;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) all.push_back(static_cast<int32_t>(i));
  }
  // In order of time: buffers far from each other are left out together.
  std::stable_sort(all.begin(), all.end(), [&](int32_t a, int32_t b) {
    return problem.buffers[a].lower < problem.buffers[b].lower;
  });
  const Verdict verdict = deletion.Fit(all, 1);
  if (verdict == Verdict::kFits) return conflict;
  conflict.buffers = std::move(all);
  conflict.proven = verdict == Verdict::kInfeasible;
  if (conflict.buffers.size() <= kMostConflicting) deletion.Shrink(conflict);
  std::sort(conflict.buffers.begin(), conflict.buffers.end());
  return conflict;
}

}  // namespace memc
