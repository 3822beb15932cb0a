// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_INTERVAL_OWNERS_H_
#define MEMC_REPLAY_INTERVAL_OWNERS_H_

#include <cstdint>
#include <map>

namespace memc::replay {

// Who took each byte of a range last: disjoint intervals [begin, end), each with its owner.
template <typename Owner>
class IntervalOwners {
 public:
  // Calls `visit(owner)` for each interval that shares bytes with [begin, end), until one returns
  // false. Returns whether none did. An owner may come more than once.
  template <typename Visit>
  bool Each(int64_t begin, int64_t end, Visit visit) const {
    auto at = intervals_.upper_bound(begin);
    if (at != intervals_.begin() && std::prev(at)->second.end > begin) --at;
    for (; at != intervals_.end() && at->first < end; ++at) {
      if (!visit(at->second.owner)) return false;
    }
    return true;
  }

  // `owner` takes [begin, end).
  void Take(int64_t begin, int64_t end, Owner owner) {
    auto at = intervals_.upper_bound(begin);
    if (at != intervals_.begin()) {
      const auto before = std::prev(at);
      const Interval old = before->second;
      if (old.end > begin) {
        if (old.end > end) intervals_.emplace_hint(at, end, old);
        if (before->first == begin) {
          intervals_.erase(before);
        } else {
          before->second.end = begin;
        }
      }
    }
    at = intervals_.lower_bound(begin);
    while (at != intervals_.end() && at->first < end) {
      const Interval old = at->second;
      at = intervals_.erase(at);
      if (old.end > end) {
        intervals_.emplace_hint(at, end, old);
        break;
      }
    }
    intervals_.emplace(begin, Interval{end, owner});
  }

  // Where the shortest run of at least `bytes` bytes within [0, end) begins that have no owner, or
  // one for whom `free(owner)` holds; -1 without one. Runs begin at multiples of `alignment`.
  template <typename Free>
  int64_t BestFit(int64_t end, int64_t bytes, int64_t alignment, Free free) const {
    int64_t best = -1, least = 0, run = 0;
    const auto finish = [&](int64_t at) {
      if (at - run < bytes || (best >= 0 && at - run >= least)) return;
      best = run;
      least = at - run;
    };
    for (const auto& [begin, interval] : intervals_) {
      if (begin >= end) break;
      if (free(interval.owner)) continue;
      finish(begin);
      run = (interval.end + alignment - 1) / alignment * alignment;
    }
    finish(end);
    return best;
  }

  // Bytes of owners for whom `gone(owner)` holds have none any more.
  template <typename Gone>
  void Remove(Gone gone) {
    for (auto at = intervals_.begin(); at != intervals_.end();) {
      at = gone(at->second.owner) ? intervals_.erase(at) : std::next(at);
    }
  }

  void Clear() { intervals_.clear(); }
  int64_t size() const { return static_cast<int64_t>(intervals_.size()); }

 private:
  struct Interval {
    int64_t end;
    Owner owner;
  };
  std::map<int64_t, Interval> intervals_;  // By their begin.
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_INTERVAL_OWNERS_H_
