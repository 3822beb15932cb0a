// SPDX-License-Identifier: Apache-2.0
// PyTorch's caching allocator for CUDA, as release 2.11 has it.
//
// A request is rounded, and takes the smallest free block of its stream and pool that holds it.
// Where there is none, the device is asked for a segment; where the device has none, cached
// segments go back to it first. A free block merges with its free neighbours.
//
//   segment   |  block in use  | free block | block in use |     free block      |
//              <--- size ----->               prev <- -> next
//
// A segment is a list of blocks in order of address. With expandable segments there is one for each
// stream and pool, of reserved addresses, whose pages are mapped as they are needed; a block there
// may be unmapped.
#ifndef MEMC_ALLOCATORS_CACHING_H_
#define MEMC_ALLOCATORS_CACHING_H_

#include <array>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/free_blocks.h"

namespace memc {

struct CachingOptions {
  static constexpr int64_t kIntervals = 16;  // of sizes: up to 2 MiB, 4 MiB, ..., from 32 GiB
  bool expandable_segments = false;
  int64_t large_segment = 20 << 20;  // bytes of a segment for requests of 1 to 10 MiB
  int64_t max_split = kUnlimited;    // blocks of so many bytes are not split
  int64_t max_non_split_rounding =
      20 << 20;  // by which an unsplit block of at least max_split may exceed a request
  std::array<int64_t, kIntervals>
      divisions{};  // of a power of two, to which requests are rounded; 0 or 1 for none
  double garbage_collection_threshold = 0;  // of the allowed memory; 0 for none
  double memory_fraction =
      -1;  // of the device's memory that may be reserved; negative where none is set
  int64_t device_total =
      int64_t{80}
      << 30;  // bytes of the device, for the fraction and an expandable segment's addresses
  bool events_complete =
      true;  // whether other streams have finished with a freed block at the next request
};

class CachingAllocator final : public Allocator {
 public:
  // Throws std::invalid_argument for options that cannot be.
  CachingAllocator(Device device, const CachingOptions& options);

  bool Allocate(const Event& event) override;
  void Free(int64_t block) override;
  void RequestFree(int64_t block) override;
  void CompleteFree(int64_t block) override;
  void RecordStream(int64_t block, int64_t stream) override;
  void Synchronize(int64_t stream) override;
  void EmptyCache() override;
  void ReleasePool(int64_t pool) override;
  int64_t AddressOf(int64_t block) const override;

  int64_t RoundSize(int64_t bytes) const;

 private:
  static constexpr int32_t kNone = -1;

  struct Block {
    int64_t address = 0;
    int64_t size = 0;
    int64_t requested = 0;
    int64_t uses_of_pool = 0;  // how often its pool was searched before the block became free
    int32_t previous = kNone;
    int32_t next = kNone;
    int32_t group = 0;
    int32_t segment = kNone;  // index of its expandable segment
    int32_t waits_for = 0;    // events of other streams
    bool allocated = false;
    bool mapped = true;
    bool used_elsewhere = false;  // on another stream since it was allocated
  };

  // The blocks that a request may take: of one pool, size class and stream.
  struct Group {
    int64_t pool = 0;
    int64_t stream = 0;
    bool small = false;
    int32_t sizes = 0;  // index of the pool's size class in `searches_`
    FreeBlocks free;
    std::set<std::pair<int64_t, int32_t>> unmapped;  // address, block
  };

  struct Request {
    int64_t size = 0;     // rounded
    int64_t segment = 0;  // bytes to ask the device for
    int32_t group = 0;
  };

  // What a stream must pass before blocks that were used on it are free.
  struct StreamEvents {
    std::deque<int32_t> waiting;  // blocks, first recorded first
    size_t complete = 0;          // how many of them the device has passed
  };

  int32_t NewBlock(int32_t group, int64_t address, int64_t size);
  int32_t GroupOf(int64_t pool, bool small, int64_t stream);
  int32_t LiveBlock(int64_t id) const;
  void RequireHeld(int64_t id, int32_t block) const;
  bool Free(const Block& block) const {
    return !block.allocated && block.waits_for == 0 && !block.used_elsewhere;
  }
  bool IsSplit(const Block& block) const { return block.previous != kNone || block.next != kNone; }
  void InsertFree(int32_t block);
  void EraseFree(int32_t block);
  void InsertBetween(int32_t block, int32_t before, int32_t after);
  int64_t Age(const Block& block) const;

  int32_t TakeFreeBlock(const Request& request);
  int32_t NewSegment(const Request& request);
  bool ShouldSplit(const Block& block, int64_t size) const;
  void Hand(int32_t index, const Request& request, const Event& event);
  int64_t Merge(int32_t block, int32_t other);
  void Release(int32_t block);
  void CollectGarbage();
  bool ReleaseForRequest(const Request& request);
  void ReleaseCached();
  void ReleaseGroup(Group& group);

  void EndUse(int32_t block);
  void Recycle(int32_t block);
  void RecordEvents(int32_t block, int64_t id);
  void PassEvents(bool all);

  int32_t FindExpandable(const Request& request);
  int32_t TakeExpandable(const Request& request);
  bool Map(int32_t block, int64_t size);
  void Unmap(int32_t block);
  int64_t PageOf(const Group& group) const;

  CachingOptions options_;
  int64_t allowed_ = kUnlimited;  // bytes that may be reserved
  std::vector<Block> blocks_;
  std::vector<int32_t> unused_;    // indices in `blocks_`
  std::vector<int32_t> block_of_;  // by the number in events; kNone where it is not live, kNone - 1
                                   // where it has no bytes
  std::vector<Group> groups_;
  std::map<std::pair<int64_t, bool>, int32_t> size_classes_;
  std::vector<int64_t> searches_;           // by pool and size class: how often it was searched
  std::vector<int64_t> segment_base_;       // of expandable segments
  std::map<int64_t, StreamEvents> events_;  // by stream
  std::map<int32_t, std::set<int64_t>>
      streams_of_;  // of blocks that are used on other streams than their own
  std::set<int64_t> released_pools_;
  int32_t last_group_ = kNone;
};

}  // namespace memc

#endif  // MEMC_ALLOCATORS_CACHING_H_
