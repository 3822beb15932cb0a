// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_COPY_LANES_H_
#define MEMC_COPY_LANES_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace memc {

// When a copy runs, between its start and the wait for it. All but the first are for tests: a
// program whose copies are right gives the same bits with each.
struct CopyTimes {
  enum class Kind { kThread, kAtStart, kAtDone, kRandom };
  Kind kind = Kind::kThread;
  uint64_t seed = 0;

  // Of `thread`, `at-start`, `at-done` or `random:SEED`; null and empty are `thread`. Throws
  // std::invalid_argument for anything else.
  static CopyTimes Parse(const char* text);
};

// Copies that run beside the thread that asks for them: a thread for each lane does its copies one
// after another, in the sequence in which they were started.
class CopyLanes {
 public:
  // A copy: the number of its lane, and its number on that lane.
  struct Ticket {
    uint32_t lane;
    uint64_t number;
  };

  // Those of this process. A forked child has its own.
  static CopyLanes& OfThisProcess();

  CopyLanes() = default;
  ~CopyLanes();
  CopyLanes(const CopyLanes&) = delete;
  CopyLanes& operator=(const CopyLanes&) = delete;

  // Begins to copy `bytes` bytes, which do not overlap. Neither side may go away before it is over.
  Ticket Start(const void* source, void* destination, size_t bytes, const std::string& lane,
               CopyTimes times);

  // Returns once the copy is over, and with it the earlier ones of its lane.
  void Wait(Ticket ticket);

  // Returns once all copies that were started are over.
  void Drain();

 private:
  struct Job {
    const char* source = nullptr;
    char* destination = nullptr;
    size_t bytes = 0;
    bool waits = false;  // For the thread that waits for it, which then runs it.
    uint64_t seed = 0;   // Of the pieces and pauses in which it runs; 0 for none.
  };

  struct Lane {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Job> ring;  // Of the jobs started and not taken: number n is at n % size.
    uint64_t started = 0;
    uint64_t taken = 0;
    uint64_t over = 0;
    bool has_thread = false;
    bool ends = false;
  };

  Lane& Find(const std::string& name, uint32_t* number);
  Lane& At(uint32_t number);
  static void Push(Lane* lane, const Job& job);
  static bool RunNext(Lane* lane, std::unique_lock<std::mutex>* lock);
  static void RunUpTo(Lane* lane, uint64_t number, std::unique_lock<std::mutex>* lock);
  static void Serve(const std::shared_ptr<Lane>& lane);

  std::mutex mutex_;
  std::map<std::string, uint32_t> numbers_;
  std::vector<std::shared_ptr<Lane>> lanes_;
};

}  // namespace memc

#endif  // MEMC_COPY_LANES_H_
