// SPDX-License-Identifier: Apache-2.0
#include "kernels/running_sum.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "kernels/parallel.h"

namespace memc {

namespace {

constexpr int64_t kSerialElements = 1 << 14;  // Below, waking the other threads is not worth it.
constexpr int64_t kLeastBlock = 4096;
constexpr size_t kMostBlocks = 256;
constexpr int64_t kColumns = 64;    // Lines beside each other that a thread walks along together.
constexpr int64_t kFewColumns = 8;  // The same where threads share the blocks of each.

template <typename T>
using SumOf = std::conditional_t<std::is_floating_point_v<T>, double, T>;

// Integers narrower than int would be added as int.
template <typename A, typename T>
A Plus(A a, T b) {
  return static_cast<A>(a + static_cast<A>(b));
}

template <typename T>
struct Scan {
  Lines lines;
  bool exclusive, reverse;
  const T* x;
  T* y;

  // Blocks have at least so many elements, and there are few: of their sums there is an array.
  int64_t BlockSize() const {
    const auto most = static_cast<int64_t>(kMostBlocks);
    return std::max(kLeastBlock, (lines.extent + most - 1) / most);
  }

  // Where element `at` of the lines that begin at `first` lies, in the direction of the sum.
  int64_t PlaceOf(int64_t first, int64_t at) const {
    return first + (reverse ? lines.extent - 1 - at : at) * lines.trail;
  }

  // Adds the elements [low, high) of `columns` lines beside each other to `own`.
  void Add(int64_t first, int64_t columns, int64_t low, int64_t high, SumOf<T>* own) const {
    for (int64_t at = low; at < high; ++at) {
      const T* row = x + PlaceOf(first, at);
      for (int64_t k = 0; k < columns; ++k) own[k] = Plus(own[k], row[k]);
    }
  }

  // Writes the sums from `before` on, which becomes the last one.
  void Write(int64_t first, int64_t columns, int64_t low, int64_t high, SumOf<T>* before) const {
    for (int64_t at = low; at < high; ++at) {
      const int64_t place = PlaceOf(first, at);
      const T* row = x + place;
      T* to = y + place;
      for (int64_t k = 0; k < columns; ++k) {
        const SumOf<T> next = Plus(before[k], row[k]);
        to[k] = static_cast<T>(exclusive ? before[k] : next);
        before[k] = next;
      }
    }
  }

  // One line whose elements lie beside each other, as above: the block's sum is made beside.
  SumOf<T> WriteLine(int64_t first, int64_t low, int64_t high, SumOf<T> before) const {
    const int64_t step = reverse ? -1 : 1;
    const T* from = x + PlaceOf(first, low);
    T* to = y + PlaceOf(first, low);
    SumOf<T> own{};
    for (int64_t i = 0; i < high - low; ++i) {
      const T element = from[i * step];
      own = Plus(own, element);
      const SumOf<T> next = Plus(before, element);
      to[i * step] = static_cast<T>(exclusive ? before : next);
      before = next;
    }
    return own;
  }

  // Whole lines beside each other, block by block.
  void Whole(int64_t first, int64_t columns) const {
    std::array<SumOf<T>, kColumns> before{};
    std::array<SumOf<T>, kColumns> running{};
    for (int64_t low = 0; low < lines.extent; low += BlockSize()) {
      const int64_t high = std::min(lines.extent, low + BlockSize());
      if (lines.trail == 1) {
        before[0] = Plus(before[0], WriteLine(first, low, high, before[0]));
        continue;
      }
      running = before;
      std::array<SumOf<T>, kColumns> own{};
      if (high < lines.extent) Add(first, columns, low, high, own.data());
      Write(first, columns, low, high, running.data());
      for (size_t k = 0; k < own.size(); ++k) before[k] = Plus(before[k], own[k]);
    }
  }

  // A few lines, whose blocks the threads share.
  void Shared(int64_t first, int64_t columns) const {
    const int64_t size = BlockSize();
    const int64_t blocks = (lines.extent + size - 1) / size;
    std::array<std::array<SumOf<T>, kFewColumns>, kMostBlocks> sums{};
    ParallelFor(false, [&](int64_t task, int64_t tasks) {
      for (int64_t b = task; b + 1 < blocks; b += tasks) {
        Add(first, columns, b * size, (b + 1) * size, sums[static_cast<size_t>(b)].data());
      }
    });
    std::array<SumOf<T>, kFewColumns> before{};
    for (auto& block : sums) {
      for (size_t k = 0; k < before.size(); ++k) {
        const SumOf<T> own = block[k];
        block[k] = before[k];
        before[k] = Plus(before[k], own);
      }
    }
    ParallelFor(false, [&](int64_t task, int64_t tasks) {
      for (int64_t b = task; b < blocks; b += tasks) {
        const int64_t high = std::min(lines.extent, (b + 1) * size);
        auto* from = sums[static_cast<size_t>(b)].data();
        if (lines.trail == 1) {
          WriteLine(first, b * size, high, *from);
        } else {
          Write(first, columns, b * size, high, from);
        }
      }
    });
  }

  // Calls fn with each group of up to `most` lines beside each other, of those numbered [low,
  // high).
  template <typename Fn>
  void Groups(int64_t low, int64_t high, int64_t most, const Fn& fn) const {
    while (low < high) {
      const int64_t lead = low / lines.trail;
      const int64_t columns = std::min({most, high - low, (lead + 1) * lines.trail - low});
      fn(lead * lines.extent * lines.trail + low % lines.trail, columns);
      low += columns;
    }
  }
};

}  // namespace

template <typename T>
void RunningSum(const Lines& s, bool exclusive, bool reverse, const T* x, T* y) {
  const Scan<T> scan{s, exclusive, reverse, x, y};
  const int64_t count = s.lead * s.trail;
  if (count * s.extent == 0) return;
  const bool serial = count * s.extent < kSerialElements || Threads() == 1;
  if (!serial && count < int64_t{Threads()} * kFewColumns && s.extent > kLeastBlock) {
    scan.Groups(0, count, kFewColumns, [&](int64_t first, int64_t n) { scan.Shared(first, n); });
    return;
  }
  ParallelFor(serial, [&](int64_t task, int64_t tasks) {
    scan.Groups(task * count / tasks, (task + 1) * count / tasks, kColumns,
                [&](int64_t first, int64_t n) { scan.Whole(first, n); });
  });
}

template void RunningSum(const Lines&, bool, bool, const float*, float*);
template void RunningSum(const Lines&, bool, bool, const double*, double*);
template void RunningSum(const Lines&, bool, bool, const uint8_t*, uint8_t*);
template void RunningSum(const Lines&, bool, bool, const uint16_t*, uint16_t*);
template void RunningSum(const Lines&, bool, bool, const uint32_t*, uint32_t*);
template void RunningSum(const Lines&, bool, bool, const uint64_t*, uint64_t*);

}  // namespace memc
