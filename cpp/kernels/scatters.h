// SPDX-License-Identifier: Apache-2.0
// Updates written to places of a tensor that indices name, or combined with what is there. Each
// update is looked at once by every thread and written by one, and those of one place one after
// another, so that the results do not depend on the number of threads.
#ifndef MEMC_SCATTERS_H_
#define MEMC_SCATTERS_H_

#include <cstdint>
#include <vector>

#include "kernels/sorts.h"

namespace memc {

enum class Reduction : int64_t { kNone, kAdd, kMultiply, kMost, kLeast };

// Negative indices count from the end; what is out of range is brought inside.
inline int64_t Inside(int64_t index, int64_t extent) {
  index = index < 0 ? index + extent : index;
  return index < 0 ? 0 : index < extent ? index : extent - 1;
}

struct Indices {
  const void* data;
  bool is_wide;  // int64_t, else int32_t.

  int64_t At(int64_t i, int64_t extent) const {
    return Inside(
        is_wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i],
        extent);
  }
};

struct Updates {
  Reduction reduction;
  // Write where in row-major order of all updates each one is, and not the update (kNone alone).
  bool positions;
  int64_t bytes;  // Of an update: 1, 2, 4 or 8.
  Number number;
  // Of an element of the result: as many, but 4 of sums and products of floats of 2 bytes; of
  // positions 4 or 8.
  int64_t result_bytes;
  const void* data;
};

// `lead` tables of as many rows of `row` elements as there are places in `extents`, and as many
// lists of `count` rows of updates. The place of update i is indices[i][extents.size()].
struct RowPlaces {
  Indices indices;
  int64_t lead, count, row;
  std::vector<int64_t> extents;
};

// Updates of shape `from` go to a tensor of shape `to`: each to its own place, but for the
// coordinate along `axis`, which is the index of the same place.
struct ElementPlaces {
  Indices indices;
  std::vector<int64_t> from, to;
  int64_t axis;
};

// Begins with `start`, which may be the result itself, or where that is null with what the
// reduction begins with (-1 for positions). Throws std::invalid_argument for elements that it does
// not know.
void ScatterRows(const RowPlaces& places, const Updates& updates, const void* start, void* result);
void ScatterElements(const ElementPlaces& places, const Updates& updates, const void* start,
                     void* result);

}  // namespace memc

#endif  // MEMC_SCATTERS_H_
