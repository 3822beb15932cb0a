// SPDX-License-Identifier: Apache-2.0
#include "solvers/recompute/recompute_state.h"

#include <algorithm>

namespace memc {

RecomputeState::RecomputeState(const RecomputeProblem& problem)
    : problem_(problem),
      maker_(problem.sizes.size(), -1),
      rivals_(problem.sizes.size()),
      before_(problem.ops()),
      runs_of_(problem.ops()),
      reads_of_(problem.sizes.size()),
      slots_(kSlotsFor * static_cast<int32_t>(problem.ops() + 16)),
      run_at_(slots_, -1),
      live_ranges_(problem.sizes.size()),
      tree_(slots_),
      is_dirty_(problem.sizes.size(), 0) {
  const auto ops = static_cast<int32_t>(problem.ops());
  for (int32_t op = 0; op < ops; ++op) {
    Run run;
    run.op = op;
    run.slot = kSpacing * (op + 1);
    run.previous = op - 1;
    run.next = op + 1 < ops ? op + 1 : -1;
    runs_.push_back(run);
    run_at_[run.slot] = op;
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
    tree_.Add(run.slot, run.slot, problem.scratch[op]);
  }
  first_ = ops > 0 ? 0 : -1;
  for (size_t value = 0; value < live_ranges_.size(); ++value) Place(static_cast<int32_t>(value));
}

std::vector<int32_t> RecomputeState::Sequence() const {
  std::vector<int32_t> sequence;
  for (int32_t run = first_; run >= 0; run = runs_[run].next) sequence.push_back(runs_[run].op);
  return sequence;
}

// The first of `runs` whose slot is at least `slot`.
size_t RecomputeState::Find(const std::vector<int32_t>& runs, int32_t slot) const {
  size_t low = 0, high = runs.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (runs_[runs[middle]].slot < slot) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int32_t RecomputeState::NextRead(int32_t value, int32_t slot) const {
  const std::vector<int32_t>& reads = reads_of_[value];
  const size_t read = Find(reads, slot);
  if (read == reads.size()) return -1;
  const std::vector<int32_t>& made = runs_of_[maker_[value]];
  const size_t again = Find(made, slot);
  if (again < made.size() && slot_of(made[again]) < slot_of(reads[read])) return -1;
  return reads[read];
}

int32_t RecomputeState::LastUse(int32_t value, int32_t slot) const {
  const std::vector<int32_t>& reads = reads_of_[value];
  const std::vector<int32_t>& made = runs_of_[maker_[value]];
  const size_t read = Find(reads, slot), run = Find(made, slot);
  int32_t found = -1;
  if (read > 0) found = slot_of(reads[read - 1]);
  if (run > 0) found = std::max(found, slot_of(made[run - 1]));
  return found;
}

bool RecomputeState::MayRun(int32_t op, int32_t run) const {
  for (const int32_t* end = problem_.until.begin(op); end != problem_.until.end(op); ++end) {
    if (slot_of(runs_of_[*end].front()) < slot_of(run)) return false;
  }
  return true;
}

bool RecomputeState::IsReadBefore(int32_t run, int32_t slot) const {
  const int32_t op = op_of(run);
  for (const int32_t* v = problem_.makes.begin(op); v != problem_.makes.end(op); ++v) {
    const int32_t read = NextRead(*v, slot_of(run) + 1);
    if (read >= 0 && slot_of(read) < slot) return true;
  }
  return false;
}

bool RecomputeState::MayRemove(int32_t run) const {
  return is_repeat(run) || (!problem_.in_order && runs_of_[op_of(run)].size() > 1);
}

bool RecomputeState::MayHoist(int32_t run, int32_t to) const {
  const int32_t op = op_of(run), slot = slot_of(to);
  if (problem_.in_order || runs_of_[op].size() > 1) return false;
  for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
    if (slot_of(runs_of_[maker_[*v]].front()) >= slot) return false;
  }
  return std::all_of(before_[op].begin(), before_[op].end(),
                     [&](int32_t earlier) { return slot_of(runs_of_[earlier].back()) < slot; });
}

// Whether `run` is the last to read the value before it is recomputed.
bool RecomputeState::EndsAt(int32_t value, int32_t run) const {
  return NextRead(value, slot_of(run) + 1) < 0;
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

// Finds where the value is live, and tells the tree of the difference.
void RecomputeState::Place(int32_t value) {
  const int64_t size = problem_.sizes[value];
  std::vector<LiveRange>& live_ranges = live_ranges_[value];
  if (size == 0) return;
  for (const LiveRange& old : live_ranges) tree_.Add(old.lower, old.upper, -size);
  live_ranges.clear();
  const std::vector<int32_t>& made = runs_of_[maker_[value]];
  const std::vector<int32_t>& reads = reads_of_[value];
  for (size_t i = 0; i < made.size(); ++i) {
    const int32_t lower = slot_of(made[i]);
    const size_t end = i + 1 < made.size() ? Find(reads, slot_of(made[i + 1])) : reads.size();
    int32_t upper = lower;
    if (end > 0 && slot_of(reads[end - 1]) > lower) {
      const int32_t last = reads[end - 1];
      upper = slot_of(last) - (TakesOver(last, value) ? 1 : 0);
    }
    live_ranges.push_back({lower, upper});
    tree_.Add(lower, upper, size);
  }
}

}  // namespace memc
