// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_REHEARSAL_HOST_DEVICE_H_
#define MEMC_REPLAY_REHEARSAL_HOST_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "replay/interval_owners.h"
#include "replay/replay.h"

namespace memc::replay {

// A device without a device, to rehearse replay on: arenas are host memory, and streams are
// clocks. It finds what a run on a device would show by chance only:
//
// - an overlap: a block is given bytes of one that is alive;
// - an arena freed in which blocks are alive, or that streams may be at;
// - a race: work of a block reaches bytes at which earlier work of another block may still be.
//   Streams complete as late as their waits allow, so work is over for a stream only if it was
//   given to this stream before, or to one that this stream has waited for since (vector clocks,
//   Mattern 1988).
class HostDevice {
 public:
  // `capacity` bytes of arenas in all. If `fills`, they are memory that is written to, and blocks
  // are filled with their number; otherwise addresses alone.
  HostDevice(int64_t capacity, bool fills) : capacity_(capacity), fills_(fills) {}
  ~HostDevice();
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  memc_replay_backend Backend();

  // A block begins or ends to be alive. It has a number of its own among those alive.
  void Begin(int64_t block, char* address, int64_t bytes);
  void End(int64_t block);
  // Work of the block is given to the stream.
  void Work(int64_t block, uint64_t stream);
  // What is given to `stream` from now on waits for what `before` was given.
  void Follow(uint64_t stream, uint64_t before);

  void FailEvents(bool fail);
  void SetCapacity(int64_t bytes);

  int64_t wrong() const;
  // Of the first overlap, race or changed byte; empty if there was none.
  std::string first_wrong() const;
  int64_t arena_bytes() const;
  int64_t events() const;

 private:
  using Clocks = std::vector<int64_t>;  // By stream: how much of its work is over.

  struct Block {
    char* address = nullptr;
    int64_t bytes = 0;
  };
  struct Access {
    int64_t block = -1;
    int64_t serial = 0;         // Of its life.
    std::vector<int64_t> last;  // By stream: the number of its last work; 0 for none.
  };

  size_t IndexOf(uint64_t stream);
  void Wrong(const std::string& what);
  void Join(Clocks* into, const Clocks& from) const;
  void CheckRaces(const Block& block, int64_t number, int64_t serial, size_t stream);

  void* Allocate(int64_t bytes);
  void FreeArena(void* address, int64_t bytes);
  void Synchronize();
  uint64_t Record(uint64_t stream, uint64_t event);
  int Wait(uint64_t stream, uint64_t event);

  int64_t capacity_;
  const bool fills_;
  mutable std::mutex mutex_;
  bool fails_ = false;
  int64_t arena_bytes_ = 0;
  struct Memory {
    int64_t bytes;
    bool worked;  // Since the device was idle.
  };
  std::map<char*, Memory> arenas_;

  std::unordered_map<uint64_t, size_t> indices_;
  std::vector<Clocks> clocks_;  // Of streams, by index.
  std::unordered_map<uint64_t, Clocks> events_;
  uint64_t next_event_ = 1;

  struct Life {
    Block block;
    int64_t serial = 0;
  };
  std::unordered_map<int64_t, Life> alive_;
  std::map<char*, std::pair<char*, int64_t>> alive_at_;  // Begin: end and number.
  IntervalOwners<int64_t> shadow_;                       // Of addresses: serials of last accesses.
  std::unordered_map<int64_t, Access> accesses_;
  int64_t next_serial_ = 1;

  int64_t wrong_ = 0;
  std::string first_wrong_;
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_REHEARSAL_HOST_DEVICE_H_
