// SPDX-License-Identifier: Apache-2.0
// Updates written to places that indices name, or combined with what is there. The updates are
// sorted by place and number (sorts.cu); then those of one place lie beside each other, and the
// thread of the first one combines them in this order. Of places with many, parts of 64 entries are
// combined before, and 64 of these parts: by their numbers in the sorted list, so that a result
// has the same bits every time. Nothing is atomic.
//
// The kernels are `scatter_<version>_<what>`; `Scatter` is what cpp/cuda/cuda_scatters.cc gives
// them.
#include "scatters.cuh"

namespace {

namespace scatters {

__device__ __forceinline__ long long First() {
  return static_cast<long long>(Block()) * kThreads + Thread();
}
__device__ __forceinline__ long long Step() { return static_cast<long long>(Blocks()) * kThreads; }

// The place of update `i`, which has its own coordinates but for one, or those that indices name.
__device__ __forceinline__ long long Target(const Scatter& s, long long i) {
  long long place = 0;
  if (s.axis < 0) {
    for (int d = 0; d < s.axes; ++d) {
      place = place * s.to[d] + IndexOf(s, i * s.axes + d, s.to[d]);
    }
    return place;
  }
  const long long index = IndexOf(s, i, s.to[s.axis]);
  long long stride = 1;
  for (int d = s.axes - 1; d >= 0; --d) {
    place += (d == s.axis ? index : i % s.from[d]) * stride;
    i /= s.from[d];
    stride *= s.to[d];
  }
  return place;
}

__device__ __forceinline__ void Keys(const Scatter& s) {
  for (long long i = First(); i < s.count; i += Step()) {
    s.keys[i] = static_cast<unsigned>(Target(s, i));
  }
}

// The result as it is before updates.
__device__ __forceinline__ void Begin(const Scatter& s) {
  const long long words = s.words != 0 ? s.result_bytes / 8 : 0;
  const auto* start = static_cast<const Word*>(s.start);
  for (long long i = First(); i < words; i += Step()) {
    static_cast<Word*>(s.result)[i] = start != nullptr ? start[i] : s.fill;
  }
  for (long long i = words * 8 + First(); i < s.result_bytes; i += Step()) {
    static_cast<unsigned char*>(s.result)[i] =
        start != nullptr ? static_cast<const unsigned char*>(s.start)[i]
                         : static_cast<unsigned char>(s.fill >> i % 8 * 8);
  }
}

// What a thread has of `lists` of so many things with `row` columns.
struct Site {
  long long list, thing, column;
};

__device__ __forceinline__ Site SiteOf(const Scatter& s, long long i, long long things) {
  Site t;
  if (s.lead * things * s.row < 0xffffffffLL) {  // Short divisions are quicker.
    const auto row = static_cast<unsigned>(s.row);
    const unsigned outer = static_cast<unsigned>(i) / row;
    t.column = static_cast<unsigned>(i) % row;
    t.thing = outer % static_cast<unsigned>(things);
    t.list = outer / static_cast<unsigned>(things);
  } else {
    t.column = i % s.row;
    t.thing = i / s.row % things;
    t.list = i / s.row / things;
  }
  return t;
}

// Whether the entries [at, at + size) all have this place.
__device__ __forceinline__ bool IsUniform(const Scatter& s, long long at, int size,
                                          unsigned place) {
  return at % size == 0 && at + size <= s.count && PlaceOf(s.entries[at + size - 1]) == place;
}

template <typename K>
__device__ __forceinline__ typename K::State UpdateAt(const Scatter& s, const Site& t,
                                                      long long number) {
  return K::Read(s.updates, s.number, s.bytes, (t.list * s.count + number) * s.row + t.column);
}

template <typename K>
__device__ __forceinline__ typename K::State* PartsOf(const Scatter& s, Word* parts, const Site& t,
                                                      int size) {
  return reinterpret_cast<typename K::State*>(parts) + t.list * (s.count / size) * s.row + t.column;
}

// What the entries of each part amount to that has one place.
template <typename K>
__device__ __forceinline__ void Parts(const Scatter& s) {
  const long long parts = s.count / kPart;
  const long long i = First();
  if (i >= s.lead * parts * s.row) return;
  const Site t = SiteOf(s, i, parts);
  const Word* entries = s.entries + t.thing * kPart;
  if (PlaceOf(entries[0]) != PlaceOf(entries[kPart - 1])) return;
  typename K::State all = UpdateAt<K>(s, t, UpdateOf(entries[0]));
#pragma unroll 9
  for (int k = 1; k < kPart; ++k) {
    all = K::Combine(s, all, UpdateAt<K>(s, t, UpdateOf(entries[k])));
  }
  PartsOf<K>(s, s.parts, t, kPart)[t.thing * s.row] = all;
}

// The same of as many parts.
template <typename K>
__device__ __forceinline__ void Many(const Scatter& s) {
  const long long many = s.count / kMany;
  const long long i = First();
  if (i >= s.lead * many * s.row) return;
  const Site t = SiteOf(s, i, many);
  const Word* entries = s.entries + t.thing * kMany;
  if (PlaceOf(entries[0]) != PlaceOf(entries[kMany - 1])) return;
  const typename K::State* parts = PartsOf<K>(s, s.parts, t, kPart) + t.thing * kPart * s.row;
  typename K::State all = parts[0];
#pragma unroll 9
  for (int k = 1; k < kPart; ++k) all = K::Combine(s, all, parts[k * s.row]);
  PartsOf<K>(s, s.many, t, kMany)[t.thing * s.row] = all;
}

// The first entry of a place combines all of it.
template <typename K>
__device__ __forceinline__ void Places(const Scatter& s) {
  const long long i = First();
  if (i >= s.lead * s.count * s.row) return;
  const Site t = SiteOf(s, i, s.count);
  const unsigned place = PlaceOf(s.entries[t.thing]);
  if (t.thing > 0 && PlaceOf(s.entries[t.thing - 1]) == place) return;
  const long long to = (t.list * s.places + place) * s.row + t.column;
  typename K::State all = K::Read(s.result, s.result_number, s.result_size, to);
  for (long long at = t.thing; at < s.count;) {
    if (s.parts != nullptr && IsUniform(s, at, kMany, place)) {
      all = K::Combine(s, all, PartsOf<K>(s, s.many, t, kMany)[at / kMany * s.row]);
      at += kMany;
    } else if (s.parts != nullptr && IsUniform(s, at, kPart, place)) {
      all = K::Combine(s, all, PartsOf<K>(s, s.parts, t, kPart)[at / kPart * s.row]);
      at += kPart;
    } else {
      const Word entry = s.entries[at];
      if (PlaceOf(entry) != place) break;
      all = K::Combine(s, all, UpdateAt<K>(s, t, UpdateOf(entry)));
      ++at;
    }
  }
  K::Write(s.result, s.result_number, s.result_size, to, all);
}

// The last entry of a place writes its update, or where that is.
__device__ __forceinline__ void Put(const Scatter& s) {
  const long long i = First();
  if (i >= s.lead * s.count * s.row) return;
  const Site t = SiteOf(s, i, s.count);
  const Word entry = s.entries[t.thing];
  const unsigned place = PlaceOf(entry);
  if (t.thing + 1 < s.count && PlaceOf(s.entries[t.thing + 1]) == place) return;
  const long long from = (t.list * s.count + UpdateOf(entry)) * s.row + t.column;
  const Word value =
      s.positions != 0 ? static_cast<Word>(from) : Integers::Read(s.updates, 0, s.bytes, from);
  Integers::Write(s.result, 0, s.result_size, (t.list * s.places + place) * s.row + t.column,
                  value);
}

}  // namespace scatters

}  // namespace

#define SCATTER(name, ...)                                         \
  extern "C" __global__ void __launch_bounds__(scatters::kThreads) \
      scatter_1_##name(const Scatter s) {                          \
    __VA_ARGS__(s);                                                \
  }

SCATTER(keys, scatters::Keys)
SCATTER(begin, scatters::Begin)
SCATTER(put, scatters::Put)
SCATTER(parts_float, scatters::Parts<scatters::Floats>)
SCATTER(parts_integer, scatters::Parts<scatters::Integers>)
SCATTER(many_float, scatters::Many<scatters::Floats>)
SCATTER(many_integer, scatters::Many<scatters::Integers>)
SCATTER(places_float, scatters::Places<scatters::Floats>)
SCATTER(places_integer, scatters::Places<scatters::Integers>)
