// SPDX-License-Identifier: Apache-2.0
// Events as the watchdog of PyTorch's NCCL groups sees them. It looks every 100 ms; until it has
// seen that a collective is done, and the next one begins, PyTorch holds that collective's tensors.
// On an H200 the first buckets of DDP were so held through the second step, in which new ones
// replace them. Steps take another time here, so they are counted instead.
#include <cuda_runtime_api.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include "export.h"

namespace phantom {

namespace {

using Clock = std::chrono::steady_clock;

// Of an optimizer, that have ended; negative where none are waited for.
std::atomic<int64_t> steps{-1};
constexpr int64_t kHeld = 2;                      // steps
constexpr auto kMost = std::chrono::seconds(20);  // A group that is destroyed waits for its events.

struct Recorded {
  int64_t step;
  Clock::time_point at;
};
struct Events {
  std::mutex mutex;
  std::map<cudaEvent_t, Recorded> recorded;
};

Events& All() {
  static auto* const events = new Events;
  return *events;
}

cudaError_t Record(cudaEvent_t event) {
  Events& events = All();
  const std::lock_guard<std::mutex> lock(events.mutex);
  events.recorded[event] = {steps, Clock::now()};
  return cudaSuccess;
}

bool InWatchdog() {
  char name[16] = {};
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         std::strcmp(name, "pt_nccl_watchdg") == 0;
}

}  // namespace

}  // namespace phantom

using namespace phantom;

// For the process that runs the script: so many steps have ended.
MEMC_PHANTOM_EXPORT void memc_phantom_count_steps(int64_t ended) { steps = ended; }

MEMC_PHANTOM_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return Record(event);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t,
                                                         unsigned) {
  return Record(event);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Events& events = All();
  const std::lock_guard<std::mutex> lock(events.mutex);
  events.recorded.erase(event);
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (steps < 0 || !InWatchdog()) return cudaSuccess;
  Events& events = All();
  const std::lock_guard<std::mutex> lock(events.mutex);
  const auto found = events.recorded.find(event);
  if (found == events.recorded.end()) return cudaSuccess;
  const bool held = steps < found->second.step + kHeld && Clock::now() < found->second.at + kMost;
  return held ? cudaErrorNotReady : cudaSuccess;
}
