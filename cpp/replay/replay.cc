// SPDX-License-Identifier: Apache-2.0
#include "replay/replay.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "replay/engine.h"

using memc::replay::Engine;

namespace {

thread_local std::string last_error;

Engine* Of(memc_replay_engine* engine) { return reinterpret_cast<Engine*>(engine); }

// Engines that ended while blocks were alive: frees may still come.
void Leave(Engine* engine) {
  static std::mutex mutex;
  static auto* const left = new std::vector<Engine*>();
  const std::lock_guard<std::mutex> lock(mutex);
  left->push_back(engine);
}

}  // namespace

memc_replay_engine* memc_replay_create(const memc_replay_backend* backend) {
  if (backend == nullptr || backend->allocate_arena == nullptr || backend->free_arena == nullptr ||
      backend->synchronize == nullptr || backend->record_event == nullptr ||
      backend->wait_event == nullptr || backend->destroy_event == nullptr) {
    last_error = "memc_replay_create: expected a backend with all six functions";
    return nullptr;
  }
  return reinterpret_cast<memc_replay_engine*>(new Engine(*backend));
}

int memc_replay_destroy(memc_replay_engine* engine) {
  if (Of(engine)->Close()) {
    Leave(Of(engine));
    return 1;
  }
  delete Of(engine);
  return 0;
}

void memc_replay_abandon(memc_replay_engine* engine) { Of(engine)->Abandon(); }

const char* memc_replay_error(void) { return last_error.c_str(); }

int memc_replay_begin_step(memc_replay_engine* engine, int64_t key) {
  return Of(engine)->BeginStep(key);
}

int memc_replay_end_step(memc_replay_engine* engine, int completed) {
  return Of(engine)->EndStep(completed != 0);
}

void memc_replay_interrupt(memc_replay_engine* engine) { Of(engine)->Interrupt(); }

void memc_replay_resume(memc_replay_engine* engine) { Of(engine)->Resume(); }

void memc_replay_record_steps(memc_replay_engine* engine, int on) {
  Of(engine)->RecordSteps(on != 0);
}

int memc_replay_allocate(memc_replay_engine* engine, int64_t bytes, uint64_t stream,
                         int thread_class, memc_replay_block* block) {
  return Of(engine)->Allocate(bytes, stream, thread_class, block) ? 1 : 0;
}

void memc_replay_free(uint64_t ticket) { Engine::Free(ticket); }

void memc_replay_record_stream(uint64_t ticket, uint64_t stream) {
  Engine::RecordStream(ticket, stream);
}

int memc_replay_add_plan(memc_replay_engine* engine, int64_t key, const memc_replay_plan* plan) {
  try {
    Of(engine)->AddPlan(key, *plan);
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return -1;
  }
}

int memc_replay_drop_plan(memc_replay_engine* engine, int64_t key) {
  if (Of(engine)->DropPlan(key)) return 0;
  last_error = "memc_replay_drop_plan: no plan of key " + std::to_string(key);
  return -1;
}

int64_t memc_replay_escaping(memc_replay_engine* engine, int64_t key, int64_t* slots,
                             int64_t room) {
  return Of(engine)->Escaping(key, slots, room);
}

int64_t memc_replay_read_log(memc_replay_engine* engine, int age, memc_replay_record* records,
                             int64_t room, int64_t* key, int64_t* begin) {
  const int64_t count = Of(engine)->ReadLog(age, records, room, key, begin);
  if (count < 0) last_error = "memc_replay_read_log: no step of age " + std::to_string(age);
  return count;
}

void memc_replay_get_stats(memc_replay_engine* engine, memc_replay_stats* stats) {
  Of(engine)->Stats(stats);
}

int64_t memc_replay_warning(memc_replay_engine* engine, char* text, int64_t room) {
  const std::string warning = Of(engine)->Warning();
  const size_t shown = room > 0 ? std::min(warning.size(), static_cast<size_t>(room) - 1) : 0;
  if (room > 0) {
    std::memcpy(text, warning.data(), shown);
    text[shown] = '\0';
  }
  return static_cast<int64_t>(warning.size());
}

int memc_replay_find_arena(memc_replay_engine* engine, const void* address, void** base,
                           int64_t* bytes) {
  return Of(engine)->FindArena(address, base, bytes) ? 1 : 0;
}

int64_t memc_replay_live_blocks(memc_replay_engine* engine, memc_replay_live* blocks,
                                int64_t room) {
  return Of(engine)->LiveBlocks(blocks, room);
}

int64_t memc_replay_release_arena(memc_replay_engine* engine) { return Of(engine)->ReleaseArena(); }
