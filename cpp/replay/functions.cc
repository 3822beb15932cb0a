// SPDX-License-Identifier: Apache-2.0
#include "replay/functions.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace {

constexpr unsigned kWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING.

struct Block {
  uint64_t ticket;
  bool native;
};

struct Explained {
  void* type = nullptr;
  void* error = nullptr;
};

thread_local Explained explained;

void* PointerOf(uint64_t handle) { return reinterpret_cast<void*>(handle); }

}  // namespace

struct memc_functions {
  memc_functions_host host{};
  std::atomic<memc_replay_engine*> engine{nullptr};
  std::atomic<int> asking{0};  // Threads that are in the engine.
  std::atomic<bool> paused{false};
  std::atomic<bool> abandoned{false};
  std::atomic<pthread_t> leader{};
  std::mutex mutex;  // Of the blocks in use.
  std::unordered_map<void*, Block> blocks;
};

namespace {

memc_functions* Of(void* functions) { return static_cast<memc_functions*>(functions); }

void* AllocateArena(void* context, int64_t bytes) {
  return Of(context)->host.allocate_arena(context, bytes);
}

void FreeArena(void* context, void* address, int64_t bytes) {
  Of(context)->host.free_arena(context, address, bytes);
}

void Synchronize(void* context) { Of(context)->host.synchronize(context); }

uint64_t RecordEvent(void* context, uint64_t stream, uint64_t event) {
  const memc_functions_host& host = Of(context)->host;
  void* recorded = PointerOf(event);
  if (event == 0 && host.create_event(&recorded, kWithoutTiming) != 0) return 0;
  if (host.record(recorded, PointerOf(stream)) == 0) return reinterpret_cast<uint64_t>(recorded);
  if (event == 0) host.destroy_event(recorded);
  return 0;
}

int WaitEvent(void* context, uint64_t stream, uint64_t event) {
  return Of(context)->host.wait(PointerOf(stream), PointerOf(event), 0);
}

void DestroyEvent(void* context, uint64_t event) {
  Of(context)->host.destroy_event(PointerOf(event));
}

// Whether the engine gave a block; `block` may have a ticket otherwise, too.
bool Ask(memc_functions* of, int64_t bytes, memc_replay_block* block) {
  of->asking.fetch_add(1);
  memc_replay_engine* const engine = of->paused ? nullptr : of->engine.load();
  bool served = false;
  if (engine != nullptr) {
    const int other = pthread_equal(of->leader, pthread_self()) ? 0 : 1;
    const auto stream = static_cast<uint64_t>(of->host.current_stream());
    served = memc_replay_allocate(engine, bytes, stream, other, block) == 1;
  }
  of->asking.fetch_sub(1);
  return served;
}

}  // namespace

extern "C" {

memc_functions* memc_functions_create(const memc_functions_host* host) {
  const bool all = host->current_stream && host->allocate && host->free && host->allocate_arena &&
                   host->free_arena && host->synchronize && host->create_event && host->record &&
                   host->wait && host->destroy_event && host->raise;
  if (!all) return nullptr;
  auto* const made = new memc_functions;
  made->host = *host;
  const memc_replay_backend backend{made,        AllocateArena, FreeArena,   Synchronize,
                                    RecordEvent, WaitEvent,     DestroyEvent};
  made->engine = memc_replay_create(&backend);
  return made;
}

memc_replay_engine* memc_functions_engine(memc_functions* functions) { return functions->engine; }

void* memc_functions_allocate(void* functions, size_t bytes, int device) {
  memc_functions* const of = Of(functions);
  memc_replay_block block{};
  const auto asked = static_cast<int64_t>(bytes);
  const bool served = device == of->host.device && Ask(of, asked, &block);
  void* const address = served ? block.address : of->host.allocate(asked);
  if (address == nullptr) {
    memc_replay_free(block.ticket);
    of->host.raise(explained.type, explained.error);
    return PointerOf(~uint64_t{0});
  }
  const std::lock_guard<std::mutex> lock(of->mutex);
  of->blocks[address] = {block.ticket, !served};
  return address;
}

void memc_functions_free(void* functions, void* address, int) {
  memc_functions* const of = Of(functions);
  Block block{};
  {
    const std::lock_guard<std::mutex> lock(of->mutex);
    const auto found = of->blocks.find(address);
    if (found == of->blocks.end()) return;
    block = found->second;
    of->blocks.erase(found);
  }
  if (of->abandoned) return;
  memc_replay_free(block.ticket);
  if (block.native) of->host.free(address);
}

void memc_functions_lead(memc_functions* functions) { functions->leader = pthread_self(); }

void memc_functions_pause(memc_functions* functions, int on) {
  functions->paused = on != 0;
  while (on != 0 && functions->asking != 0) std::this_thread::yield();
}

void memc_functions_explain(void* type, void* error) { explained = {type, error}; }

void memc_functions_close(memc_functions* functions) {
  memc_functions_pause(functions, 1);
  memc_replay_engine* const engine = functions->engine.exchange(nullptr);
  if (engine != nullptr) memc_replay_destroy(engine);
}

void memc_functions_abandon(memc_functions* functions) {
  functions->abandoned = true;
  memc_replay_engine* const engine = functions->engine;
  if (engine != nullptr) memc_replay_abandon(engine);
}

int64_t memc_functions_live(memc_functions* functions) {
  const std::lock_guard<std::mutex> lock(functions->mutex);
  return static_cast<int64_t>(functions->blocks.size());
}

}  // extern "C"
