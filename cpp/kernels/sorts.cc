// SPDX-License-Identifier: Apache-2.0
// Elements become unsigned keys in the wanted order. Few wanted elements are kept apart. Many
// are selected and sorted by the digits of their keys, those of the lower half first. What moves
// from array to array are 32-bit positions, two arrays of which fill the bytes of i64 results, and
// halves of keys, two of which fill the bytes of the elements that they are made of.
#include "kernels/sorts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/parallel.h"

namespace memc {

namespace {

constexpr int64_t kParts = 8;                 // The most parts of a line, each for one thread.
constexpr int64_t kSerialElements = 1 << 13;  // Below, waking the other threads is not worth it.
constexpr int64_t kParallelLine = 1 << 15;    // From here on a line may be shared out.

// The keys of one line's elements, in an order in which the first wanted has the least.
template <typename K, bool kFloat>
struct Keys {
  const K* x;
  int64_t step;
  K infinity;
  K flip;  // What is turned over in all keys.

  static constexpr K kSign = static_cast<K>(K{1} << (8 * sizeof(K) - 1));

  K operator[](int64_t i) const {
    const K raw = x[i * step];
    if constexpr (kFloat) {
      const K magnitude = static_cast<K>(raw & ~kSign);
      K key = static_cast<K>((raw & kSign) != 0 ? ~raw : raw | kSign);
      if (magnitude == 0) key = kSign;
      if (magnitude > infinity) key = std::numeric_limits<K>::max();
      return static_cast<K>(key ^ flip);
    }
    return static_cast<K>(raw ^ flip);
  }
};

// A key and where it is. No two are equal.
template <typename K>
struct Entry {
  K key;
  uint32_t at;

  bool operator<(const Entry& other) const {
    if constexpr (sizeof(K) <= 4) return Both() < other.Both();
    return key != other.key ? key < other.key : at < other.at;
  }

 private:
  uint64_t Both() const { return static_cast<uint64_t>(key) << 32 | at; }
};

// Numbers in bytes that had, or will have, elements of another type.
template <typename T>
struct Array {
  char* data;

  T Get(int64_t i) const {
    T value;
    std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  void Set(int64_t i, T value) const {
    std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
};

// Calls body(part) for each of the parts, on the threads if there are several.
template <typename Body>
void ForParts(int64_t parts, const Body& body) {
  if (parts == 1) return body(0);
  ParallelFor(false, [&](int64_t task, int64_t tasks) {
    for (int64_t part = task; part < parts; part += tasks) body(part);
  });
}

struct Range {
  int64_t low, high;
};

Range PartOf(int64_t count, int64_t part, int64_t parts) {
  return {part * count / parts, (part + 1) * count / parts};
}

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

// Digits of keys, of as many bits as make few passes whose counters are in the first cache.
template <typename K>
struct Digits {
  static constexpr int kBits = sizeof(K) <= 2 ? 8 : 11;
  static constexpr int kPasses = (8 * static_cast<int>(sizeof(K)) + kBits - 1) / kBits;
  static constexpr int64_t kSize = int64_t{1} << kBits;
  using Counts = std::array<uint32_t, kSize>;

  static int64_t Of(K key, int pass) {
    return static_cast<int64_t>(key >> (pass * kBits)) & (kSize - 1);
  }
};

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

// Writes a line of i64 from `count` 32-bit numbers, which may lie in its own first or second half.
// None is written over before it was read.
void Widen(const Array<uint32_t>& from, int64_t count, int64_t* line, int64_t step) {
  const Array<int64_t> to{reinterpret_cast<char*>(line)};
  if (from.data == to.data) {
    for (int64_t i = count - 1; i >= 0; --i) to.Set(i * step, from.Get(i));
  } else {
    for (int64_t i = 0; i < count; ++i) to.Set(i * step, from.Get(i));
  }
}

// The elements of a line next to each other. What reads them more than once
// has a copy made: each is on another line of the cache.
template <typename K, bool kFloat>
Keys<K, kFloat> Copied(const Keys<K, kFloat>& keys, int64_t extent, void* room) {
  K* const to = static_cast<K*>(room);
  for (int64_t i = 0; i < extent; ++i) to[i] = keys.x[i * keys.step];
  return {to, 1, keys.infinity, keys.flip};
}

// Bytes that a sort of one line needs beyond the results' of a dense one.
int64_t RoomOf(int64_t bytes) { return (bytes + kRoom - 1) / kRoom * kRoom; }

// Calls line(keys, n, parts, room) for each line n of the tensor: many lines at a time, as far as
// the workspace has `need` bytes of room for each, or, where there are fewer than threads, one
// after another in parts.
template <typename K, bool kFloat, typename Line>
void ForLines(const Lines& s, const SortedElements& x, const Workspace& workspace, int64_t need,
              const Line& line) {
  using Of = Keys<K, kFloat>;
  const bool is_signed = x.number == Number::kSigned;
  K infinity = 0;
  if constexpr (kFloat) {
    constexpr int kFraction = sizeof(K) == 8 ? 52 : sizeof(K) == 4 ? 23 : 10;
    const int fraction = x.number == Number::kBrainFloat ? 7 : kFraction;
    infinity = static_cast<K>((Of::kSign - 1) >> fraction << fraction);
  }
  const K turned = x.descending ? std::numeric_limits<K>::max() : K{0};
  const K flip = static_cast<K>(turned ^ (is_signed ? Of::kSign : K{0}));
  const auto at = [&](int64_t n) {
    const int64_t first = n / s.trail * s.extent * s.trail + n % s.trail;
    return Of{static_cast<const K*>(x.data) + first, s.trail, infinity, flip};
  };
  const int64_t count = s.lead * s.trail;
  const int64_t rooms = need == 0 ? count : std::min(count, workspace.bytes / need);
  if (rooms < Threads() && s.extent >= kParallelLine) {
    const int64_t parts = std::min<int64_t>(Threads(), kParts);
    for (int64_t n = 0; n < count; ++n) line(at(n), n, parts, workspace.data);
    return;
  }
  const bool serial = rooms == 1 || count * s.extent < kSerialElements;
  ParallelFor(serial, [&](int64_t task, int64_t tasks) {
    const int64_t at_once = std::min(tasks, rooms);
    if (task >= at_once) return;
    const Range range = PartOf(count, task, at_once);
    char* const room = workspace.data + task * need;
    for (int64_t n = range.low; n < range.high; ++n) line(at(n), n, int64_t{1}, room);
  });
}

template <typename K, bool kFloat>
void TopKOf(const Lines& s, int64_t count, const SortedElements& x, void* values,
            int64_t* positions, const Workspace& workspace) {
  const int64_t need = TopKRoom(s, count, x.bytes);
  ForLines<K, kFloat>(
      s, x, workspace, need, [&](const auto& keys, int64_t n, int64_t parts, char* room) {
        const int64_t first = n / s.trail * count * s.trail + n % s.trail;
        K* const value = static_cast<K*>(values) + first;
        int64_t* const position = positions + first;
        if (count <= kFewElements) {
          std::array<Entry<K>, kFewElements> found;
          SortFew(keys, s.extent, count, parts, found.data());
          for (int64_t i = 0; i < count; ++i) {
            position[i * s.trail] = found[i].at;
            value[i * s.trail] = keys.x[found[i].at * s.trail];
          }
          return;
        }
        const bool dense = s.trail == 1;
        const Scratch<K> scratch =
            dense ? Scratch<K>(position, value, count) : Scratch<K>(room, room + 8 * count, count);
        const auto line = dense ? keys : Copied(keys, s.extent, room + (8 + x.bytes) * count);
        Widen(scratch.at[SortMany(line, s.extent, count, parts, scratch)], count, position,
              s.trail);
        const Array<int64_t> whole{reinterpret_cast<char*>(position)};
        const Array<K> to{reinterpret_cast<char*>(value)};
        ForParts(parts, [&](int64_t part) {
          const Range range = PartOf(count, part, parts);
          for (int64_t i = range.low; i < range.high; ++i) {
            to.Set(i * s.trail, line.x[whole.Get(i * s.trail) * line.step]);
          }
        });
      });
}

template <typename K, bool kFloat>
void RanksOf(const Lines& s, const SortedElements& x, int64_t* ranks, const Workspace& workspace) {
  const int64_t need = RanksRoom(s, x.bytes);
  ForLines<K, kFloat>(
      s, x, workspace, need, [&](const auto& keys, int64_t n, int64_t parts, char* room) {
        int64_t* const rank = ranks + n / s.trail * s.extent * s.trail + n % s.trail;
        if (s.extent <= kFewElements) {
          std::array<Entry<K>, kFewElements> found;
          SortFew(keys, s.extent, s.extent, parts, found.data());
          for (int64_t i = 0; i < s.extent; ++i) rank[found[i].at * s.trail] = i;
          return;
        }
        const bool dense = s.trail == 1;
        char* const rest = dense ? room : room + 8 * s.extent;
        const Scratch<K> scratch(dense ? static_cast<void*>(rank) : room, rest, s.extent);
        const auto line = dense ? keys : Copied(keys, s.extent, rest + x.bytes * s.extent);
        const int sorted = SortMany(line, s.extent, s.extent, parts, scratch);
        const Array<uint32_t> at = scratch.at[sorted];
        const Array<uint32_t> inverse = scratch.at[1 - sorted];
        ForParts(parts, [&](int64_t part) {
          const Range range = PartOf(s.extent, part, parts);
          for (int64_t i = range.low; i < range.high; ++i) {
            inverse.Set(at.Get(i), static_cast<uint32_t>(i));
          }
        });
        Widen(inverse, s.extent, rank, s.trail);
      });
}

// Calls run(type) with a value of the unsigned type of the elements' size, and whether they are
// floats.
template <typename Run>
void WithKeys(const SortedElements& x, const Run& run) {
  const bool is_float = x.number == Number::kFloat || x.number == Number::kBrainFloat;
  using False = std::false_type;
  using True = std::true_type;
  if (x.bytes == 1) run(uint8_t{}, False{});
  if (x.bytes == 2) is_float ? run(uint16_t{}, True{}) : run(uint16_t{}, False{});
  if (x.bytes == 4) is_float ? run(uint32_t{}, True{}) : run(uint32_t{}, False{});
  if (x.bytes == 8) is_float ? run(uint64_t{}, True{}) : run(uint64_t{}, False{});
}

}  // namespace

int64_t TopKRoom(const Lines& lines, int64_t count, int64_t bytes) {
  if (lines.trail == 1 || count <= kFewElements) return 0;
  return RoomOf((8 + bytes) * count + bytes * lines.extent);
}

int64_t RanksRoom(const Lines& lines, int64_t bytes) {
  if (lines.extent <= kFewElements) return 0;
  return RoomOf((lines.trail == 1 ? bytes : 8 + 2 * bytes) * lines.extent);
}

void TopK(const Lines& lines, int64_t count, const SortedElements& x, void* values,
          int64_t* positions, const Workspace& workspace) {
  WithKeys(x, [&](auto key, auto is_float) {
    TopKOf<decltype(key), decltype(is_float)::value>(lines, count, x, values, positions, workspace);
  });
}

void SortRanks(const Lines& lines, const SortedElements& x, int64_t* ranks,
               const Workspace& workspace) {
  WithKeys(x, [&](auto key, auto is_float) {
    RanksOf<decltype(key), decltype(is_float)::value>(lines, x, ranks, workspace);
  });
}

void RankPositions(const Lines& s, int64_t count, const int64_t* ranks, int64_t* positions) {
  const int64_t rows = s.lead * s.extent;
  ParallelFor(rows * s.trail < kSerialElements, [&](int64_t task, int64_t tasks) {
    const Range range = PartOf(rows, task, tasks);
    for (int64_t row = range.low; row < range.high; ++row) {
      int64_t* const found = positions + row / s.extent * count * s.trail;
      for (int64_t i = 0; i < s.trail; ++i) {
        const int64_t rank = ranks[row * s.trail + i];
        if (rank >= 0 && rank < count) found[rank * s.trail + i] = row % s.extent;
      }
    }
  });
}

}  // namespace memc
