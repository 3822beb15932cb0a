// SPDX-License-Identifier: Apache-2.0
// Buffers are placed in order of offset, each as low as those before it (and buffers with fixed
// offsets) allow. Of all plans that keep the limit, one with the least sum of offsets can be built
// so, hence no others need to be looked at:
//
//   - The next buffer never lies lower than the last one; at the same offset, the order decides. A
//     buffer passed over so is *skipped*: it waits until another is placed below it.
//   - If a waiting buffer would fit entirely below the next one's offset, the next one is not
//   tried:
//     all later ones lie higher, so that buffer could be moved down at the end.
//   - Of buffers with equal size and lifetime, the first in the order goes first.
//
// A branch ends when in some section no waiting buffer can lie low enough for all of the section's
// waiting buffers to fit one above the other below the limit. These rules are those of Moffitt 2023
// (MiniMalloc). Here all they need is kept up to date by each placement rather than recomputed:
//
//   - Each section remembers a witness, a buffer low enough. It is looked at only where a placement
//     raised buffers, and another is looked for only when it has become too high.
//   - When the waiting buffers fall into components that share no time, each is searched on its
//     own; if one has no plan, the search returns to the decision that split it off.
//   - What can still be done depends on the waiting buffers of a component, how low each can lie
//   and
//     which are skipped. States of that kind without a plan are remembered, by hash.
//
// All of this holds with alignments of single buffers: as low as possible is then at the next
// multiple. A buffer with gaps is live in some sections of its lifetime only, and meets no others
// there; that it belongs to one component with all that its whole lifetime touches costs some work
// and no plan.
#include "solvers/placement/canonical_search.h"

#include <algorithm>

namespace memc {

void CanonicalSearch::SortByPreference(int32_t first, int32_t count) {
  const auto begin = pool_.begin() + first;
  for (auto i = begin; i < begin + count; ++i) {
    total_[*i] =
        *std::max_element(left_.begin() + sections_.begin[*i], left_.begin() + sections_.end[*i]);
  }
  const auto by = [&](Trait trait, int32_t i) {
    if (trait == Trait::kTotal) return static_cast<double>(total_[i]);
    return trait == Trait::kWidth ? width_[i] : width_[i] * static_cast<double>(sizes_[i]);
  };
  std::sort(begin, begin + count, [&](int32_t a, int32_t b) {
    for (const Trait trait : preference_) {
      const double x = by(trait, a);
      const double y = by(trait, b);
      if (x != y) return x > y;
    }
    return a < b;
  });
}

CanonicalSearch::Status CanonicalSearch::Run(int64_t work) {
  const int64_t end = work_ + work;
  while (status_ == Status::kRunning && work_ < end) {
    Frame& frame = frames_.back();
    if (frame.next_candidate < frame.end_candidate) {
      const Candidate candidate = candidates_[frame.next_candidate++];
      if (!Place(frame, candidate)) {
        Undo(frame);
      } else if (pending_ < 0) {
        status_ = Status::kFound;
      } else {
        Open(pending_);
      }
      continue;
    }
    Remember(frame.state);
    const int32_t creator = frame.component.creator;
    if (creator < 0) {
      status_ = Status::kInfeasible;
      break;
    }
    // Decisions about other components, made in between, have no part in this failure.
    while (static_cast<int32_t>(frames_.size()) > creator + 1) {
      if (frames_.back().chosen >= 0) Undo(frames_.back());
      frames_.pop_back();
    }
    Undo(frames_.back());
  }
  return status_;
}

void CanonicalSearch::Open(int32_t component) {
  Frame frame;
  frame.component = components_[component];
  frame.first_candidate = frame.next_candidate = candidates_.size();
  frame.pool_mark = pool_.size();
  frame.component_mark = components_.size();
  frame.trail_mark = trail_.size();
  frame.chosen = -1;
  if (!frames_.empty()) {
    // Candidates of the frame below are kept: it may be revised.
    frame.first_candidate = frame.next_candidate = frames_.back().end_candidate;
  }
  candidates_.resize(frame.first_candidate);
  FindCandidates(frame);
  frames_.push_back(frame);
}

void CanonicalSearch::FindCandidates(Frame& frame) {
  const Component& c = frame.component;
  int64_t ceiling = limit_;  // The last buffer of some section would end too high above it.
  for (int32_t s = c.begin; s < c.end; ++s) ceiling = std::min(ceiling, limit_ - left_[s]);
  frame.state = c.key;
  int64_t least_end = limit_;  // Some waiting buffer fits below it.
  for (int32_t k = c.first; k < c.first + c.count; ++k) {
    const int32_t r = pool_[k];
    const int64_t offset = offsets_[r];
    least_end = std::min(least_end, offset + sizes_[r]);
    if (offset < c.last || (offset == c.last && k - c.first < c.last_place)) {
      Toggle(frame.state, r, kSkipped, kAdd);
    } else if (offset <= ceiling && (twin_[r] < 0 || placed_[twin_[r]])) {
      candidates_.push_back({offset, r, k - c.first});
    }
  }
  work_ += c.count + (c.end - c.begin) / 2 + 16;
  frame.end_candidate = frame.first_candidate;
  if (!KnownToFail(frame.state)) {
    const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(frame.first_candidate);
    const auto end = std::remove_if(first, candidates_.end(),
                                    [&](const Candidate& x) { return x.offset >= least_end; });
    std::sort(first, end, [](const Candidate& x, const Candidate& y) {
      return x.offset != y.offset ? x.offset < y.offset : x.place < y.place;
    });
    frame.end_candidate = static_cast<size_t>(end - candidates_.begin());
  }
  candidates_.resize(frame.end_candidate);
}

// Whether the candidate can come next. What was changed is undone by Undo in either case.
bool CanonicalSearch::Place(Frame& frame, const Candidate& candidate) {
  ++nodes_;
  const int32_t r = candidate.index;
  const int64_t top = candidate.offset + sizes_[r];
  frame.chosen = r;
  placed_[r] = 1;
  CountWaiting(r, -1);
  Key key = frame.component.key;
  Toggle(key, r, candidate.offset, kRemove);
  int32_t begin = sections_.begin[r];
  int32_t end = sections_.end[r];
  const int64_t first = sections_.neighbours_first[r];
  const int64_t last = sections_.neighbours_first[r + 1];
  work_ += last - first;
  for (int64_t k = first; k < last; ++k) {
    const int32_t other = sections_.neighbours[k];
    if (placed_[other] || offsets_[other] >= top) continue;
    if (!Raise(other, top, key)) return false;
    begin = std::min(begin, sections_.begin[other]);
    end = std::max(end, sections_.end[other]);
  }
  work_ += end - begin;
  if (!Supported(begin, end)) return false;
  Split(frame, candidate, key);
  return true;
}

// Whether the buffer can lie at `offset` bytes or above.
bool CanonicalSearch::Raise(int32_t index, int64_t offset, Key& key) {
  if (fixed_[index]) return false;
  offset = Aligned(index, offset);
  if (!fixed_neighbours_.empty()) offset = AboveFixed(index, offset);
  if (offset > limit_ - sizes_[index]) return false;
  trail_.push_back({index, offsets_[index]});
  Toggle(key, index, offsets_[index], kRemove);
  Toggle(key, index, offset, kAdd);
  offsets_[index] = offset;
  return true;
}

// The lowest offset, not below `offset`, at which the buffer meets none of fixed offset.
int64_t CanonicalSearch::AboveFixed(int32_t index, int64_t offset) const {
  for (const int32_t other : fixed_neighbours_[index]) {
    if (offset + sizes_[index] <= offsets_[other]) break;
    offset = std::max(offset, Aligned(index, offsets_[other] + sizes_[other]));
  }
  return offset;
}

// Whether what waits in each of these sections can still lie below the limit.
bool CanonicalSearch::Supported(int32_t begin, int32_t end) {
  for (int32_t s = begin; s < end; ++s) {
    if (left_[s] == 0) continue;
    const int64_t highest = limit_ - left_[s];
    const auto low_enough = [&](int32_t r) { return !placed_[r] && offsets_[r] <= highest; };
    if (low_enough(witness_[s])) continue;
    const auto first = sections_.live.begin() + sections_.live_first[s];
    const auto last = sections_.live.begin() + sections_.live_first[s + 1];
    const auto found = std::find_if(first, last, low_enough);
    work_ += found - first;
    if (found == last) return false;
    witness_[s] = *found;
  }
  return true;
}

// Makes the rest of the frame's component what is searched next.
void CanonicalSearch::Split(Frame& frame, const Candidate& candidate, Key key) {
  const Component& c = frame.component;
  const int32_t r = candidate.index;
  const auto creator = static_cast<int32_t>(frames_.size()) - 1;
  pending_ = c.next;
  if (c.count == 1) return;
  const auto add = [&](Component part, int32_t place) {
    part.last = candidate.offset;
    part.last_place = place;
    part.creator = creator;
    part.next = pending_;
    pending_ = static_cast<int32_t>(components_.size());
    components_.push_back(part);
  };
  // Sections that no waiting buffer's lifetime includes separate components.
  const std::vector<int64_t>& spanning = spanning_.empty() ? left_ : spanning_;
  bool whole = true;
  for (int32_t s = sections_.begin[r]; whole && s < sections_.end[r]; ++s) {
    whole = spanning[s] > 0 && (s == sections_.begin[r] || crossing_[s] > 0);
  }
  const auto first = static_cast<int32_t>(pool_.size());
  if (whole) {
    pool_.resize(pool_.size() + c.count - 1);
    int32_t* out = pool_.data() + first;
    for (int32_t k = c.first; k < c.first + c.count; ++k) {
      if (pool_[k] != r) *out++ = pool_[k];
    }
    add({first, c.count - 1, c.begin, c.end, 0, 0, 0, 0, key}, candidate.place);
    return;
  }
  std::vector<Component> parts;
  for (int32_t s = c.begin; s < c.end; ++s) {
    if (spanning[s] == 0) continue;
    if (parts.empty() || parts.back().end < s || crossing_[s] == 0) {
      parts.push_back({0, 0, s, s, 0, 0, 0, 0, {}});
    }
    parts.back().end = s + 1;
  }
  for (Component& part : parts) {
    part.first = static_cast<int32_t>(pool_.size());
    for (int32_t k = c.first; k < c.first + c.count; ++k) {
      const int32_t other = pool_[k];
      if (other == r || sections_.begin[other] < part.begin || sections_.end[other] > part.end) {
        continue;
      }
      pool_.push_back(other);
      Toggle(part.key, other, offsets_[other], kAdd);
    }
    part.count = static_cast<int32_t>(pool_.size()) - part.first;
    SortByPreference(part.first, part.count);
    work_ += c.count;
  }
  // The smallest first: it soonest shows that there is no plan.
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Component& x, const Component& y) { return x.count > y.count; });
  for (const Component& part : parts) add(part, 0);
}

// Adds the buffer to what waits (sign 1), or takes it out (sign -1).
void CanonicalSearch::CountWaiting(int32_t index, int32_t sign) {
  const int32_t begin = sections_.begin[index];
  const int32_t end = sections_.end[index];
  const int64_t bytes = sign * sizes_[index];
  if (spanning_.empty()) {
    for (int32_t s = begin; s < end; ++s) left_[s] += bytes;
  } else {
    sections_.ForEachOf(index, [&](int32_t s) { left_[s] += bytes; });
    for (int32_t s = begin; s < end; ++s) spanning_[s] += sign;
  }
  for (int32_t s = begin + 1; s < end; ++s) crossing_[s] += sign;
}

// The lowest multiple of the buffer's alignment that is not below `offset`, a multiple of the
// problem's.
int64_t CanonicalSearch::Aligned(int32_t index, int64_t offset) const {
  return alignments_.empty() ? offset : RoundUp(offset, alignments_[index]);
}

void CanonicalSearch::Undo(Frame& frame) {
  while (trail_.size() > frame.trail_mark) {
    offsets_[trail_.back().index] = trail_.back().offset;
    trail_.pop_back();
  }
  const int32_t r = frame.chosen;
  CountWaiting(r, 1);
  placed_[r] = 0;
  frame.chosen = -1;
  pool_.resize(frame.pool_mark);
  components_.resize(frame.component_mark);
}

bool CanonicalSearch::KnownToFail(const Key& key) const {
  return failed_[key.a & (failed_.size() - 1)] == key;
}

void CanonicalSearch::Remember(const Key& key) {
  if (++failed_count_ > failed_.size() && failed_.size() < kLargestTable) {
    std::vector<Key> larger(failed_.size() * 4);
    for (const Key& old : failed_) larger[old.a & (larger.size() - 1)] = old;
    failed_ = std::move(larger);
  }
  failed_[key.a & (failed_.size() - 1)] = key;
}

}  // namespace memc
