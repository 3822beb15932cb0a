// SPDX-License-Identifier: Apache-2.0
// Running sums and products of lines. A block walks over a part of one line, or of several beside
// each other, chunk by chunk, and begins with what all parts before amount to, which a first launch
// has found; lines of one part need only one launch.
//
// A product of floats is not what products of its parts make once it has left the type's range:
// after an infinity, a zero makes nan. So where the states say that it may leave it, a thread goes
// from one element to the next; from zeros, infinities and nans on, parts may be combined again.
//
// The kernels are `scan_<version>_<sums or lines>_<kind>`; `Scan` is what cpp/cuda/cuda_scans.cc
// gives them.
#include "scans.cuh"

namespace {

namespace scans {

constexpr int kThreads = 256;
constexpr int kEach = 8;

// Where a thread is: on which line, and its place among the threads of that.
struct Site {
  long long base, line;
  int column, place, deep;
  bool inside;  // Whether there is such a line.
};

__device__ __forceinline__ Site SiteOf(const Scan& s, long long tile) {
  Site t;
  t.column = Thread() % s.wide;
  t.place = Thread() / s.wide;
  t.deep = kThreads / s.wide;
  const long long lead = tile / s.line_tiles;
  const long long inner = tile % s.line_tiles * s.wide + t.column;
  t.inside = inner < s.trail;
  t.base = lead * s.extent * s.trail + inner;
  t.line = lead * s.trail + inner;
  return t;
}

__device__ __forceinline__ long long PlaceOf(const Scan& s, const Site& t, long long at) {
  return t.base + (s.reverse != 0 ? s.extent - 1 - at : at) * s.trail;
}

template <typename State>
struct Found {
  State before;  // What the threads before of the same line amount to.
  State all;
};

// Of each line, the states of its threads combined.
template <typename K>
__device__ __forceinline__ Found<typename K::State> Combined(const Scan& s, const Site& t,
                                                             typename K::State own,
                                                             typename K::State* shared) {
  typename K::State* mine = shared + t.place * s.wide + t.column;
  *mine = own;
  SyncBlock();
  for (int step = 1; step < t.deep; step *= 2) {
    const bool joins = t.place >= step;
    typename K::State other = K::None();
    if (joins) other = *(mine - step * s.wide);
    SyncBlock();
    if (joins) {
      own = K::Combine(other, own);
      *mine = own;
    }
    SyncBlock();
  }
  Found<typename K::State> found;
  found.before = K::None();
  if (t.place > 0) found.before = *(mine - s.wide);
  found.all = shared[(t.deep - 1) * s.wide + t.column];
  SyncBlock();
  return found;
}

// From one element to the next, from `low` to `high`, which may be written.
template <typename K>
__device__ __forceinline__ typename K::State Walk(const Scan& s, const Site& t,
                                                  typename K::State carry, long long low,
                                                  long long high, bool writes) {
  typename K::Element value = K::Value(carry);
  for (long long at = low; at < high && at < s.extent; ++at) {
    const long long place = PlaceOf(s, t, at);
    const typename K::Element next = K::Next(value, K::Read(s, place));
    if (writes) K::Write(s, place, s.exclusive != 0 ? value : next);
    value = next;
  }
  return K::Of(value);
}

// What the parts of a line before `part` amount to.
template <typename K>
__device__ __forceinline__ typename K::State Before(const Scan& s, const Site& t, long long part,
                                                    typename K::State* shared) {
  using State = typename K::State;
  const State* sums = static_cast<const State*>(s.sums) + t.line * s.parts;
  const long long each = (part + t.deep - 1) / t.deep;
  State own = K::None();
  for (long long i = t.place * each; t.inside && i < (t.place + 1) * each && i < part; ++i) {
    own = K::Combine(own, sums[i]);
  }
  State carry = Combined<K>(s, t, own, shared).all;
  const bool leaves = K::Leaves(K::None(), carry);
  if (leaves && t.inside && t.place == 0) {
    const long long size = s.chunks * t.deep * kEach;
    carry = K::None();
    for (long long i = 0; i < part; ++i) {
      carry = K::Leaves(carry, sums[i]) ? Walk<K>(s, t, carry, i * size, (i + 1) * size, false)
                                        : K::Combine(carry, sums[i]);
    }
    shared[t.column] = carry;
  }
  SyncBlock();
  if (leaves) carry = shared[t.column];
  SyncBlock();
  return carry;
}

// A part of a line, or only what it amounts to.
template <typename K, bool kSums>
__device__ __forceinline__ void ScanPart(const Scan& s, typename K::State* shared) {
  using State = typename K::State;
  const Site t = SiteOf(s, Block() / s.parts);
  const long long part = Block() % s.parts;
  State carry = K::None();
  if (!kSums && part > 0) carry = Before<K>(s, t, part, shared);
  for (long long chunk = part * s.chunks; chunk < (part + 1) * s.chunks; ++chunk) {
    const long long low = chunk * t.deep * kEach;
    if (low >= s.extent) break;
    const long long first = low + t.place * kEach;
    typename K::Element values[kEach];
    State own = K::None();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (t.inside && first + i < s.extent) {
        values[i] = K::Read(s, PlaceOf(s, t, first + i));
        own = K::Combine(own, K::Of(values[i]));
      }
    }
    const Found<State> found = Combined<K>(s, t, own, shared);
    if (kSums) {
      carry = K::Combine(carry, found.all);
      continue;
    }
    const bool leaves = t.inside && K::Leaves(carry, found.all);
    if (leaves && t.place == 0) {
      shared[t.column] = Walk<K>(s, t, carry, low, low + t.deep * kEach, true);
    }
    if (!leaves && t.inside) {
      State now = K::Combine(carry, found.before);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (first + i >= s.extent) break;
        const State next = K::Combine(now, K::Of(values[i]));
        K::Write(s, PlaceOf(s, t, first + i), K::Value(s.exclusive != 0 ? now : next));
        now = next;
      }
    }
    SyncBlock();
    carry = leaves ? shared[t.column] : K::Combine(carry, found.all);
    SyncBlock();
  }
  if (kSums && t.inside && t.place == 0) {
    static_cast<State*>(s.sums)[t.line * s.parts + part] = carry;
  }
}

}  // namespace scans

}  // namespace

#define SCAN(what, is_sums, name, ...)                                                       \
  extern "C" __global__ void __launch_bounds__(scans::kThreads)                              \
      scan_1_##what##_##name(const Scan s) {                                                 \
    SHARED_FLOATS(shared, (scans::kThreads * sizeof(__VA_ARGS__::State) / 4));               \
    scans::ScanPart<__VA_ARGS__, is_sums>(s, reinterpret_cast<__VA_ARGS__::State*>(shared)); \
  }

#define SCANS(name, ...)              \
  SCAN(sums, true, name, __VA_ARGS__) \
  SCAN(lines, false, name, __VA_ARGS__)

SCANS(sum_integer, scans::IntegerSum)
SCANS(sum_f32, scans::FloatSum<float>)
SCANS(sum_f64, scans::FloatSum<double>)
SCANS(product_integer, scans::IntegerProduct)
SCANS(product_f32, scans::FloatProduct<float>)
SCANS(product_f64, scans::FloatProduct<double>)
