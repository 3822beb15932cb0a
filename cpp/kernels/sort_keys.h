// SPDX-License-Identifier: Apache-2.0
// What sorts work on: elements as unsigned keys in the wanted order, their digits, and parts of a
// line.
#ifndef MEMC_SORT_KEYS_H_
#define MEMC_SORT_KEYS_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/parallel.h"

namespace memc::sorting {

// The most parts of a line, each for one thread.
constexpr int64_t kParts = 8;

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

inline Range PartOf(int64_t count, int64_t part, int64_t parts) {
  return {part * count / parts, (part + 1) * count / parts};
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

}  // namespace memc::sorting

#endif  // MEMC_SORT_KEYS_H_
