// SPDX-License-Identifier: Apache-2.0
// A search as whoever waits for it sees it: how far it has come, and that it is to end.
#ifndef MEMC_WATCH_H_
#define MEMC_WATCH_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <utility>

namespace memc {

// Thrown by a search that is to end. Nothing of what it found is told.
class Cancelled : public std::exception {
 public:
  const char* what() const noexcept override { return "the search was cancelled"; }
};

// Works on numbers that the waiting thread reads and writes while the search runs, on any number of
// threads. All methods may be called on a watch without numbers, where they do nothing.
class Watch {
 public:
  // Where each number lies.
  enum Slot : int64_t {
    kCancelled,  // Written by who waits: not 0 if the search is to end.
    kDone,       // Work done,
    kTotal,      // of so much at most; 0 where that is not known. In any unit.
    kBest,       // Bytes of the best plan so far; negative if there is none yet.
    kBound,      // Bytes that no plan is below; negative if that is not known.
    kSlots,
  };

  Watch() = default;
  explicit Watch(int64_t* slots) : slots_(slots) {}

  // Throws Cancelled if the search is to end. Cheap enough for each millisecond of a search.
  void Check() const {
    if (slots_ != nullptr && __atomic_load_n(slots_ + kCancelled, __ATOMIC_RELAXED) != 0) {
      throw Cancelled();
    }
  }

  bool exists() const { return slots_ != nullptr; }

  void Expect(int64_t total) const { Set(kTotal, std::max<int64_t>(total, 0)); }
  void Add(int64_t work) const {
    if (slots_ != nullptr) __atomic_fetch_add(slots_ + kDone, work, __ATOMIC_RELAXED);
  }
  void Best(int64_t bytes) const { Set(kBest, bytes); }
  // The same where several threads find plans: the least counts.
  void Offer(int64_t bytes) const {
    if (slots_ == nullptr) return;
    int64_t seen = __atomic_load_n(slots_ + kBest, __ATOMIC_RELAXED);
    while ((seen < 0 || bytes < seen) &&
           !__atomic_compare_exchange_n(slots_ + kBest, &seen, bytes, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
  }
  void Bound(int64_t bytes) const { Set(kBound, bytes); }

 private:
  void Set(Slot slot, int64_t value) const {
    if (slots_ != nullptr) __atomic_store_n(slots_ + slot, value, __ATOMIC_RELAXED);
  }

  int64_t* slots_ = nullptr;
};

// Of a search at falling limits: how far it has come down, in parts of the way.
class Descending {
 public:
  static constexpr int64_t kParts = 1'000;

  Descending(const Watch& watch, int64_t first, int64_t last)
      : watch_(watch),
        first_(std::max(1.0, static_cast<double>(first))),
        way_(std::log(first_ / std::max(1.0, static_cast<double>(last)))) {}
  Descending(const Descending&) = delete;
  Descending& operator=(const Descending&) = delete;
  ~Descending() { watch_.Add(kParts - done_); }

  void At(int64_t limit) {
    watch_.Check();
    const double way = std::log(first_ / std::max(1.0, static_cast<double>(limit)));
    const double part = way_ > 0 ? std::clamp(way / way_, 0.0, 1.0) : 1.0;
    const int64_t done = std::max(done_, static_cast<int64_t>(part * kParts));
    watch_.Add(done - std::exchange(done_, done));
  }

 private:
  const Watch watch_;
  const double first_, way_;  // The way in logarithms: limits fall by a fixed ratio.
  int64_t done_ = 0;
};

}  // namespace memc

#endif  // MEMC_WATCH_H_
