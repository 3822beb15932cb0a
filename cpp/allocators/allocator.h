// SPDX-License-Identifier: Apache-2.0
// What every simulated allocator of a framework does: it takes the events of a job and counts
// bytes. Nothing is allocated but the books. Sizes and addresses are in bytes.
#ifndef MEMC_ALLOCATORS_ALLOCATOR_H_
#define MEMC_ALLOCATORS_ALLOCATOR_H_

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace memc {

enum class EventKind : int64_t {
  kAllocate = 0,      // `bytes` for `block` on `stream`, from the private `pool` unless that is 0
  kFree = 1,          // `block`; at once, unless it was used on other streams
  kRequestFree = 2,   // `block` was given back, but is in use by the device until kCompleteFree
  kCompleteFree = 3,  // `block` is free
  kRecordStream = 4,  // `block` is used on `stream`, too
  kSynchronize = 5,   // the device has finished what is on `stream` so far
  kEmptyCache = 6,    // give cached memory back to the device: all that no private pool owns
  kReleasePool = 7,   // the private `pool` gets no more requests: its memory may be given back
};
constexpr int64_t kEventKinds = 8;

struct Event {
  EventKind kind = EventKind::kAllocate;
  int64_t block = 0;   // number of the block, from 0; not reused while it is live
  int64_t bytes = 0;   // as asked for
  int64_t stream = 0;  // any number
  int64_t pool = 0;    // 0 or more
};

struct Counter {
  int64_t current = 0;
  int64_t peak = 0;

  void Add(int64_t amount) {
    current += amount;
    if (current > peak) peak = current;
  }
};

struct Statistics {
  Counter
      allocated;  // bytes of blocks that are held by the job, rounding and unsplit rests included
  Counter requested;       // bytes that were asked for, of blocks not yet free
  Counter reserved;        // bytes of segments
  Counter active;          // bytes of blocks that are not free yet
  Counter inactive_split;  // free bytes that cannot be given back, as the rest of their segment is
                           // in use
  Counter segments;        // how many
  Counter device;          // bytes the device gave, in its pages
  int64_t retries = 0;     // how often all cached memory was given back to serve a request
};

// A segment that the device gave or took back, or pages mapped into or unmapped from one.
struct SegmentChange {
  int64_t event = 0;  // index of the event that caused it
  int64_t kind = 0;   // 0 allocated, 1 freed, 2 mapped, 3 unmapped
  int64_t address = 0;
  int64_t bytes = 0;
  int64_t stream = 0;
};
constexpr int64_t kSegmentAllocated = 0, kSegmentFreed = 1, kSegmentMapped = 2,
                  kSegmentUnmapped = 3;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The device's memory: how much there is, and where segments lie. Real addresses are not known
// before a job runs; they matter only where free blocks of the same size lie in several segments.
class Device {
 public:
  explicit Device(int64_t capacity = kUnlimited, bool descending = false)
      : capacity_(capacity), descending_(descending) {}

  // The addresses of the first segments, in the order of their allocation, where they are known.
  void UseAddresses(std::vector<int64_t> addresses) { known_ = std::move(addresses); }

  // In what units it gives memory.
  void SetPage(int64_t bytes) { page_ = bytes; }
  int64_t Pages(int64_t bytes) const { return (bytes + page_ - 1) / page_ * page_; }
  bool Take(int64_t bytes) {
    if (Pages(bytes) > capacity_ - used_) return false;
    used_ += Pages(bytes);
    return true;
  }
  void GiveBack(int64_t bytes) { used_ -= Pages(bytes); }
  int64_t NewAddress(int64_t bytes);

  int64_t used() const { return used_; }
  int64_t capacity() const { return capacity_; }

 private:
  int64_t page_ = 2 << 20;
  int64_t capacity_;
  bool descending_;
  int64_t used_ = 0;
  std::vector<int64_t> known_;
  size_t next_known_ = 0;
  int64_t low_ = int64_t{1} << 40;
  int64_t high_ = int64_t{1} << 60;
};

class Allocator {
 public:
  explicit Allocator(Device device) : device_(std::move(device)) {}
  virtual ~Allocator() = default;

  // False: out of memory; the block does not exist. An event of no bytes makes a block of none.
  virtual bool Allocate(const Event& event) = 0;
  virtual void Free(int64_t block) = 0;
  // The device's own state is no part of most allocators: what was given back is free once it is
  // out of use.
  virtual void RequestFree(int64_t block) { static_cast<void>(block); }
  virtual void CompleteFree(int64_t block) { Free(block); }
  virtual void RecordStream(int64_t block, int64_t stream) {
    static_cast<void>(block), static_cast<void>(stream);
  }
  virtual void Synchronize(int64_t stream) { static_cast<void>(stream); }
  virtual void EmptyCache() {}
  virtual void ReleasePool(int64_t pool) { static_cast<void>(pool); }
  // Of a live block; -1 of one without bytes.
  virtual int64_t AddressOf(int64_t block) const = 0;

  // Returns false if the event is a request that fails. Throws std::invalid_argument for an event
  // that cannot be, such as a free of a block that is not live.
  bool Apply(const Event& event);

  void LogSegments(int64_t event) { event_ = event; }
  const std::vector<SegmentChange>& segment_changes() const { return changes_; }
  Statistics stats;

 protected:
  Device& device() { return device_; }
  // A segment of the device's; its address, or -1 where the device has no room.
  int64_t TakeSegment(int64_t bytes, int64_t stream);
  void GiveBackSegment(int64_t address, int64_t bytes, int64_t stream);
  void CountDevice();
  void Log(int64_t kind, int64_t address, int64_t bytes, int64_t stream) {
    if (event_ >= 0) changes_.push_back({event_, kind, address, bytes, stream});
  }

 private:
  Device device_;
  int64_t event_ = -1;  // Of the event at hand; negative where nobody asks for changes.
  std::vector<SegmentChange> changes_;
};

}  // namespace memc

#endif  // MEMC_ALLOCATORS_ALLOCATOR_H_
