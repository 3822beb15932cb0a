// SPDX-License-Identifier: Apache-2.0
#include "kernels/running_product.h"

#include <algorithm>
#include <type_traits>

#include "kernels/parallel.h"

namespace memc {

namespace {

constexpr int64_t kSerialElements = 1 << 14;  // Below, waking the other threads is not worth it.

// Integers narrower than int would overflow as int.
template <typename T>
T Times(T a, T b) {
  if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(int)) {
    return static_cast<T>(static_cast<unsigned>(a) * static_cast<unsigned>(b));
  } else {
    return a * b;
  }
}

// Of the lines [low, high) of those that begin at x and y, one row of elements after another.
template <typename T>
void Block(const Lines& s, bool exclusive, bool reverse, const T* x, T* y, int64_t low,
           int64_t high) {
  const int64_t step = reverse ? -s.trail : s.trail;
  const int64_t start = reverse ? (s.extent - 1) * s.trail : 0;
  const T* from = x + start;
  T* to = y + start;
  for (int64_t k = low; k < high; ++k) to[k] = exclusive ? T{1} : from[k];
  for (int64_t i = 1; i < s.extent; ++i) {
    const T* factor = exclusive ? from : from + step;
    const T* before = to;
    from += step;
    to += step;
    for (int64_t k = low; k < high; ++k) to[k] = Times(before[k], factor[k]);
  }
}

}  // namespace

template <typename T>
void RunningProduct(const Lines& s, bool exclusive, bool reverse, const T* x, T* y) {
  const int64_t count = s.lead * s.trail;
  if (count * s.extent == 0) return;
  ParallelFor(count * s.extent < kSerialElements, [&](int64_t task, int64_t tasks) {
    int64_t low = task * count / tasks;
    const int64_t end = (task + 1) * count / tasks;
    while (low < end) {
      const int64_t lead = low / s.trail;
      const int64_t high = std::min(end, (lead + 1) * s.trail);
      const int64_t block = lead * s.extent * s.trail;
      Block(s, exclusive, reverse, x + block, y + block, low - lead * s.trail,
            high - lead * s.trail);
      low = high;
    }
  });
}

template void RunningProduct(const Lines&, bool, bool, const float*, float*);
template void RunningProduct(const Lines&, bool, bool, const double*, double*);
template void RunningProduct(const Lines&, bool, bool, const uint8_t*, uint8_t*);
template void RunningProduct(const Lines&, bool, bool, const uint16_t*, uint16_t*);
template void RunningProduct(const Lines&, bool, bool, const uint32_t*, uint32_t*);
template void RunningProduct(const Lines&, bool, bool, const uint64_t*, uint64_t*);

}  // namespace memc
