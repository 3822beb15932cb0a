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

// Time steps [lower, upper) in which a buffer is live.
struct Live {
  int64_t lower;
  int64_t upper;
};

struct Problem {
  std::vector<Buffer> buffers;
  int64_t alignment = 1;  // Bytes; offsets are multiples of it and sizes are rounded up to it.
  int64_t capacity = std::numeric_limits<int64_t>::max();  // Bytes a valid plan may use.
  // Of each buffer: bytes of which its offset is a multiple, itself a multiple of `alignment`.
  // Empty: `alignment` for all.
  std::vector<int64_t> alignments = {};
  // Of each buffer: when it is live, ascending, with a gap between each two; the first begins at
  // its `lower`, the last ends at its `upper`. Those of a buffer without gaps may be left empty,
  // and the whole table if no buffer has gaps.
  std::vector<std::vector<Live>> lives = {};

  // Whether the buffer is not live throughout its lifetime.
  bool HasGaps(size_t index) const { return !lives.empty() && lives[index].size() > 1; }
  // Bytes of which the buffer's offset is a multiple.
  int64_t AlignmentOf(size_t index) const {
    return alignments.empty() ? alignment : alignments[index];
  }
  // Whether no buffer has gaps, and all have one alignment.
  bool Plain() const { return alignments.empty() && lives.empty(); }
};

struct Solution {
  std::vector<int64_t> offsets;  // Bytes from the arena's start, one for each buffer, in order.
  int64_t peak = 0;              // Bytes: the greatest offset + size rounded up to the alignment.
};

// Throws std::invalid_argument naming the buffer if the problem is malformed: size out of
// [0, kMaxSize], empty lifetime, a fixed offset negative or unaligned, alignment below 1 or no
// multiple of the problem's, or intervals that are not as `lives` says.
void Validate(const Problem& problem);

// Calls each(lower, upper) for the intervals in which the buffer is live, in order.
template <typename Fn>
void ForEachLive(const Problem& problem, size_t index, Fn each) {
  if (problem.HasGaps(index)) {
    for (const Live& live : problem.lives[index]) each(live.lower, live.upper);
  } else {
    each(problem.buffers[index].lower, problem.buffers[index].upper);
  }
}

// Whether two buffers are live at one time.
bool Together(const Problem& problem, size_t a, size_t b);

// The buffers at these indices as a problem of their own.
Problem Subproblem(const Problem& problem, const std::vector<int32_t>& indices);

// The buffers' sizes in bytes, each rounded up to the problem's alignment.
std::vector<int64_t> RoundedSizes(const Problem& problem);

// The peak, in bytes, of a plan that puts buffer i at offsets[i].
int64_t Peak(const Problem& problem, const std::vector<int64_t>& offsets);

// How many pairs of buffers are live together, empty ones left out and gaps taken as live, or a
// number beyond `limit` if more than that many. O(n log n). The work of a first fit is about
// proportional to it.
int64_t OverlapPairs(const Problem& problem, int64_t limit);

}  // namespace memc

#endif  // MEMC_PROBLEM_H_
