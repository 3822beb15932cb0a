// SPDX-License-Identifier: Apache-2.0
#include "copies/copy_lanes.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace memc {

namespace {

// Never destroyed: threads may serve its lanes until the process ends.
std::atomic<CopyLanes*> lanes_of_process{nullptr};

// In the child, where no thread serves the parent's lanes.
void AfterFork() { lanes_of_process.store(nullptr); }

const int watched = pthread_atfork(nullptr, nullptr, AfterFork);

// In pieces, with pauses before them, as `seed` has it.
void CopyInPieces(const char* source, char* destination, size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < bytes;) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    const size_t piece = std::min<size_t>(bytes - at, 1 + random() % bytes);
    std::memcpy(destination + at, source + at, piece);
    at += piece;
  }
}

}  // namespace

CopyTimes CopyTimes::Parse(const char* text) {
  const std::string given = text == nullptr ? "" : text;
  if (given.empty() || given == "thread") return {Kind::kThread, 0};
  if (given == "at-start") return {Kind::kAtStart, 0};
  if (given == "at-done") return {Kind::kAtDone, 0};
  const std::string random = "random:";
  const bool digits = given.size() > random.size() && given.size() < random.size() + 19 &&
                      given.find_first_not_of("0123456789", random.size()) == std::string::npos;
  if (given.compare(0, random.size(), random) == 0 && digits) {
    return {Kind::kRandom, std::stoull(given.substr(random.size()))};
  }
  throw std::invalid_argument(
      "MEMC_COPIES: expected thread, at-start, at-done or random:SEED, got " + given);
}

CopyLanes& CopyLanes::OfThisProcess() {
  CopyLanes* found = lanes_of_process.load();
  if (found == nullptr) {
    auto made = std::make_unique<CopyLanes>();
    if (lanes_of_process.compare_exchange_strong(found, made.get())) found = made.release();
  }
  return *found;
}

CopyLanes::~CopyLanes() {
  Drain();
  for (const auto& lane : lanes_) {
    const std::lock_guard<std::mutex> lock(lane->mutex);
    lane->ends = true;
    lane->changed.notify_all();
  }
}

CopyLanes::Ticket CopyLanes::Start(const void* source, void* destination, size_t bytes,
                                   const std::string& name, CopyTimes times) {
  uint32_t number = 0;
  Lane& lane = Find(name, &number);
  Job job{static_cast<const char*>(source), static_cast<char*>(destination), bytes};
  std::unique_lock<std::mutex> lock(lane.mutex);
  bool now = times.kind == CopyTimes::Kind::kAtStart;
  job.waits = times.kind == CopyTimes::Kind::kAtDone;
  if (times.kind == CopyTimes::Kind::kRandom) {
    std::mt19937_64 random(times.seed * 1'000'003 + number * 7919 + lane.started);
    const uint64_t choice = random() % 4;
    now = choice == 0;
    job.waits = choice == 1;
    job.seed = random() | 1;
  }
  job.waits = job.waits || !lane.has_thread;  // Where there can be no thread.
  Push(&lane, job);
  const Ticket ticket{number, lane.started};
  if (now) {
    RunUpTo(&lane, ticket.number, &lock);
  } else {
    lane.changed.notify_all();
  }
  return ticket;
}

void CopyLanes::Wait(Ticket ticket) {
  Lane& lane = At(ticket.lane);
  std::unique_lock<std::mutex> lock(lane.mutex);
  while (lane.over < ticket.number) {
    const bool waits = lane.taken == lane.over && lane.taken < lane.started &&
                       lane.ring[lane.taken % lane.ring.size()].waits;
    if (waits) {
      RunNext(&lane, &lock);
    } else {
      lane.changed.wait(lock);
    }
  }
}

void CopyLanes::Drain() {
  uint32_t count = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    count = static_cast<uint32_t>(lanes_.size());
  }
  for (uint32_t number = 0; number < count; ++number) {
    Lane& lane = At(number);
    std::unique_lock<std::mutex> lock(lane.mutex);
    RunUpTo(&lane, lane.started, &lock);
  }
}

CopyLanes::Lane& CopyLanes::Find(const std::string& name, uint32_t* number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [found, is_new] = numbers_.emplace(name, static_cast<uint32_t>(lanes_.size()));
  *number = found->second;
  if (is_new) {
    lanes_.push_back(std::make_shared<Lane>());
    try {
      lanes_.back()->has_thread = true;
      std::thread(Serve, lanes_.back()).detach();
    } catch (const std::system_error&) {
      lanes_.back()->has_thread = false;
    }
  }
  return *lanes_[*number];
}

CopyLanes::Lane& CopyLanes::At(uint32_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return *lanes_.at(number);
}

void CopyLanes::Push(Lane* lane, const Job& job) {
  const uint64_t size = lane->ring.size();
  if (lane->started - lane->taken == size) {
    std::vector<Job> larger(std::max<uint64_t>(16, 2 * size));
    for (uint64_t n = lane->taken; n < lane->started; ++n) {
      larger[n % larger.size()] = lane->ring[n % size];
    }
    lane->ring = std::move(larger);
  }
  lane->ring[lane->started % lane->ring.size()] = job;
  ++lane->started;
}

// The next copy of the lane, unless one is running. `lock` is of the lane's mutex, and free while
// bytes move.
bool CopyLanes::RunNext(Lane* lane, std::unique_lock<std::mutex>* lock) {
  if (lane->taken != lane->over || lane->taken == lane->started) return false;
  const Job job = lane->ring[lane->taken % lane->ring.size()];
  ++lane->taken;
  lock->unlock();
  if (job.seed == 0) {
    std::memcpy(job.destination, job.source, job.bytes);
  } else {
    CopyInPieces(job.source, job.destination, job.bytes, job.seed);
  }
  lock->lock();
  ++lane->over;
  lane->changed.notify_all();
  return true;
}

void CopyLanes::RunUpTo(Lane* lane, uint64_t number, std::unique_lock<std::mutex>* lock) {
  while (lane->over < number) {
    if (!RunNext(lane, lock)) lane->changed.wait(*lock);
  }
}

void CopyLanes::Serve(const std::shared_ptr<Lane>& lane) {
  std::unique_lock<std::mutex> lock(lane->mutex);
  while (!lane->ends) {
    const bool has_work = lane->taken == lane->over && lane->taken < lane->started &&
                          !lane->ring[lane->taken % lane->ring.size()].waits;
    if (!has_work || !RunNext(lane.get(), &lock)) lane->changed.wait(lock);
  }
}

}  // namespace memc
