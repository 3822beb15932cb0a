// SPDX-License-Identifier: Apache-2.0
#include "kernels/sorts.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/parallel.h"
#include "kernels/sort_keys.h"
#include "kernels/sort_line.h"

namespace memc {

namespace {

using namespace sorting;

constexpr int64_t kSerialElements = 1 << 13;  // Below, waking the other threads is not worth it.
constexpr int64_t kParallelLine = 1 << 15;    // From here on a line may be shared out.

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
