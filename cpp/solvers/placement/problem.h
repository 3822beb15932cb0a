// SPDX-License-Identifier: Apache-2.0
// Static storage allocation: which byte offset each buffer of known size and lifetime gets.
//
//   offset (bytes)
//     ^      +-----+
//     |      |  B  |  +---+      A rectangle spans a buffer's lifetime [lower, upper) and its bytes
//     |  +---+-----+  | C |      [offset, offset + size). Rectangles must not intersect; the height
//     |  |    A    |--+---+      of the tallest is the peak.
//     +--+---------+---------> time
#ifndef MEMC_PROBLEM_H_
#define MEMC_PROBLEM_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "solvers/common/bytes.h"

namespace memc {

struct Buffer {
  int64_t size;                   // Bytes; 0 is allowed and never collides.
  int64_t lower;                  // First time step at which it is live.
  int64_t upper;                  // Time step after the last; lower < upper.
  std::optional<int64_t> offset;  // Bytes from the arena's start if the buffer must lie there.
};

struct Problem {
  std::vector<Buffer> buffers;
  int64_t alignment = 1;  // Bytes; offsets are multiples of it and sizes are rounded up to it.
  int64_t capacity = std::numeric_limits<int64_t>::max();  // Bytes a valid plan may use.
};

struct Solution {
  std::vector<int64_t> offsets;  // Bytes from the arena's start, one for each buffer, in order.
  int64_t peak = 0;              // Bytes: the greatest offset + size rounded up to the alignment.
};

// Throws std::invalid_argument naming the buffer if the problem is malformed: size out of
// [0, kMaxSize], empty lifetime, a fixed offset negative or unaligned, alignment below 1.
void Validate(const Problem& problem);

// The buffers' sizes in bytes, each rounded up to the problem's alignment.
std::vector<int64_t> RoundedSizes(const Problem& problem);

// The peak, in bytes, of a plan that puts buffer i at offsets[i].
int64_t Peak(const Problem& problem, const std::vector<int64_t>& offsets);

// The largest sum of rounded sizes live at one time, in bytes: no plan has a lower peak.
// A buffer with a fixed offset raises it to that buffer's end. O(n log n).
int64_t LowerBound(const Problem& problem);

// How many pairs of buffers are live together, empty ones left out, or a number beyond `limit` if
// more than that many. O(n log n). The work of a first fit is about proportional to it.
int64_t OverlapPairs(const Problem& problem, int64_t limit);

}  // namespace memc

#endif  // MEMC_PROBLEM_H_
