// SPDX-License-Identifier: Apache-2.0
#include "solvers/recompute/recompute_state.h"

#include <algorithm>
#include <utility>

namespace memc {

RecomputeState::RecomputeState(const RecomputeProblem& problem, std::vector<int64_t> shades)
    : problem_(problem),
      maker_(problem.sizes.size(), -1),
      rivals_(problem.sizes.size()),
      before_(problem.ops()),
      runs_of_(problem.ops()),
      reads_of_(problem.sizes.size()),
      tags_(kTagsPerOp * static_cast<int32_t>(problem.ops() + 16)),
      run_at_(tags_, -1),
      live_ranges_(problem.sizes.size()),
      spans_(problem.sizes.size(), LiveRange{tags_, -1}),
      absences_(problem.sizes.size()),
      fetches_of_(problem.sizes.size(), 0),
      tree_(tags_),
      clock_(tags_),
      absent_(tags_),
      absent_count_(tags_),
      is_dirty_(problem.sizes.size(), 0) {
  const auto ops = static_cast<int32_t>(problem.ops());
  for (int32_t op = 0; op < ops; ++op) {
    Run run;
    run.op = op;
    run.previous = op - 1;
    run.next = op + 1 < ops ? op + 1 : -1;
    if (!shades.empty()) run.shade = shades[op];
    runs_.push_back(std::move(run));
    run_tags_.push_back(kSpacing * (op + 1));
    run_at_[tag_of(op)] = op;
    runs_of_[op].push_back(op);
    for (const int32_t* i = problem.until.begin(op); i != problem.until.end(op); ++i) {
      before_[*i].push_back(op);
    }
    for (const int32_t* v = problem.makes.begin(op); v != problem.makes.end(op); ++v) {
      maker_[*v] = op;
    }
    for (const int32_t* v = problem.reads.begin(op); v != problem.reads.end(op); ++v) {
      reads_of_[*v].push_back(op);
    }
    for (const int32_t* v = problem.over.begin(op); v != problem.over.end(op); ++v) {
      for (const int32_t* u = problem.over.begin(op); u != problem.over.end(op); ++u) {
        if (*u != *v) rivals_[*v].push_back(*u);
      }
    }
    Load(op, 1);
  }
  first_ = ops > 0 ? 0 : -1;
  for (size_t value = 0; value < live_ranges_.size(); ++value) Place(static_cast<int32_t>(value));
}

std::vector<int32_t> RecomputeState::Sequence() const {
  std::vector<int32_t> sequence;
  for (int32_t run = first_; run >= 0; run = runs_[run].next) sequence.push_back(runs_[run].op);
  return sequence;
}

// The first of `runs` whose tag is at least `tag`.
size_t RecomputeState::Find(const std::vector<int32_t>& runs, int32_t tag) const {
  size_t low = 0, high = runs.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (run_tags_[runs[middle]] < tag) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int32_t RecomputeState::NextRead(int32_t value, int32_t tag) const {
  const std::vector<int32_t>& reads = reads_of_[value];
  const size_t read = Find(reads, tag);
  if (read == reads.size()) return -1;
  const std::vector<int32_t>& made = runs_of_[maker_[value]];
  const size_t again = Find(made, tag);
  if (again < made.size() && tag_of(made[again]) < tag_of(reads[read])) return -1;
  return reads[read];
}

RecomputeState::Uses RecomputeState::UsesAround(int32_t value, int32_t tag) const {
  const std::vector<int32_t>& reads = reads_of_[value];
  const std::vector<int32_t>& made = runs_of_[maker_[value]];
  const size_t read = Find(reads, tag), run = Find(made, tag);
  Uses found = {-1, read < reads.size() ? reads[read] : -1};
  if (read > 0) found.last = tag_of(reads[read - 1]);
  if (run > 0) found.last = std::max(found.last, tag_of(made[run - 1]));
  if (found.next >= 0 && run < made.size() && tag_of(made[run]) < tag_of(found.next)) {
    found.next = -1;
  }
  return found;
}

bool RecomputeState::MayRun(int32_t op, int32_t run) const {
  for (const int32_t* end = problem_.until.begin(op); end != problem_.until.end(op); ++end) {
    if (tag_of(runs_of_[*end].front()) < tag_of(run)) return false;
  }
  return true;
}

bool RecomputeState::IsReadBefore(int32_t run, int32_t tag) const {
  const int32_t op = op_of(run);
  for (const int32_t* v = problem_.makes.begin(op); v != problem_.makes.end(op); ++v) {
    const int32_t read = NextRead(*v, tag_of(run) + 1);
    if (read >= 0 && tag_of(read) < tag) return true;
  }
  return false;
}

bool RecomputeState::MayRemove(int32_t run) const {
  return is_repeat(run) || (!problem_.in_order && runs_of_[op_of(run)].size() > 1);
}

bool RecomputeState::MayHoist(int32_t run, int32_t to) const {
  const int32_t op = op_of(run), tag = tag_of(to);
  if (problem_.in_order || runs_of_[op].size() > 1) return false;
  for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
    if (tag_of(runs_of_[maker_[*v]].front()) >= tag) return false;
  }
  return std::all_of(before_[op].begin(), before_[op].end(),
                     [&](int32_t earlier) { return tag_of(runs_of_[earlier].back()) < tag; });
}

// Whether `run` is the last to read the value before it is recomputed.
bool RecomputeState::EndsAt(int32_t value, int32_t run) const {
  return NextRead(value, tag_of(run) + 1) < 0;
}

// Whether the first result of `run`, which is the last to read the value, takes over its bytes.
bool RecomputeState::TakesOver(int32_t run, int32_t value) const {
  const int32_t op = runs_[run].op;
  const int32_t* end = problem_.parts.end(op);
  if (std::find(problem_.parts.begin(op), end, value) != end) return true;
  for (const int32_t* v = problem_.over.begin(op); v != problem_.over.end(op); ++v) {
    if (EndsAt(*v, run)) return *v == value;
  }
  return false;
}

bool RecomputeState::IsFetched(int32_t value, int32_t run) const {
  const std::vector<int32_t>& fetched = runs_[run].fetched;
  return std::find(fetched.begin(), fetched.end(), value) != fetched.end();
}

// Tells the tree and the clock of what a run takes by itself, or of its end.
void RecomputeState::Load(int32_t run, int sign) {
  const int32_t op = op_of(run), tag = tag_of(run);
  tree_.Add(tag, tag, sign * (problem_.scratch[op] + runs_[run].shade));
  clock_.Add(tag, sign * problem_.costs[op]);
}

// Finds where the value is live and absent, and tells the trees of the difference.
void RecomputeState::Place(int32_t value) {
  if (problem_.sizes[value] == 0) return;
  found_live_.clear();
  found_absent_.clear();
  const std::vector<int32_t>& made = runs_of_[maker_[value]];
  const std::vector<int32_t>& reads = reads_of_[value];
  for (size_t i = 0; i < made.size(); ++i) {
    int32_t lower = tag_of(made[i]);
    const size_t end = i + 1 < made.size() ? Find(reads, tag_of(made[i + 1])) : reads.size();
    int32_t upper = lower;
    if (fetches_of_[value] > 0) {
      for (size_t read = Find(reads, lower + 1); read < end; ++read) {
        const int32_t tag = tag_of(reads[read]);
        if (IsFetched(value, reads[read]) && tag - upper > 1) {
          found_live_.push_back({lower, upper});
          found_absent_.push_back({upper + 1, tag - 1});
          lower = tag;
        }
        upper = tag;
      }
    }
    if (end > 0 && tag_of(reads[end - 1]) > tag_of(made[i])) {
      const int32_t last = reads[end - 1];
      upper = tag_of(last) - (TakesOver(last, value) ? 1 : 0);
      if (upper < lower) continue;  // Fetched for the run that takes its bytes over.
    }
    found_live_.push_back({lower, upper});
  }
  MoveLive(value);
  MoveAbsences(value);
}

// The value is live where it was found to be. Most of its ranges are what they were, or end
// elsewhere.
void RecomputeState::MoveLive(int32_t value) {
  const int64_t size = problem_.sizes[value];
  std::vector<LiveRange>& ranges = live_ranges_[value];
  const size_t both = std::min(ranges.size(), found_live_.size());
  for (size_t i = 0; i < both; ++i) {
    const LiveRange &old = ranges[i], &now = found_live_[i];
    if (old.lower != now.lower) {
      tree_.Add(old.lower, old.upper, -size);
      tree_.Add(now.lower, now.upper, size);
    } else if (old.upper < now.upper) {
      tree_.Add(old.upper + 1, now.upper, size);
    } else if (old.upper > now.upper) {
      tree_.Add(now.upper + 1, old.upper, -size);
    }
  }
  for (size_t i = both; i < ranges.size(); ++i) tree_.Add(ranges[i].lower, ranges[i].upper, -size);
  for (size_t i = both; i < found_live_.size(); ++i) {
    tree_.Add(found_live_[i].lower, found_live_[i].upper, size);
  }
  ranges.assign(found_live_.begin(), found_live_.end());
  spans_[value] =
      ranges.empty() ? LiveRange{tags_, -1} : LiveRange{ranges.front().lower, ranges.back().upper};
}

void RecomputeState::MoveAbsences(int32_t value) {
  std::vector<LiveRange>& ranges = absences_[value];
  const auto same = [](const LiveRange& a, const LiveRange& b) {
    return a.lower == b.lower && a.upper == b.upper;
  };
  if (std::equal(ranges.begin(), ranges.end(), found_absent_.begin(), found_absent_.end(), same)) {
    return;
  }
  for (const LiveRange& old : ranges) CountAbsence(value, old, -1);
  for (const LiveRange& now : found_absent_) CountAbsence(value, now, 1);
  ranges.assign(found_absent_.begin(), found_absent_.end());
}

void RecomputeState::CountAbsence(int32_t value, const LiveRange& range, int sign) {
  absent_.Add(range.lower, sign * problem_.sizes[value]);
  absent_.Add(range.upper + 1, -sign * problem_.sizes[value]);
  absent_count_.Add(range.lower, sign);
  absent_count_.Add(range.upper + 1, -sign);
}

}  // namespace memc
