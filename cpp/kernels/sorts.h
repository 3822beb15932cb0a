// SPDX-License-Identifier: Apache-2.0
// Sorting along an axis. Equal elements keep their order, NaN is the greatest number and -0.0
// equals 0.0. The time is about proportional to the number of elements, whatever they are; many
// lines, and parts of long ones, are sorted on several threads.
#ifndef MEMC_SORTS_H_
#define MEMC_SORTS_H_

#include <cstdint>

namespace memc {

enum class Number : int64_t { kUnsigned, kSigned, kFloat, kBrainFloat };

// Tensors of `lead` x `extent` x `trail` elements: the lines along the middle axis are sorted.
struct Lines {
  int64_t lead, extent, trail;
};

struct SortedElements {
  const void* data;
  int64_t bytes;  // Of an element: 1, 2, 4 or 8.
  Number number;  // Floats of 2 bytes are IEEE halves, but for brain floats.
  bool descending;
};

// The longest line.
constexpr int64_t kLongestLine = (int64_t{1} << 31) - 1;

// Up to here a line's wanted elements are sorted on the stack.
constexpr int64_t kFewElements = 256;

// Bytes for the lines that are sorted at the same time, of which each has as many as the functions
// below say.
struct Workspace {
  char* data;
  int64_t bytes;
};

// What the room of a line is a multiple of, in bytes.
constexpr int64_t kRoom = 64;

// Of elements of `bytes` bytes each. Lines whose elements are next to each other are sorted in the
// bytes of the results.
int64_t TopKRoom(const Lines& lines, int64_t count, int64_t bytes);
int64_t RanksRoom(const Lines& lines, int64_t bytes);

// The first `count` elements of each line in sorted order, and where on the line they are. Both
// results have lead x count x trail elements. The workspace has room for a line or more.
void TopK(const Lines& lines, int64_t count, const SortedElements& x, void* values,
          int64_t* positions, const Workspace& workspace);

// How many elements of its line come before each. The workspace as above.
void SortRanks(const Lines& lines, const SortedElements& x, int64_t* ranks,
               const Workspace& workspace);

// Where on each line, which is a permutation of 0 ... extent - 1, the numbers below `count` are.
void RankPositions(const Lines& lines, int64_t count, const int64_t* ranks, int64_t* positions);

}  // namespace memc

#endif  // MEMC_SORTS_H_
