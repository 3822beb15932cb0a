// SPDX-License-Identifier: Apache-2.0
// Allocators that give a request the smallest free block that holds it, and merge a free block with
// its free neighbours: TensorFlow's and XLA's BFC ("best fit with coalescing"), and CuPy's memory
// pool.
#ifndef MEMC_ALLOCATORS_COALESCING_H_
#define MEMC_ALLOCATORS_COALESCING_H_

#include <map>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/free_blocks.h"

namespace memc {

class CoalescingAllocator : public Allocator {
 public:
  CoalescingAllocator(Device device, int64_t unit);

  bool Allocate(const Event& event) override;
  void Free(int64_t block) override;
  int64_t AddressOf(int64_t block) const override;

 protected:
  struct Block {
    int64_t address = 0;
    int64_t size = 0;
    int64_t requested = 0;
    int64_t key = 0;  // among free blocks of its size
    int64_t arena = 0;
    int32_t previous = kNone;
    int32_t next = kNone;
    bool used = false;
  };
  static constexpr int32_t kNone = -1;

  // Which blocks a request of this stream may take.
  virtual int64_t ArenaOf(int64_t stream) const = 0;
  virtual bool ShouldSplit(int64_t size, int64_t rounded) const = 0;
  // Makes a free block of at least so many bytes. False: out of memory.
  virtual bool Grow(int64_t rounded, int64_t arena) = 0;
  // The order of free blocks of one size: the lowest is taken first.
  virtual int64_t KeyOf(const Block& block) = 0;

  void AddSegment(int64_t address, int64_t bytes, int64_t arena);
  // Gives back the segments of which nothing is in use, and returns their bytes.
  int64_t ReleaseFreeSegments();
  // Bytes of the segments of which nothing is in use.
  int64_t FreeSegmentBytes() const;
  int64_t RoundUp(int64_t bytes) const { return (bytes + unit_ - 1) / unit_ * unit_; }

 private:
  int32_t Take(int64_t rounded, int64_t arena);
  int32_t NewBlock(const Block& block);
  void InsertFree(int32_t index);
  void Merge(int32_t index, int32_t other);
  int32_t LiveBlock(int64_t id) const;

  int64_t unit_;  // of sizes, in bytes
  std::vector<Block> blocks_;
  std::vector<int32_t> unused_;
  std::vector<int32_t> block_of_;
  std::map<int64_t, FreeBlocks> free_;  // by arena; the address of an entry is the block's key
};

// TensorFlow's: its regions grow by doubling, or there is one of the whole limit, as JAX has it.
struct BfcOptions {
  int64_t limit = kUnlimited;  // bytes of all regions
  bool allow_growth = true;
  bool garbage_collection = false;  // of free regions, once no more can be had
  double fragmentation_fraction =
      0;  // of the limit: a block's rest that is split off in any case; 0 for 128 MiB
};

class BfcAllocator final : public CoalescingAllocator {
 public:
  BfcAllocator(Device device, const BfcOptions& options);

 protected:
  int64_t ArenaOf(int64_t) const override { return 0; }
  bool ShouldSplit(int64_t size, int64_t rounded) const override;
  bool Grow(int64_t rounded, int64_t arena) override;
  int64_t KeyOf(const Block& block) override { return block.address; }

 private:
  bool Extend(int64_t rounded);

  BfcOptions options_;
  int64_t region_;  // bytes of the next one
};

// CuPy's: what the device gives is exactly what is asked for.
struct CupyOptions {
  int64_t limit = kUnlimited;  // bytes of all segments
};

class CupyAllocator final : public CoalescingAllocator {
 public:
  CupyAllocator(Device device, const CupyOptions& options);
  void EmptyCache() override { ReleaseFreeSegments(); }

 protected:
  int64_t ArenaOf(int64_t stream) const override { return stream; }
  bool ShouldSplit(int64_t size, int64_t rounded) const override { return size > rounded; }
  bool Grow(int64_t rounded, int64_t arena) override;
  int64_t KeyOf(const Block&) override {
    return -++freed_;
  }  // The last that became free is taken first.

 private:
  CupyOptions options_;
  int64_t freed_ = 0;
};

}  // namespace memc

#endif  // MEMC_ALLOCATORS_COALESCING_H_
