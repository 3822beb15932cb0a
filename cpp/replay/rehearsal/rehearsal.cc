// SPDX-License-Identifier: Apache-2.0
#include "replay/rehearsal/rehearsal.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace memc::replay {

Rehearsal::Rehearsal(int64_t capacity, bool fills) : device_(capacity, fills) {
  const memc_replay_backend backend = device_.Backend();
  engine_ = memc_replay_create(&backend);
  thread_ = std::thread([this] { Serve(); });
}

Rehearsal::~Rehearsal() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const auto& [number, block] : blocks_) {
    if (block.alive) Free(number, block);
  }
  memc_replay_destroy(engine_);
}

void Rehearsal::Serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !to_free_.empty(); });
    if (to_free_.empty()) return;
    std::vector<std::pair<int64_t, Block>> mine;
    mine.swap(to_free_);
    busy_ = true;
    lock.unlock();
    for (const auto& [number, block] : mine) Free(number, block);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Rehearsal::Join() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return to_free_.empty() && !busy_; });
}

void Rehearsal::Free(int64_t number, const Block& block) {
  if (block.served) {
    device_.Work(number, block.stream);
    device_.End(number);
  }
  memc_replay_free(block.ticket);
}

Rehearsal::Block Rehearsal::Taken(int64_t number) {
  Block& block = blocks_[number];
  if (!block.alive) {
    throw std::invalid_argument("block " + std::to_string(number) + " is not alive");
  }
  block.alive = false;
  return block;
}

int64_t Rehearsal::Allocate(int64_t number, int64_t bytes, uint64_t stream, int thread_class) {
  Block& block = blocks_[number];
  if (block.alive) throw std::invalid_argument("block " + std::to_string(number) + " is alive");
  memc_replay_block found;
  const bool served = memc_replay_allocate(engine_, bytes, stream, thread_class, &found) != 0;
  block = {found.ticket, stream, served, true};
  if (!served) return -1;
  char* const address = static_cast<char*>(found.address);
  device_.Begin(number, address, bytes);
  device_.Work(number, stream);
  void* base = nullptr;
  int64_t arena_bytes = 0;
  if (memc_replay_find_arena(engine_, address, &base, &arena_bytes) == 0) return -1;
  return address - static_cast<char*>(base);
}

int64_t Rehearsal::PlayOne(const Events& events, int64_t i) {
  const int64_t number = events.blocks[i];
  const uint64_t stream = static_cast<uint64_t>(events.streams[i]);
  switch (events.kinds[i]) {
    case kBeginStep:
      return memc_replay_begin_step(engine_, number);
    case kEndStep:
      return memc_replay_end_step(engine_, number != 0);
    case kAllocate:
      return Allocate(number, events.bytes[i], stream, static_cast<int>(events.threads[i]));
    case kFree:
      Free(number, Taken(number));
      return 0;
    case kFreeElsewhere: {
      const std::lock_guard<std::mutex> lock(mutex_);
      to_free_.emplace_back(number, Taken(number));
      changed_.notify_all();
      return 0;
    }
    case kUse: {
      const Block& block = blocks_[number];
      if (!block.alive) throw std::invalid_argument("a use of a block that is not alive");
      if (block.served) {
        device_.Follow(stream, block.stream);
        device_.Work(number, stream);
      }
      memc_replay_record_stream(block.ticket, stream);
      return 0;
    }
    case kInterrupt:
      memc_replay_interrupt(engine_);
      return 0;
    case kResume:
      memc_replay_resume(engine_);
      return 0;
    case kJoin:
      Join();
      return 0;
    case kReleaseArena:
      return memc_replay_release_arena(engine_);
    default:
      throw std::invalid_argument("event " + std::to_string(i) + ": no kind " +
                                  std::to_string(events.kinds[i]));
  }
}

void Rehearsal::Play(const Events& events, int64_t* results) {
  for (int64_t i = 0; i < events.count; ++i) results[i] = PlayOne(events, i);
}

double Rehearsal::Time(const Events& events, int64_t key, int64_t repeats) {
  using Clock = std::chrono::steady_clock;
  int64_t blocks = 0;
  for (int64_t i = 0; i < events.count; ++i) {
    const bool right = events.kinds[i] == kAllocate || events.kinds[i] == kFree;
    if (!right || events.blocks[i] < 0) throw std::invalid_argument("expected allocate and free");
    blocks = std::max(blocks, events.blocks[i] + 1);
  }
  std::vector<uint64_t> tickets(static_cast<size_t>(blocks));
  double least = std::numeric_limits<double>::infinity();
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    memc_replay_begin_step(engine_, key);
    const auto begin = Clock::now();
    for (int64_t i = 0; i < events.count; ++i) {
      uint64_t& ticket = tickets[static_cast<size_t>(events.blocks[i])];
      if (events.kinds[i] == kFree) {
        memc_replay_free(ticket);
        continue;
      }
      memc_replay_block found;
      memc_replay_allocate(engine_, events.bytes[i], static_cast<uint64_t>(events.streams[i]), 0,
                           &found);
      ticket = found.ticket;
    }
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    memc_replay_end_step(engine_, 1);
    least = std::min(least, took.count() / static_cast<double>(events.count));
  }
  return least;
}

}  // namespace memc::replay
