// SPDX-License-Identifier: Apache-2.0
#include "kernels/scatters.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <type_traits>

#include "kernels/combine.h"
#include "kernels/cpu_kernels.h"
#include "kernels/parallel.h"

namespace memc {

namespace {

constexpr int64_t kColumns = 16;  // The least of a row for one thread, where threads share rows.

struct Range {
  int64_t low, high;

  Range Cut(int64_t task, int64_t tasks) const {
    const int64_t size = high - low;
    return {low + task * size / tasks, low + (task + 1) * size / tasks};
  }
};

int64_t SizeOf(const std::vector<int64_t>& sizes, size_t low, size_t high) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(low),
                         sizes.begin() + static_cast<std::ptrdiff_t>(high), int64_t{1},
                         std::multiplies<>());
}

MEMC_CLONES void AddRow(float* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

// n updates beside each other, of which the first is number `first` of all.
template <typename C>
void Combine(typename C::To* to, const typename C::From* from, int64_t first, int64_t n) {
  if constexpr (C::kPosition) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<typename C::To>(first + i);
  } else if constexpr (std::is_same_v<C, Sum<float, float>>) {
    if (n == 1) {
      *to += *from;
    } else {
      AddRow(to, from, n);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = C::Of(to[i], from[i]);
  }
}

template <typename C>
void Begin(const void* start, typename C::To* result, int64_t elements) {
  using To = typename C::To;
  if (start == result) return;
  ParallelFor(elements < kSerialWork, [&](int64_t task, int64_t tasks) {
    const Range own = Range{0, elements}.Cut(task, tasks);
    if (start == nullptr) {
      std::fill(result + own.low, result + own.high, C::Start());
    } else {
      std::memcpy(result + own.low, static_cast<const To*>(start) + own.low,
                  static_cast<size_t>(own.high - own.low) * sizeof(To));
    }
  });
}

int64_t PlaceOf(const RowPlaces& p, int64_t i) {
  const auto depth = static_cast<int64_t>(p.extents.size());
  int64_t place = 0;
  for (int64_t d = 0; d < depth; ++d) {
    const int64_t extent = p.extents[static_cast<size_t>(d)];
    place = place * extent + p.indices.At(i * depth + d, extent);
  }
  return place;
}

template <typename C>
void Rows(const RowPlaces& p, const Updates& u, const void* start, typename C::To* result) {
  const int64_t extent = SizeOf(p.extents, 0, p.extents.size());
  const auto* updates = static_cast<const typename C::From*>(u.data);
  Begin<C>(start, result, p.lead * extent * p.row);
  ParallelFor(p.lead * p.count * p.row < kSerialWork, [&](int64_t task, int64_t tasks) {
    Range leads{0, p.lead};
    Range columns{0, p.row};
    Range places{0, extent};
    Range& shared = p.lead >= tasks ? leads : p.row >= kColumns * tasks ? columns : places;
    shared = shared.Cut(task, tasks);
    const int64_t size = columns.high - columns.low;
    for (int64_t lead = leads.low; lead < leads.high; ++lead) {
      for (int64_t i = 0; i < p.count; ++i) {
        const int64_t place = PlaceOf(p, i);
        if (place < places.low || place >= places.high) continue;
        const int64_t from = (lead * p.count + i) * p.row + columns.low;
        Combine<C>(result + (lead * extent + place) * p.row + columns.low, updates + from, from,
                   size);
      }
    }
  });
}

// Where in `to` is what has the coordinates that number `n` has in `from`, along the axes [low,
// high) of both.
int64_t Mapped(const ElementPlaces& p, int64_t n, size_t low, size_t high) {
  int64_t place = 0;
  int64_t stride = 1;
  for (size_t axis = high; axis-- > low;) {
    place += n % p.from[axis] * stride;
    n /= p.from[axis];
    stride *= p.to[axis];
  }
  return place;
}

// Where updates beside each other may go: to `line`, in steps of `apart` by their indices, in which
// the places in `places` count, and of `step` from one to the next.
template <typename To>
struct Line {
  To* to;
  int64_t extent, apart, step;
  Range places;
};

template <typename C, typename Index>
void Stretch(const Line<typename C::To>& line, const Index* indices,
             const typename C::From* updates, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = Inside(indices[first + i], line.extent);
    if (place < line.places.low || place >= line.places.high) continue;
    typename C::To& to = line.to[place * line.apart + i * line.step];
    if constexpr (C::kPosition) {
      to = static_cast<typename C::To>(first + i);
    } else {
      to = C::Of(to, updates[first + i]);
    }
  }
}

template <typename C, typename Index>
void Elements(const ElementPlaces& p, const Updates& u, typename C::To* result) {
  const auto axis = static_cast<size_t>(p.axis);
  const size_t rank = p.to.size();
  const int64_t lead = SizeOf(p.from, 0, axis);
  const int64_t trail = SizeOf(p.from, axis + 1, rank);
  const int64_t apart = SizeOf(p.to, axis + 1, rank);
  const int64_t count = p.from[axis];
  const int64_t extent = p.to[axis];
  const auto* updates = static_cast<const typename C::From*>(u.data);
  const auto* indices = static_cast<const Index*>(p.indices.data);
  ParallelFor(lead * count * trail < kSerialWork, [&](int64_t task, int64_t tasks) {
    Range leads{0, lead};
    Range columns{0, trail};
    Range places{0, extent};
    Range& shared = lead >= tasks ? leads : trail >= kColumns * tasks ? columns : places;
    shared = shared.Cut(task, tasks);
    for (int64_t l = leads.low; l < leads.high; ++l) {
      Line<typename C::To> line{result + Mapped(p, l, 0, axis) * extent * apart, extent, apart,
                                trail == apart ? 1 : 0, places};
      const int64_t from = l * count * trail;
      if (trail == 1) {
        line.step = 0;
        Stretch<C>(line, indices, updates, from, count);
        continue;
      }
      const int64_t size = line.step == 1 ? columns.high - columns.low : 1;
      typename C::To* begin = line.to;
      for (int64_t k = 0; k < count; ++k) {
        for (int64_t t = columns.low; t < columns.high; t += size) {
          line.to = begin + (line.step == 1 ? t : Mapped(p, t, axis + 1, rank));
          Stretch<C>(line, indices, updates, from + k * trail + t, size);
        }
      }
    }
  });
}

template <typename C>
typename C::To* ResultOf(const Updates& u, void* result) {
  if (u.result_bytes != static_cast<int64_t>(sizeof(typename C::To))) {
    throw std::invalid_argument("a result of " + std::to_string(u.result_bytes) +
                                " bytes an element does not fit the updates");
  }
  return static_cast<typename C::To*>(result);
}

}  // namespace

void ScatterRows(const RowPlaces& places, const Updates& updates, const void* start, void* result) {
  WithReduction(updates, [&](auto reduction) {
    using C = decltype(reduction);
    Rows<C>(places, updates, start, ResultOf<C>(updates, result));
  });
}

void ScatterElements(const ElementPlaces& places, const Updates& updates, const void* start,
                     void* result) {
  WithReduction(updates, [&](auto reduction) {
    using C = decltype(reduction);
    auto* to = ResultOf<C>(updates, result);
    Begin<C>(start, to, SizeOf(places.to, 0, places.to.size()));
    if (places.indices.is_wide) {
      Elements<C, int64_t>(places, updates, to);
    } else {
      Elements<C, int32_t>(places, updates, to);
    }
  });
}

}  // namespace memc
