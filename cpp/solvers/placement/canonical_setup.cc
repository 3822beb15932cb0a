// SPDX-License-Identifier: Apache-2.0
// What the complete search knows of a problem before its first decision.
#include <algorithm>

#include "solvers/placement/canonical_search.h"

namespace memc {

namespace {

// Whether two buffers of equal lifetimes have equal gaps.
bool SameLives(const Problem& problem, size_t a, size_t b) {
  if (!problem.HasGaps(a) && !problem.HasGaps(b)) return true;
  const std::vector<Live>& x = problem.lives[a];
  const std::vector<Live>& y = problem.lives[b];
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const Live& p, const Live& q) {
    return p.lower == q.lower && p.upper == q.upper;
  });
}

}  // namespace

CanonicalSearch::CanonicalSearch(const Problem& problem, const Preference& preference,
                                 int64_t limit)
    : limit_(limit), preference_(preference), sections_(MakeSections(problem)) {
  const std::vector<Buffer>& buffers = problem.buffers;
  const auto n = static_cast<int32_t>(buffers.size());
  placed_.assign(n, 0);
  total_.assign(n, 0);
  alignments_ = problem.alignments;
  left_.assign(sections_.count, 0);
  if (!problem.lives.empty()) spanning_.assign(sections_.count, 0);
  crossing_.assign(sections_.count + 1, 0);
  for (int32_t s = 0; s < sections_.count; ++s) {
    witness_.push_back(sections_.live[sections_.live_first[s]]);
  }
  for (const Buffer& b : buffers) {
    sizes_.push_back(b.size);
    fixed_.push_back(b.offset.has_value() ? 1 : 0);
    offsets_.push_back(b.offset.value_or(0));
    width_.push_back(static_cast<double>(b.upper) - static_cast<double>(b.lower));
  }
  for (int32_t i = 0; i < n; ++i) CountWaiting(i, 1);
  FindTwins(problem);
  FindFixedNeighbours();
  failed_.resize(kFirstTable);
  if (n == 0) {
    status_ = Status::kFound;
    return;
  }
  Component all{0, n, 0, sections_.count, 0, 0, -1, -1, {}};
  for (int32_t i = 0; i < n; ++i) {
    pool_.push_back(i);
    Toggle(all.key, i, offsets_[i], kAdd);
    if (sizes_[i] > limit_ || offsets_[i] > limit_ - sizes_[i]) status_ = Status::kInfeasible;
  }
  if (status_ == Status::kInfeasible || !Supported(0, sections_.count)) {
    status_ = Status::kInfeasible;
    return;
  }
  SortByPreference(0, n);
  components_.push_back(all);
  Open(0);
}

void CanonicalSearch::FindTwins(const Problem& problem) {
  const std::vector<Buffer>& buffers = problem.buffers;
  const auto n = static_cast<int32_t>(buffers.size());
  twin_.assign(n, -1);
  for (int32_t i = 0; i < n; ++i) {
    for (int64_t k = sections_.neighbours_first[i]; k < sections_.neighbours_first[i + 1]; ++k) {
      const int32_t other = sections_.neighbours[k];
      if (other < i && sizes_[other] == sizes_[i] && !fixed_[other] && !fixed_[i] &&
          buffers[other].lower == buffers[i].lower && buffers[other].upper == buffers[i].upper &&
          SameLives(problem, other, i) && problem.AlignmentOf(other) == problem.AlignmentOf(i)) {
        twin_[i] = std::max(twin_[i], other);
      }
    }
  }
}

void CanonicalSearch::FindFixedNeighbours() {
  if (std::find(fixed_.begin(), fixed_.end(), 1) == fixed_.end()) return;
  fixed_neighbours_.resize(fixed_.size());
  for (size_t i = 0; i < fixed_.size(); ++i) {
    std::vector<int32_t>& list = fixed_neighbours_[i];
    for (int64_t k = sections_.neighbours_first[i]; k < sections_.neighbours_first[i + 1]; ++k) {
      if (fixed_[sections_.neighbours[k]]) list.push_back(sections_.neighbours[k]);
    }
    std::sort(list.begin(), list.end(),
              [&](int32_t a, int32_t b) { return offsets_[a] < offsets_[b]; });
  }
  for (size_t i = 0; i < fixed_.size(); ++i) {
    if (!fixed_[i]) offsets_[i] = AboveFixed(static_cast<int32_t>(i), 0);
  }
}

}  // namespace memc
