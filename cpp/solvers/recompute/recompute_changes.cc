// SPDX-License-Identifier: Apache-2.0
// Changes of a sequence of runs, and the tags that make room for them.
#include <algorithm>
#include <stdexcept>

#include "solvers/recompute/recompute_state.h"

namespace memc {

namespace {

constexpr int kNeighbours = 32;  // Runs on either side that make room first.

}  // namespace

int32_t RecomputeState::FreeTag(int32_t previous, int32_t next) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int32_t low = previous >= 0 ? tag_of(previous) : 0;
    const int32_t high = next >= 0 ? tag_of(next) : std::min(low + 2 * kSpacing, tags_);
    // Near the front: what follows often comes between this one and the next.
    if (high - low > 1) return low + std::max<int32_t>(1, (high - low) / 8);
    if (!RespaceAround(previous, next)) Respace();
  }
  throw std::length_error("recomputation: the sequence is too long");
}

// Spreads the neighbours of a place over the tags that they have together, which is much quicker
// than to move all runs. Returns whether that makes enough room.
bool RecomputeState::RespaceAround(int32_t previous, int32_t next) {
  std::vector<int32_t> window;
  int32_t before = previous, after = next;
  for (int i = 0; i < kNeighbours && before >= 0; ++i, before = runs_[before].previous) {
    window.push_back(before);
  }
  std::reverse(window.begin(), window.end());
  for (int i = 0; i < kNeighbours && after >= 0; ++i, after = runs_[after].next) {
    window.push_back(after);
  }
  const int32_t low = before >= 0 ? tag_of(before) : 0;
  const int32_t high = after >= 0 ? tag_of(after) : tags_;
  const int32_t step = (high - low) / static_cast<int32_t>(window.size() + 1);
  if (step < kSpacing / 2) return false;
  for (int32_t run : window) {
    run_at_[tag_of(run)] = -1;
    Load(run, -1);
  }
  int32_t tag = low;
  for (int32_t run : window) {
    run_tags_[run] = tag += step;
    run_at_[tag] = run;
    Load(run, 1);
  }
  std::vector<int32_t> moved;
  for (int32_t run : window) {
    for (const Rows* rows : {&problem_.makes, &problem_.reads}) {
      moved.insert(moved.end(), rows->begin(op_of(run)), rows->end(op_of(run)));
    }
  }
  std::sort(moved.begin(), moved.end());
  moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
  for (int32_t value : moved) Place(value);
  return true;
}

// Spreads the runs over all tags. Everything that is kept by tag is rebuilt.
void RecomputeState::Respace() {
  int32_t count = 0;
  for (int32_t run = first_; run >= 0; run = runs_[run].next) ++count;
  const int32_t step = tags_ / (count + 1);
  if (step < 2) throw std::length_error("recomputation: the sequence is too long");
  tree_ = PeakTree(tags_);
  clock_ = PrefixSums(tags_);
  absent_ = absent_count_ = PrefixSums(tags_);
  int32_t tag = 0;
  for (int32_t run = first_; run >= 0; run = runs_[run].next) {
    run_tags_[run] = tag += step;
    run_at_[tag] = run;
    Load(run, 1);
  }
  for (size_t value = 0; value < live_ranges_.size(); ++value) {
    live_ranges_[value].clear();
    absences_[value].clear();
    Place(static_cast<int32_t>(value));
  }
}

void RecomputeState::MarkDirty(int32_t value) {
  if (is_dirty_[value]) return;
  is_dirty_[value] = 1;
  dirty_.push_back(value);
}

void RecomputeState::Touch(int32_t op) {
  for (const Rows* rows : {&problem_.makes, &problem_.reads}) {
    for (const int32_t* v = rows->begin(op); v != rows->end(op); ++v) {
      MarkDirty(*v);
      for (int32_t rival : rivals_[*v]) MarkDirty(rival);
    }
  }
}

// Puts a run that has an op and neighbours into the sequence.
void RecomputeState::Link(int32_t run) {
  const int32_t op = runs_[run].op, previous = runs_[run].previous, next = runs_[run].next;
  const int32_t tag = FreeTag(previous, next);
  run_tags_[run] = tag;
  (previous >= 0 ? runs_[previous].next : first_) = run;
  if (next >= 0) runs_[next].previous = run;
  std::vector<int32_t>& runs = runs_of_[op];
  const size_t at = Find(runs, tag);
  runs.insert(runs.begin() + at, run);
  run_at_[tag] = run;
  for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
    std::vector<int32_t>& reads = reads_of_[*v];
    reads.insert(reads.begin() + Find(reads, tag), run);
  }
  CountRepeat(at == 0 ? runs[1] : run);
  for (int32_t value : runs_[run].fetched) CountFetch(value, run);
  Load(run, 1);
  Touch(op);
}

// Takes a run out; it keeps its op and neighbours, so that Link puts it back.
void RecomputeState::Unlink(int32_t run) {
  const int32_t op = runs_[run].op, tag = run_tags_[run];
  const int32_t previous = runs_[run].previous, next = runs_[run].next;
  std::vector<int32_t>& runs = runs_of_[op];
  runs.erase(runs.begin() + Find(runs, tag));
  for (const int32_t* v = problem_.reads.begin(op); v != problem_.reads.end(op); ++v) {
    std::vector<int32_t>& reads = reads_of_[*v];
    reads.erase(reads.begin() + Find(reads, tag));
  }
  (previous >= 0 ? runs_[previous].next : first_) = next;
  if (next >= 0) runs_[next].previous = previous;
  DiscountRepeat(is_repeat(run) ? run : runs.front());
  for (int32_t value : runs_[run].fetched) DiscountFetch(value, run);
  Load(run, -1);
  Touch(op);
}

void RecomputeState::CountRepeat(int32_t run) {
  runs_[run].repeat = static_cast<int32_t>(repeats_.size());
  repeats_.push_back(run);
  added_cost_ += problem_.costs[op_of(run)];
}

void RecomputeState::DiscountRepeat(int32_t run) {
  const int32_t hole = runs_[run].repeat;
  repeats_[hole] = repeats_.back();
  runs_[repeats_[hole]].repeat = hole;
  repeats_.pop_back();
  runs_[run].repeat = -1;
  added_cost_ -= problem_.costs[op_of(run)];
}

void RecomputeState::CountFetch(int32_t value, int32_t run) {
  fetches_.push_back({value, run});
  ++fetches_of_[value];
}

void RecomputeState::DiscountFetch(int32_t value, int32_t run) {
  const auto found = std::find_if(fetches_.begin(), fetches_.end(), [&](const Fetched& fetch) {
    return fetch.value == value && fetch.run == run;
  });
  *found = fetches_.back();
  fetches_.pop_back();
  --fetches_of_[value];
}

void RecomputeState::AddFetch(int32_t value, int32_t run) {
  runs_[run].fetched.push_back(value);
  CountFetch(value, run);
  MarkDirty(value);
}

void RecomputeState::DropFetch(int32_t value, int32_t run) {
  std::vector<int32_t>& fetched = runs_[run].fetched;
  fetched.erase(std::find(fetched.begin(), fetched.end(), value));
  DiscountFetch(value, run);
  MarkDirty(value);
}

void RecomputeState::Fetch(int32_t value, int32_t run) {
  AddFetch(value, run);
  edits_.push_back({run, Change::kFetched, value});
}

void RecomputeState::Keep(int32_t value, int32_t run) {
  DropFetch(value, run);
  edits_.push_back({run, Change::kKept, value});
}

int32_t RecomputeState::Insert(int32_t op, int32_t before) {
  int32_t run = static_cast<int32_t>(runs_.size());
  if (unused_.empty()) {
    runs_.emplace_back();
    run_tags_.push_back(-1);
  } else {
    run = unused_.back();
    unused_.pop_back();
  }
  runs_[run].op = op;
  runs_[run].shade = runs_[before].shade;
  runs_[run].fetched.clear();
  runs_[run].next = before;
  runs_[run].previous = runs_[before].previous;
  Link(run);
  edits_.push_back({run, Change::kInserted});
  return run;
}

void RecomputeState::Remove(int32_t run) {
  Unlink(run);
  edits_.push_back({run, Change::kRemoved});
}

void RecomputeState::ClearShades() {
  for (int32_t run = first_; run >= 0; run = runs_[run].next) {
    tree_.Add(tag_of(run), tag_of(run), -runs_[run].shade);
    runs_[run].shade = 0;
  }
}

void RecomputeState::Update() {
  for (size_t i = 0; i < dirty_.size(); ++i) {
    Place(dirty_[i]);
    is_dirty_[dirty_[i]] = 0;
  }
  dirty_.clear();
}

void RecomputeState::Commit() {
  for (const Edit& edit : edits_) {
    // A run that was inserted and removed again appears twice, and is free from the second on.
    if (edit.change == Change::kRemoved) unused_.push_back(edit.run);
  }
  edits_.clear();
}

void RecomputeState::RollBack() {
  while (!edits_.empty()) {
    const Edit edit = edits_.back();
    edits_.pop_back();
    switch (edit.change) {
      case Change::kInserted:
        Unlink(edit.run);
        unused_.push_back(edit.run);
        break;
      case Change::kRemoved:
        Link(edit.run);
        break;
      case Change::kFetched:
        DropFetch(edit.value, edit.run);
        break;
      case Change::kKept:
        AddFetch(edit.value, edit.run);
        break;
    }
  }
  Update();
}

}  // namespace memc
