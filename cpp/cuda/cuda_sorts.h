// SPDX-License-Identifier: Apache-2.0
// Sorts of lines by memc's own kernels (runtime/codegen/cuda_kernels/sorts.cu): in n log n steps,
// or in steps that grow as n where few elements are wanted.
#ifndef MEMC_CUDA_SORTS_H_
#define MEMC_CUDA_SORTS_H_

#include <array>
#include <cstdint>

#include "cuda/cuda_context.h"

namespace memc::cuda {

// The lines of a tensor along an axis: `lead` x `extent` x `trail` elements.
struct Lines {
  int64_t lead = 1;
  int64_t extent = 0;
  int64_t trail = 1;
};

struct Sorted {
  const void* data = nullptr;
  int64_t bytes = 4;   // Of an element: 1, 2, 4 or 8.
  int64_t number = 0;  // 0 unsigned, 1 signed, 2 float, 3 brain float.
  bool descending = false;
};

// Bytes of workspace for the `trail` lines beside each other, of which the `count` first elements
// are wanted, or all ranks (`count` the extent): what a call needs at least, and `lead` times of
// which it can use. Where all elements are, the results have room for half of what a sort needs.
int64_t SortRoom(const Lines& lines, int64_t count, int64_t bytes);

// Enqueues it: the first `count` elements of each line in sorted order and where on the line they
// are, or with null `values` how many elements of its line come before each, for `count` the
// extent. Throws std::invalid_argument for a workspace that is too small and lines that are too
// long, std::runtime_error if a launch fails.
void SortLines(const Lines& lines, int64_t count, const Place& place, const Sorted& x, void* values,
               int64_t* result);

// Enqueues it: of `count` keys of 32 bits, entries in order, with the key in the upper half of a
// word and its position below; returns in which of the arrays of as many words they are. The keys
// may lie in the second one, which has room for them alone if all are sorted at once. With the
// context's mutex held.
const void* SortKeys(Context* context, Stream stream, const void* keys, int64_t count,
                     const std::array<char*, 2>& arrays);
bool SortsAtOnce(int64_t count);

// Enqueues it: where on each line, which is a permutation, the numbers below `count` are.
void InvertLines(const Lines& lines, int64_t count, const Place& place, const int64_t* ranks,
                 int64_t* positions);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_SORTS_H_
