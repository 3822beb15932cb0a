// SPDX-License-Identifier: Apache-2.0
// The sort of one line. Few wanted elements are kept apart. Many are selected and sorted by the
// digits of their keys, those of the lower half first. What moves from array to array are 32-bit
// positions, two arrays of which fill the bytes of i64 results, and halves of keys, two of which
// fill the bytes of the elements that they are made of.
#ifndef MEMC_SORT_LINE_H_
#define MEMC_SORT_LINE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "kernels/sort_keys.h"
#include "kernels/sorts.h"

namespace memc::sorting {

// The least `count` entries of the positions in `range` in found[0 ... count), in any order, or all
// if they are fewer; says how many. There is room for twice as many, of which the greater half is
// left out whenever it is full: that takes a few steps for each, in whatever order they come.
template <typename K, bool kFloat>
int64_t Least(const Keys<K, kFloat>& keys, Range range, int64_t count, Entry<K>* found) {
  int64_t size = 0;
  int64_t at = range.low;
  for (; at < range.high && size < count; ++at)
    found[size++] = {keys[at], static_cast<uint32_t>(at)};
  if (at == range.high) return size;
  K greatest = std::max_element(found, found + count)->key;
  for (; at < range.high; ++at) {
    const K key = keys[at];
    if (key >= greatest) continue;  // Of equal keys the earlier is the lesser.
    found[size++] = {key, static_cast<uint32_t>(at)};
    if (size < 2 * count) continue;
    std::nth_element(found, found + count - 1, found + size);
    greatest = found[count - 1].key;
    size = count;
  }
  std::nth_element(found, found + count - 1, found + size);
  return count;
}

// The least `count` entries of a line in order, of which there are at most kFewElements.
template <typename K, bool kFloat>
void SortFew(const Keys<K, kFloat>& keys, int64_t extent, int64_t count, int64_t parts,
             Entry<K>* found) {
  std::array<Entry<K>, kFewElements * kParts> all;
  std::array<int64_t, kParts> sizes;
  ForParts(parts, [&](int64_t part) {
    std::array<Entry<K>, 2 * kFewElements> least;
    sizes[part] = Least(keys, PartOf(extent, part, parts), count, least.data());
    std::copy_n(least.data(), sizes[part], all.data() + part * count);
  });
  int64_t size = sizes[0];
  for (int64_t part = 1; part < parts; ++part) {
    std::copy_n(all.data() + part * count, sizes[part], all.data() + size);
    size += sizes[part];
  }
  if (size > count) std::nth_element(all.data(), all.data() + count - 1, all.data() + size);
  std::sort(all.data(), all.data() + count);
  std::copy_n(all.data(), count, found);
}

// What the first `count` elements of a line have in common: key >> shift is below `limit`, or is
// `limit` and they are among the first `ties` of those.
template <typename K>
struct Cut {
  int shift;
  K limit;
  int64_t ties;
};

template <typename K, bool kFloat>
Cut<K> FindCut(const Keys<K, kFloat>& keys, int64_t extent, int64_t count, int64_t parts,
               typename Digits<K>::Counts* counts) {
  using D = Digits<K>;
  Cut<K> cut{0, 0, count};
  for (int pass = D::kPasses - 1; pass >= 0; --pass) {
    const bool all = pass == D::kPasses - 1;
    ForParts(parts, [&](int64_t part) {
      typename D::Counts& own = counts[part];
      own.fill(0);
      const Range range = PartOf(extent, part, parts);
      for (int64_t i = range.low; i < range.high; ++i) {
        const K key = keys[i];
        if (all || (key >> cut.shift) == cut.limit) ++own[D::Of(key, pass)];
      }
    });
    int64_t digit = 0;
    int64_t size = 0;
    while (true) {
      size = 0;
      for (int64_t part = 0; part < parts; ++part) size += counts[part][digit];
      if (size >= cut.ties) break;
      cut.ties -= size;
      ++digit;
    }
    cut.limit =
        static_cast<K>(all ? digit : (static_cast<uint64_t>(cut.limit) << D::kBits) | digit);
    cut.shift = pass * D::kBits;
    if (size == cut.ties) break;
  }
  return cut;
}

// The positions of a line's first `count` elements, in their order on the line.
template <typename K, bool kFloat>
void Select(const Keys<K, kFloat>& keys, int64_t extent, int64_t count, int64_t parts,
            typename Digits<K>::Counts* counts, const Array<uint32_t>& found) {
  const Cut<K> cut = FindCut(keys, extent, count, parts, counts);
  std::array<int64_t, kParts> below{};
  std::array<int64_t, kParts> equal{};
  if (parts > 1) {
    ForParts(parts, [&](int64_t part) {
      const Range range = PartOf(extent, part, parts);
      int64_t less = 0;
      int64_t same = 0;
      for (int64_t i = range.low; i < range.high; ++i) {
        const K high = static_cast<K>(keys[i] >> cut.shift);
        less += static_cast<int64_t>(high < cut.limit);
        same += static_cast<int64_t>(high == cut.limit);
      }
      below[part] = less;
      equal[part] = same;
    });
  }
  std::array<int64_t, kParts> starts;
  std::array<int64_t, kParts> ties;  // That are left for each part.
  int64_t start = 0;
  int64_t left = cut.ties;
  for (int64_t part = 0; part < parts; ++part) {
    starts[part] = start;
    ties[part] = left;
    const int64_t taken = std::min(equal[part], left);
    start += below[part] + taken;
    left -= taken;
  }
  ForParts(parts, [&](int64_t part) {
    const Range range = PartOf(extent, part, parts);
    int64_t to = starts[part];
    int64_t rest = ties[part];
    for (int64_t i = range.low; i < range.high; ++i) {
      const K high = static_cast<K>(keys[i] >> cut.shift);
      if (high > cut.limit || (high == cut.limit && rest == 0)) continue;
      rest -= static_cast<int64_t>(high == cut.limit);
      found.Set(to++, static_cast<uint32_t>(i));
    }
  });
}

// Where the positions and the halves of keys of one line are sorted: from one array into the other.
// Keys of one byte have no halves.
template <typename K>
struct Scratch {
  using Half = std::conditional_t<sizeof(K) == 8, uint32_t,
                                  std::conditional_t<sizeof(K) == 4, uint16_t, uint8_t>>;
  static constexpr int kHalves = sizeof(K) == 1 ? 1 : 2;

  std::array<Array<uint32_t>, 2> at;
  std::array<Array<Half>, 2> key;

  // In 8 bytes for each element, and in as many as it has itself.
  Scratch(void* positions, void* keys, int64_t count)
      : at{Array<uint32_t>{static_cast<char*>(positions)},
           Array<uint32_t>{static_cast<char*>(positions) + 4 * count}},
        key{Array<Half>{static_cast<char*>(keys)},
            Array<Half>{static_cast<char*>(keys) +
                        (kHalves - 1) * count * static_cast<int64_t>(sizeof(Half))}} {}
};

// Sorts `count` positions, which are in array `from`, by one digit of their keys, of which the
// other array gets the rest where there is any. Says in which array they are now.
template <typename K, bool kHasMore>
int SortByDigit(const Scratch<K>& s, int64_t count, int64_t parts, int pass, int from,
                typename Digits<typename Scratch<K>::Half>::Counts* counts) {
  using D = Digits<typename Scratch<K>::Half>;
  const Array<uint32_t> at = s.at[from];
  const Array<typename Scratch<K>::Half> key = s.key[from];
  ForParts(parts, [&](int64_t part) {
    typename D::Counts& own = counts[part];
    own.fill(0);
    const Range range = PartOf(count, part, parts);
    for (int64_t i = range.low; i < range.high; ++i) ++own[D::Of(key.Get(i), pass)];
  });
  // Counts become the places where each part's elements of each digit begin.
  int64_t start = 0;
  for (int64_t digit = 0; digit < D::kSize; ++digit) {
    const int64_t before = start;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t size = counts[part][digit];
      counts[part][digit] = static_cast<uint32_t>(start);
      start += size;
    }
    if (start - before == count) return from;  // All have the same digit.
  }
  const Array<uint32_t> to = s.at[1 - from];
  const Array<typename Scratch<K>::Half> rest = s.key[1 - from];
  ForParts(parts, [&](int64_t part) {
    typename D::Counts& own = counts[part];
    const Range range = PartOf(count, part, parts);
    for (int64_t i = range.low; i < range.high; ++i) {
      const auto digits = key.Get(i);
      const int64_t place = own[D::Of(digits, pass)]++;
      to.Set(place, at.Get(i));
      if constexpr (kHasMore) rest.Set(place, digits);
    }
  });
  return 1 - from;
}

// Sorts the positions in array 0, which are ascending, by their keys, from the last digit on. Says
// in which array they are then.
template <typename K, bool kFloat>
int SortSelected(const Keys<K, kFloat>& keys, int64_t count, int64_t parts, const Scratch<K>& s,
                 typename Digits<typename Scratch<K>::Half>::Counts* counts) {
  using Half = typename Scratch<K>::Half;
  constexpr int kPasses = Digits<Half>::kPasses;
  int from = 0;
  for (int half = 0; half < Scratch<K>::kHalves; ++half) {
    const Array<uint32_t> at = s.at[from];
    const Array<Half> key = s.key[from];
    ForParts(parts, [&](int64_t part) {
      const Range range = PartOf(count, part, parts);
      for (int64_t i = range.low; i < range.high; ++i) {
        key.Set(i,
                static_cast<Half>(keys[at.Get(i)] >> (half * 8 * static_cast<int>(sizeof(Half)))));
      }
    });
    for (int pass = 0; pass + 1 < kPasses; ++pass) {
      from = SortByDigit<K, true>(s, count, parts, pass, from, counts);
    }
    from = SortByDigit<K, false>(s, count, parts, kPasses - 1, from, counts);
  }
  return from;
}

// The positions of a line's first `count` elements in sorted order. Says in which array.
template <typename K, bool kFloat, int64_t kMost>
int SortMany(const Keys<K, kFloat>& keys, int64_t extent, int64_t count, int64_t parts,
             const Scratch<K>& s) {
  if (count < extent) {
    std::array<typename Digits<K>::Counts, kMost> counts;
    Select(keys, extent, count, parts, counts.data(), s.at[0]);
  } else {
    ForParts(parts, [&](int64_t part) {
      const Range range = PartOf(count, part, parts);
      for (int64_t i = range.low; i < range.high; ++i) s.at[0].Set(i, static_cast<uint32_t>(i));
    });
  }
  std::array<typename Digits<typename Scratch<K>::Half>::Counts, kMost> counts;
  return SortSelected(keys, count, parts, s, counts.data());
}

template <typename K, bool kFloat>
int SortMany(const Keys<K, kFloat>& keys, int64_t extent, int64_t count, int64_t parts,
             const Scratch<K>& s) {
  return parts == 1 ? SortMany<K, kFloat, 1>(keys, extent, count, parts, s)
                    : SortMany<K, kFloat, kParts>(keys, extent, count, parts, s);
}

}  // namespace memc::sorting

#endif  // MEMC_SORT_LINE_H_
