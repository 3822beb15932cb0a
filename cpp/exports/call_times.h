// SPDX-License-Identifier: Apache-2.0
// When each call of a run began and ended.
#ifndef MEMC_CALL_TIMES_H_
#define MEMC_CALL_TIMES_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "cuda/cuda_handles.h"

namespace memc {

// Moments of a run, in the order of Mark().
class Clock {
 public:
  virtual ~Clock() = default;
  virtual void Mark() = 0;
  virtual size_t Marks() const = 0;
  // Seconds from the first moment to moment `index`.
  virtual double Seconds(size_t index) const = 0;
};

// The host's time: of calls that return when their work is done.
class HostClock : public Clock {
 public:
  size_t Marks() const override { return moments_.size(); }
  void Mark() override { moments_.push_back(std::chrono::steady_clock::now()); }
  double Seconds(size_t index) const override {
    return std::chrono::duration<double>(moments_.at(index) - moments_.front()).count();
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> moments_;
};

// The device's time, by events between the calls' work on the stream. Marks made in a capture are
// part of the graph, whose every launch sets them anew.
class EventClock : public Clock {
 public:
  explicit EventClock(int device) : device_(device) {}

  void Mark() override;
  size_t Marks() const override { return events_.size(); }
  // Waits for the event.
  double Seconds(size_t index) const override;

 private:
  int device_;
  std::vector<cuda::Owned<cuda::Event>> events_;
};

}  // namespace memc

#endif  // MEMC_CALL_TIMES_H_
