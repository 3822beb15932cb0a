// SPDX-License-Identifier: Apache-2.0
// Copies between a device and pinned memory of the host, beside the kernels of a run.
#ifndef MEMC_CUDA_COPIES_H_
#define MEMC_CUDA_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cuda/cuda_api.h"
#include "cuda/cuda_handles.h"
#include "cuda/pinned_memory.h"

namespace memc::cuda {

// When a copy runs, between its start and the wait for it. A program whose copies are right gives
// the same bits with each.
enum class When {
  kBeside,   // As soon as its lane has come to it, beside the kernels.
  kAtStart,  // The kernels after its start wait for it.
  kAtDone,   // After the kernels before the wait for it.
};

// A copy as a program starts it.
struct HostCopy {
  size_t slot = 0;   // Copies that are under way at once have slots of their own.
  size_t lane = 0;   // Copies of a lane run one after another, in the sequence of their starts.
  bool out = false;  // From the device to the host.
  uint64_t device_address = 0;
  size_t host_offset = 0;  // In the slab.
  size_t bytes = 0;
  bool forked = false;  // There is no kernel, and no wait, since the start before it in its lane.
  When when = When::kBeside;
};

// The slab of pinned memory of a session, a stream for each lane, and the events by which kernels
// and copies wait for each other: all made at once, so that runs make nothing. Runs follow one
// another, eagerly or in a capture: the lanes' streams then become part of it, and are joined by
// the waits for their copies.
class HostCopies {
 public:
  // Throws PinError, and std::runtime_error for anything else that fails.
  HostCopies(int device, size_t bytes, size_t lanes, size_t slots);
  // Returns when nothing uses the slab any more.
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  int device() const { return device_; }
  const PinnedBytes& slab() const { return *slab_; }

  // Enqueues a copy, which begins after what is on the stream `kernels`. Throws
  // std::invalid_argument for one outside the slab, std::runtime_error for the driver's errors.
  void Start(const HostCopy& copy, Stream kernels);

  // Has what is enqueued on `kernels` from now on wait for the copy of a slot. Throws likewise.
  void Done(size_t slot, Stream kernels);

  // After an error in a run: no copy is under way when it returns or, in a capture, none is left
  // that the stream `kernels` does not wait for.
  void Drain(Stream kernels);

  // After a run that is not a part of a caller's graph: what is on `kernels` uses the slab.
  void Ran(Stream kernels);

  // A caller's graph has a run as a part, and uses the slab whenever it is launched.
  void Recorded() { recorded_ = true; }

 private:
  struct Lane {
    Owned<StreamObject> stream;
    Owned<Event> fork;             // What is on the kernels' stream before a copy; also for Drain.
    uint64_t started = 0;          // Copies.
    uint64_t joined = 0;           // Those that the kernels' stream waits for.
    std::deque<HostCopy> waiting;  // The last ones that were started, for their waits to enqueue.
  };

  struct Slot {
    Owned<Event> over;
    size_t lane = 0;
    uint64_t number = 0;  // Of the last copy in it, counted from 1 in its lane.
  };

  void Enqueue(const HostCopy& copy, Stream kernels);
  void EnqueueWaiting(Lane* lane, uint64_t number, Stream kernels);
  static bool IsCaptured(Stream stream);

  int device_;
  DriverContext* context_;
  std::unique_ptr<PinnedBytes> slab_;
  std::vector<Lane> lanes_;
  std::vector<Slot> slots_;
  Owned<Event> used_;
  bool ran_ = false;
  bool recorded_ = false;
};

}  // namespace memc::cuda

#endif  // MEMC_CUDA_COPIES_H_
