// SPDX-License-Identifier: Apache-2.0
// The blocks live at one moment, by address, asked for the lowest gap that holds a size.
#ifndef MEMC_LIVE_BLOCKS_H_
#define MEMC_LIVE_BLOCKS_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace memc {

// A treap by offset; a node is a live block together with the gap above it, and knows the largest
// gap below itself in the tree. Each operation is O(log n) in expectation.
class LiveBlocks {
 public:
  // For blocks 0 to count - 1, none of them live.
  explicit LiveBlocks(int32_t count);

  // Makes a block live at the lowest offset where `size` bytes are free; returns the offset. Both
  // in bytes. Throws std::overflow_error beyond int64.
  int64_t Place(int32_t block, int64_t size);

  // Ends the life of a block that is live.
  void Free(int32_t block);

 private:
  static constexpr int32_t kNone = -1;

  struct Node {
    int64_t offset = 0;
    int64_t size = 0;
    int64_t gap = 0;      // Free bytes from the block's end to the next block.
    int64_t largest = 0;  // The largest gap of this node and those under it.
    uint32_t priority = 0;
    int32_t left = kNone;
    int32_t right = kNone;
  };

  void Update(int32_t node);
  void AddToLastGap(int32_t node, int64_t bytes);
  int32_t Merge(int32_t low, int32_t high);
  std::pair<int32_t, int32_t> Split(int32_t node, int64_t offset);

  std::vector<Node> nodes_;  // The last is an empty block at offset 0 that is always live.
  int32_t root_;
};

}  // namespace memc

#endif  // MEMC_LIVE_BLOCKS_H_
