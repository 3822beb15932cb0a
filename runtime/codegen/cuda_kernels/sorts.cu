// SPDX-License-Identifier: Apache-2.0
// Sorts of lines, all elements or the first ones: tiles of lines are sorted in shared memory, then
// two sorted runs at a time are merged, each tile of the result by a block that finds its ends by
// binary search (Green, McColl and Bader 2012, GPU Merge Path). Where few elements are wanted, the
// first ones of sorted tiles are put together and sorted again.
//
// The kernels are `sort_<version>_<what>_<keys>`; `Sort` is what cpp/cuda/cuda_sorts.cc gives them.
#include "sorts.cuh"

namespace {

namespace sorts {

template <typename P>
__device__ __forceinline__ void SortOwn(typename P::Item* own) {
#pragma unroll
  for (int round = 0; round < kEach; ++round) {
#pragma unroll
    for (int i = round & 1; i + 1 < kEach; i += 2) {
      if (P::Less(own[i + 1], own[i])) {
        const typename P::Item item = own[i];
        own[i] = own[i + 1];
        own[i + 1] = item;
      }
    }
  }
}

// Sorts each segment of a tile.
template <typename P>
__device__ __forceinline__ void SortSegments(int segment, typename P::Item* tile) {
  typename P::Item own[kEach];
  const int first = Thread() * kEach;
#pragma unroll
  for (int i = 0; i < kEach; ++i) own[i] = tile[first + i];
  SortOwn<P>(own);
  for (int run = kEach; run < segment; run *= 2) {
    SyncBlock();
#pragma unroll
    for (int i = 0; i < kEach; ++i) tile[first + i] = own[i];
    SyncBlock();
    const int pair = first / (2 * run) * 2 * run;
    Merge<P>(tile + pair, run, tile + pair + run, run, first - pair, own);
  }
  SyncBlock();
#pragma unroll
  for (int i = 0; i < kEach; ++i) tile[first + i] = own[i];
  SyncBlock();
}

// A block sorts a tile of one line, or several lines.
template <typename P>
__device__ __forceinline__ void SortTile(const Sort& s, typename P::Item* tile) {
  using Stored = typename P::Stored;
  const auto* from = static_cast<const Stored*>(s.from);
  auto* to = static_cast<Stored*>(s.to);
  const int several = kTile / s.segment;
  const long long part = several > 1 ? 0 : Block() % s.tiles;
  const long long first =
      several > 1 ? static_cast<long long>(Block()) * several : Block() / s.tiles;
  for (int i = Thread(); i < kTile; i += kThreads) {
    const long long line = first + i / s.segment;
    const long long at = part * kTile + i % s.segment;
    typename P::Item item = P::Last();
    if (line < s.lines && at < s.total) {
      item = from != nullptr ? P::Load(s, line, from[line * s.total + at])
                             : P::Make(KeyOf(s, PlaceOf(s, line, s.extent, at)), at);
    }
    tile[i] = item;
  }
  SyncBlock();
  SortSegments<P>(s.segment, tile);
  for (int i = Thread(); i < kTile; i += kThreads) {
    const long long line = first + i / s.segment;
    const int rank = i % s.segment;
    if (line >= s.lines || rank >= s.run_to || part * kTile + rank >= s.total) continue;
    if (to != nullptr) {
      to[line * s.total_to + part * s.run_to + rank] = P::Store(tile[i]);
    } else {
      Put<P>(s, line, rank, tile[i]);
    }
  }
}

// A block makes a tile of what two runs become.
template <typename P>
__device__ __forceinline__ void MergeTile(const Sort& s, typename P::Item* tile, int* ends) {
  using Stored = typename P::Stored;
  const long long line = Block() / s.tiles;
  const long long of_pair = (s.run_to + kTile - 1) / kTile;
  const long long pair = Block() % s.tiles / of_pair;
  const long long begin = Block() % s.tiles % of_pair * kTile;
  const long long at = 2 * pair * s.run;
  const long long rest = s.total - at;
  const long long lefts = rest < s.run ? rest : s.run;
  const long long rights = rest - lefts < s.run ? rest - lefts : s.run;
  const long long size = lefts + rights < s.run_to ? lefts + rights : s.run_to;
  if (begin >= size) return;
  const long long end = size - begin < kTile ? size : begin + kTile;
  const Stored* left = static_cast<const Stored*>(s.from) + line * s.total + at;
  const Stored* right = left + lefts;
  const auto of_left = [&](long long i) { return P::Load(s, line, left[i]); };
  const auto of_right = [&](long long i) { return P::Load(s, line, right[i]); };
  if (Thread() % 32 == 0 && Thread() < 64) {  // In two warps.
    const long long diagonal = Thread() == 0 ? begin : end;
    ends[Thread() / 32] = static_cast<int>(Split<P>(of_left, lefts, of_right, rights, diagonal));
  }
  SyncBlock();
  const long long first_left = ends[0];
  const long long first_right = begin - first_left;
  const int own_lefts = static_cast<int>(ends[1] - first_left);
  const int own = static_cast<int>(end - begin);
  for (int i = Thread(); i < own; i += kThreads) {
    tile[i] = i < own_lefts ? of_left(first_left + i) : of_right(first_right + i - own_lefts);
  }
  SyncBlock();
  typename P::Item found[kEach];
  const int first = Thread() * kEach;
  if (first < own) {
    Merge<P>(tile, own_lefts, tile + own_lefts, own - own_lefts, first, found);
  }
  SyncBlock();
  if (first < own) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) tile[first + i] = found[i];
  }
  SyncBlock();
  auto* to = static_cast<Stored*>(s.to);
  for (int i = Thread(); i < own; i += kThreads) {
    if (to != nullptr) {
      to[line * s.total_to + pair * s.run_to + begin + i] = P::Store(tile[i]);
    } else {
      Put<P>(s, line, begin + i, tile[i]);
    }
  }
}

// Where on each line, x, which is a permutation, the numbers below `count` are.
__device__ __forceinline__ void Invert(const Sort& s) {
  const auto* ranks = static_cast<const long long*>(s.x);
  const long long step = static_cast<long long>(Blocks()) * kThreads;
  for (long long i = static_cast<long long>(Block()) * kThreads + Thread(); i < s.lines * s.extent;
       i += step) {
    const long long inner = i % s.trail;
    const long long at = i / s.trail % s.extent;
    const long long lead = i / s.trail / s.extent;
    const long long rank = ranks[i];
    if (rank >= 0 && rank < s.count) s.result[(lead * s.count + rank) * s.trail + inner] = at;
  }
}

}  // namespace sorts

}  // namespace

#define SORTS(name, P)                                                       \
  extern "C" __global__ void __launch_bounds__(sorts::kThreads)              \
      sort_1_tiles_##name(const Sort s) {                                    \
    SHARED_FLOATS(shared, (sorts::kTile * sizeof(sorts::P::Item) / 4));      \
    sorts::SortTile<sorts::P>(s, reinterpret_cast<sorts::P::Item*>(shared)); \
  }                                                                          \
  extern "C" __global__ void __launch_bounds__(sorts::kThreads)              \
      sort_1_merge_##name(const Sort s) {                                    \
    constexpr int kFloats = sorts::kTile * sizeof(sorts::P::Item) / 4;       \
    SHARED_FLOATS(shared, (kFloats + 2));                                    \
    sorts::MergeTile<sorts::P>(s, reinterpret_cast<sorts::P::Item*>(shared), \
                               reinterpret_cast<int*>(shared + kFloats));    \
  }

SORTS(packed, Packed)
SORTS(wide, Wide)

extern "C" __global__ void __launch_bounds__(sorts::kThreads) sort_1_invert(const Sort s) {
  sorts::Invert(s);
}
