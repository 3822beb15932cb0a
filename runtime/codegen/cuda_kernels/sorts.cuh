// SPDX-License-Identifier: Apache-2.0
// What sorts work on: elements as keys in the wanted order, keys with the places of their elements,
// of which no two are equal, and the merge of two sorted runs.
#ifndef MEMC_CUDA_KERNELS_SORTS_CUH_
#define MEMC_CUDA_KERNELS_SORTS_CUH_

#include "primitives.cuh"

namespace {

using Word = unsigned long long;

// A pass over lines: `from` has `total` entries of each, in sorted runs of `run`; `to` is given
// `total_to`, in runs of `run_to`. Lines count from `first` in x and the results, from 0 elsewhere.
struct Sort {
  const void* x;
  const void* from;   // Null: the elements themselves.
  void* to;           // Null: the results.
  void* values;       // Null: ranks are wanted, and not the first elements.
  long long* result;  // Positions or ranks.
  Word infinity;      // Its bits.
  long long first, lines;
  long long extent, count,
      trail;  // Of x along the axis, of the results, elements between neighbours.
  long long total, total_to, run, run_to;
  long long tiles;  // Blocks of a line, or, of several lines to a block, 1.
  int segment;      // Places of a line in a tile: a power of two.
  int bytes;        // Of an element.
  int number;       // 0 unsigned, 1 signed, 2 float, 3 brain float.
  int descending;
};

namespace sorts {

constexpr int kThreads = 256;
constexpr int kEach = 8;
constexpr int kTile = kThreads * kEach;

// Where element `at` of a line is.
__device__ __forceinline__ long long PlaceOf(const Sort& s, long long line, long long extent,
                                             long long at) {
  line += s.first;
  return (line / s.trail * extent + at) * s.trail + line % s.trail;
}

__device__ __forceinline__ Word Raw(const void* x, int bytes, long long place) {
  if (bytes == 4) return static_cast<const unsigned*>(x)[place];
  if (bytes == 8) return static_cast<const Word*>(x)[place];
  if (bytes == 2) return static_cast<const unsigned short*>(x)[place];
  return static_cast<const unsigned char*>(x)[place];
}

// The first wanted element has the least key. Zeros are equal, and so are nans, the greatest of
// all.
__device__ __forceinline__ Word KeyOf(const Sort& s, long long place) {
  const Word raw = Raw(s.x, s.bytes, place);
  const Word sign = Word{1} << (8 * s.bytes - 1);
  const Word all = sign | (sign - 1);
  Word key = s.number == 0 ? raw : raw ^ sign;
  if (s.number >= 2) {
    const Word magnitude = raw & ~sign;
    key = (raw & sign) != 0 ? ~raw & all : raw | sign;
    if (magnitude == 0) key = sign;
    if (magnitude > s.infinity) key = all;
  }
  return s.descending != 0 ? key ^ all : key;
}

// Keys of up to 32 bits are kept with their places.
struct Packed {
  using Item = Word;
  using Stored = Word;
  static __device__ __forceinline__ Item Make(Word key, long long at) {
    return key << 32 | static_cast<unsigned>(at);
  }
  static __device__ __forceinline__ Item Last() { return ~Word{0}; }
  static __device__ __forceinline__ long long At(Item item) {
    return static_cast<unsigned>(item & 0xffffffffU);
  }
  static __device__ __forceinline__ bool Less(Item a, Item b) { return a < b; }
  static __device__ __forceinline__ Stored Store(Item item) { return item; }
  static __device__ __forceinline__ Item Load(const Sort&, long long, Stored stored) {
    return stored;
  }
};

// Of longer ones only the places are, and the keys are read again.
struct Wide {
  struct Item {
    Word key;
    unsigned at;
  };
  using Stored = unsigned;
  static __device__ __forceinline__ Item Make(Word key, long long at) {
    return {key, static_cast<unsigned>(at)};
  }
  static __device__ __forceinline__ Item Last() { return {~Word{0}, ~0U}; }
  static __device__ __forceinline__ long long At(Item item) { return item.at; }
  static __device__ __forceinline__ bool Less(Item a, Item b) {
    return a.key < b.key || (a.key == b.key && a.at < b.at);
  }
  static __device__ __forceinline__ Stored Store(Item item) { return item.at; }
  static __device__ __forceinline__ Item Load(const Sort& s, long long line, Stored stored) {
    return {KeyOf(s, PlaceOf(s, line, s.extent, stored)), stored};
  }
};

// How many of the first `diagonal` items of two sorted runs together are of the first run.
template <typename P, typename Left, typename Right>
__device__ __forceinline__ long long Split(const Left& left, long long lefts, const Right& right,
                                           long long rights, long long diagonal) {
  long long low = diagonal > rights ? diagonal - rights : 0;
  long long high = diagonal < lefts ? diagonal : lefts;
  while (low < high) {
    const long long middle = (low + high) / 2;
    if (P::Less(right(diagonal - 1 - middle), left(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Items `diagonal` and following of two sorted runs together; beyond their end, the last of all.
template <typename P>
__device__ __forceinline__ void Merge(const typename P::Item* left, int lefts,
                                      const typename P::Item* right, int rights, int diagonal,
                                      typename P::Item* found) {
  int l = static_cast<int>(Split<P>([=](long long i) { return left[i]; }, lefts,
                                    [=](long long i) { return right[i]; }, rights, diagonal));
  int r = diagonal - l;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const bool has_left = l < lefts;
    const bool has_right = r < rights;
    if (has_left && !(has_right && P::Less(right[r], left[l]))) {
      found[i] = left[l++];
    } else if (has_right) {
      found[i] = right[r++];
    } else {
      found[i] = P::Last();
    }
  }
}

// The sorted item number `rank` of a line, as a result.
template <typename P>
__device__ __forceinline__ void Put(const Sort& s, long long line, long long rank,
                                    typename P::Item item) {
  const long long at = P::At(item);
  const long long from = PlaceOf(s, line, s.extent, at);
  if (s.values == nullptr) {
    s.result[from] = rank;
    return;
  }
  const long long to = PlaceOf(s, line, s.count, rank);
  s.result[to] = at;
  const Word raw = Raw(s.x, s.bytes, from);
  if (s.bytes == 4) {
    static_cast<unsigned*>(s.values)[to] = static_cast<unsigned>(raw);
  } else if (s.bytes == 8) {
    static_cast<Word*>(s.values)[to] = raw;
  } else if (s.bytes == 2) {
    static_cast<unsigned short*>(s.values)[to] = static_cast<unsigned short>(raw);
  } else {
    static_cast<unsigned char*>(s.values)[to] = static_cast<unsigned char>(raw);
  }
}

}  // namespace sorts

}  // namespace

#endif  // MEMC_CUDA_KERNELS_SORTS_CUH_
