// SPDX-License-Identifier: Apache-2.0
// What the bytes of a space hold.
#ifndef MEMC_VERIFY_BYTE_MAP_H_
#define MEMC_VERIFY_BYTE_MAP_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace memc {

// `length` bytes of a value from `offset` on.
struct BytePiece {
  int64_t origin;
  int64_t offset;
  int64_t length;
};

class ByteMap {
 public:
  // Bytes [begin, end), at least one, are those of a value, of which byte 0 would lie at `zero`.
  void Fill(int64_t begin, int64_t end, int64_t origin, int64_t zero) {
    auto next = segments_.lower_bound(begin);
    if (next != segments_.end() && next->first == begin && next->second.end == end) {
      next->second = {end, origin, zero};  // Exactly what another one held, as most often.
      return;
    }
    if (next != segments_.begin()) {
      const auto low = std::prev(next);
      const Segment cut = low->second;
      if (cut.end > begin) {
        low->second.end = begin;
        if (cut.end > end) segments_.emplace(end, cut);
      }
    }
    while (next != segments_.end() && next->first < end) {
      const Segment over = next->second;
      next = segments_.erase(next);
      if (over.end > end) next = segments_.emplace_hint(next, end, over);
    }
    segments_.emplace_hint(next, begin, Segment{end, origin, zero});
  }

  // Whether these pieces lie one after another from `at` on.
  bool Holds(int64_t at, const std::vector<BytePiece>& pieces) const {
    for (const BytePiece& piece : pieces) {
      const int64_t end = at + piece.length, zero = at - piece.offset;
      while (at < end) {
        auto after = segments_.upper_bound(at);
        if (after == segments_.begin()) return false;
        const Segment& held = std::prev(after)->second;
        if (held.end <= at || held.origin != piece.origin || held.zero != zero) return false;
        at = std::min(end, held.end);
      }
    }
    return true;
  }

  // Whether bytes [begin, end) hold anything.
  bool IsUsed(int64_t begin, int64_t end) const {
    if (begin >= end) return false;
    const auto after = segments_.lower_bound(end);
    return after != segments_.begin() && std::prev(after)->second.end > begin;
  }

 private:
  struct Segment {
    int64_t end;
    int64_t origin;
    int64_t zero;  // Where byte 0 of the origin would lie.
  };

  std::map<int64_t, Segment> segments_;  // By where they begin; apart from one another.
};

}  // namespace memc

#endif  // MEMC_VERIFY_BYTE_MAP_H_
