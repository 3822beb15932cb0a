/* SPDX-License-Identifier: Apache-2.0
 * Planned-memory replay: a training step's allocations, watched once, are served from one arena at
 * planned offsets in every later step (Sekiyama et al. 2018, section 4). Plain C, so that another
 * framework's allocator can call it: through libmemc_core's symbols, or compiled into its library
 * (cpp/replay needs nothing but the standard library).
 *
 * One engine serves one device. A step is what lies between begin and end; its requests are
 * compared with a plan, a sequence of slots. The n-th request takes the n-th slot if its bytes and
 * stream are the slot's and nothing that holds the slot's bytes is alive. Whatever differs costs
 * speed or memory, never a byte in use: the request is served natively by the caller, or by a slot
 * whose bytes are checked against all that are in use.
 *
 * Threads: every function may be called from any thread, memc_replay_free and
 * memc_replay_record_stream also while the engine is being destroyed and afterwards. A free takes
 * no lock. The backend is called from the thread of the call that needs it, and must not call the
 * engine, but for memc_replay_free.
 *
 * Functions that return int give 0 or a number of theirs, and -1 for wrong arguments; then
 * memc_replay_error says what was wrong.
 */
#ifndef MEMC_REPLAY_REPLAY_H_
#define MEMC_REPLAY_REPLAY_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEMC_REPLAY_API __attribute__((visibility("default")))

typedef struct memc_replay_engine memc_replay_engine;

/* What the engine needs of a device. Streams and events are the backend's own handles; the engine
 * compares streams for equality. `context` is handed to each function. */
typedef struct {
  void* context;
  /* `bytes` bytes of device memory, aligned to 512; null if there are not as many. */
  void* (*allocate_arena)(void* context, int64_t bytes);
  void (*free_arena)(void* context, void* address, int64_t bytes);
  /* Returns once the device is idle; called once the arena was allocated and before it is freed. */
  void (*synchronize)(void* context);
  /* Records the work given to `stream` so far. `event` is an earlier one of the engine's to be
   * recorded anew, or 0 for a new one. Returns the event, 0 if that failed. */
  uint64_t (*record_event)(void* context, uint64_t stream, uint64_t event);
  /* Work given to `stream` from now on waits for the event, without the host. 0 if done. */
  int (*wait_event)(void* context, uint64_t stream, uint64_t event);
  void (*destroy_event)(void* context, uint64_t event);
} memc_replay_backend;

/* Returns an engine without plans, null if a function of the backend is missing. The backend is
 * copied. */
MEMC_REPLAY_API memc_replay_engine* memc_replay_create(const memc_replay_backend* backend);

/* Ends the engine's service. Blocks in use stay valid: the arena goes back to the backend with the
 * last of them, and the engine's own state is then left in memory on purpose, for frees that may
 * still be under way. Returns 1 if blocks were in use, 0 if all is freed. No function but
 * memc_replay_free and memc_replay_record_stream may be called with it or its tickets after. */
MEMC_REPLAY_API int memc_replay_destroy(memc_replay_engine* engine);

/* The backend is not called any more (before the interpreter's end, when the device may be gone):
 * what it owns is left to the process's end, and all requests are native. */
MEMC_REPLAY_API void memc_replay_abandon(memc_replay_engine* engine);

/* Of the last call of this thread that returned -1. */
MEMC_REPLAY_API const char* memc_replay_error(void);

/* ---- Steps ---- */

/* What a step does. */
enum {
  MEMC_REPLAY_PASS = 0,   /* Everything is native, nothing is recorded: given up, forked, closed. */
  MEMC_REPLAY_WATCH = 1,  /* Everything is native and recorded. */
  MEMC_REPLAY_REPLAY = 2, /* A plan is followed. */
};

/* What memc_replay_end_step has found, as bits. */
enum {
  MEMC_REPLAY_HOT = 1,        /* Same bytes and stream classes as the key's recorded step before. */
  MEMC_REPLAY_WANTS_PLAN = 2, /* A (new) plan of this key would pay: read the log, add a plan. */
  MEMC_REPLAY_ESCAPED = 4,    /* Slots outlived two steps: plan them at offset -1. */
  MEMC_REPLAY_GAVE_UP = 8,    /* The key's steps pass from now on; memc_replay_warning says why. */
};

/* Begins a step of this key in the calling order of the application. Without a plan for the key,
 * the largest plan is tried, which may dominate it (every request at most as large as planned), and
 * otherwise the step is watched. Where there is an arena, what such steps ask for beside a plan is
 * served from bytes of it that no block uses. A step not ended is ended as not completed. Returns
 * what the step does (PASS, WATCH, REPLAY). */
MEMC_REPLAY_API int memc_replay_begin_step(memc_replay_engine* engine, int64_t key);

/* `completed` is 0 if an exception left the step: what it did is then not judged, and its log is
 * dropped. Returns bits as above; 0 outside a step. */
MEMC_REPLAY_API int memc_replay_end_step(memc_replay_engine* engine, int completed);

/* Between them requests are native and the plan's position stays. They nest. */
MEMC_REPLAY_API void memc_replay_interrupt(memc_replay_engine* engine);
MEMC_REPLAY_API void memc_replay_resume(memc_replay_engine* engine);

/* Records steps although a plan is followed, from the next step on; off by default. */
MEMC_REPLAY_API void memc_replay_record_steps(memc_replay_engine* engine, int on);

/* ---- Requests ---- */

typedef struct {
  void* address;   /* In the arena; null: the caller allocates natively. */
  uint64_t ticket; /* Not 0: to be given to memc_replay_free when the block is freed, also when it
                      is native (it is then freed natively, too). */
} memc_replay_block;

/* Serves `bytes` bytes on `stream`. `thread_class` is 0 on the thread that began the step, 1 on
 * others. Returns 1 if served from the arena, 0 if the caller is to allocate. Constant time unless
 * the step deviates from the plan. */
MEMC_REPLAY_API int memc_replay_allocate(memc_replay_engine* engine, int64_t bytes, uint64_t stream,
                                         int thread_class, memc_replay_block* block);

/* Frees a block, from any thread and at any time, without a lock. If it was used on a second stream
 * the backend records events. Each ticket once; 0 is ignored. */
MEMC_REPLAY_API void memc_replay_free(uint64_t ticket);

/* The block is used on `stream` as well: whoever gets its bytes next waits for what that stream was
 * given before the block's free. While the block is alive. */
MEMC_REPLAY_API void memc_replay_record_stream(uint64_t ticket, uint64_t stream);

/* ---- Plans ---- */

enum {
  MEMC_REPLAY_CYCLIC = 1
}; /* Flag of a slot: alive across the step's end, freed in the next. For readers of plans: the
      engine sees by itself what is alive. */

/* One row for each request of a step, in its sequence. */
typedef struct {
  int64_t count;
  const int64_t* bytes;        /* As requested, at least 1. */
  const int64_t* stream_class; /* Streams by their first appearance in the step: 0, 1, ... */
  const int64_t* thread_class;
  const int64_t*
      offset; /* In the arena, a multiple of 512; -1: native (escaping, or not planned). */
  const int64_t* flags;
  int64_t arena_bytes;
  /* Requests at a step's begin that are native where an arena is to be made or to grow and blocks
   * of the step before are alive: by then they are freed, so that they do not lie beside the arena.
   * -1: it is made when the step begins. */
  int64_t arena_from;
} memc_replay_plan;

/* Adds the plan of a key, or replaces it; steps follow it from the next begin on. There are at most
 * 32: the one unused for longest goes. All share one arena, of the largest plan's bytes. The engine
 * finds by itself which slots held a slot's bytes before it. Returns 0, or -1 if an array is
 * wrong. */
MEMC_REPLAY_API int memc_replay_add_plan(memc_replay_engine* engine, int64_t key,
                                         const memc_replay_plan* plan);
MEMC_REPLAY_API int memc_replay_drop_plan(memc_replay_engine* engine, int64_t key);

/* Slots of the key's plan that are declared escaping: at most `room` indices into `slots`. Returns
 * how many there are. */
MEMC_REPLAY_API int64_t memc_replay_escaping(memc_replay_engine* engine, int64_t key,
                                             int64_t* slots, int64_t room);

/* ---- Log of recorded steps ---- */

enum { MEMC_REPLAY_LOGS = 3 }; /* So many completed steps are kept. */

/* A request of a recorded step. Clocks count requests and frees of recorded blocks since the
 * engine was made. */
typedef struct {
  int64_t bytes;
  int64_t stream_class;
  int64_t thread_class;
  int64_t allocated; /* Clock. */
  int64_t freed;     /* Clock; -1 while alive. */
  int64_t free_step; /* Number of steps after its own in which it was freed; -1 while alive. */
  int64_t also_used; /* Bit c: recorded on the stream of class c; bit 62: on one without a class. */
  int64_t slot;      /* That served it; -1 if native. */
} memc_replay_record;

/* Of the `age`-th recorded step before now, 1 for the last one completed, at most `room` records.
 * Returns how many there are; -1 without such a step. `key` and `begin`, if not null, take the
 * step's key and the clock when it began. */
MEMC_REPLAY_API int64_t memc_replay_read_log(memc_replay_engine* engine, int age,
                                             memc_replay_record* records, int64_t room,
                                             int64_t* key, int64_t* begin);

/* ---- Statistics ---- */

/* Why a request was not served by the slot that is planned for it. */
enum {
  MEMC_REPLAY_UNPLANNED = 0,    /* No slot near the position fits: native. */
  MEMC_REPLAY_LARGER = 1,       /* As before, and larger than the slot at the position. */
  MEMC_REPLAY_PAST_END = 2,     /* After the plan's last slot: native. */
  MEMC_REPLAY_BUSY = 3,         /* The slot's bytes are in use: native. */
  MEMC_REPLAY_STREAM = 4,       /* A stream that the plan does not know: native. */
  MEMC_REPLAY_EVENT_FAILED = 5, /* The backend could not record or wait: native. */
  MEMC_REPLAY_NO_ARENA = 6,     /* The arena could not be allocated: native. */
  MEMC_REPLAY_OUT_OF_ORDER = 7, /* Served by a slot ahead of the position, or skipped before. */
  MEMC_REPLAY_SMALLER = 8,      /* Served by a larger slot. */
  MEMC_REPLAY_CAUSES = 9,
};

/* The first request that a cause befell. */
typedef struct {
  int64_t step;    /* From 1 on; 0 if there was none. */
  int64_t request; /* Its number in the step, from 0 on. */
  int64_t slot;    /* The plan's position. */
  int64_t bytes;
  int64_t planned_bytes; /* Of the slot at the position; 0 past the end. */
  int64_t stream;
} memc_replay_cause;

typedef struct {
  int64_t steps;          /* Begun. */
  int64_t replayed;       /* Of which a plan was followed. */
  int64_t clean;          /* Of which every slot was taken in its sequence. */
  int64_t requests;       /* In replayed steps, without interrupted ones. */
  int64_t hits;           /* Served from the arena. */
  int64_t planned_native; /* By slots at offset -1. */
  int64_t interrupted;    /* Requests while interrupted. */
  int64_t checked;        /* Requests compared with all bytes in use. */
  int64_t from_gaps;      /* Served from bytes of the arena that no block used, without a slot. */
  int64_t waits;          /* Of a stream for an event. */
  int64_t plans;          /* Now. */
  int64_t replans;        /* Plans that took the place of another. */
  int64_t evicted;        /* Plans that went for want of room. */
  int64_t arena_bytes;    /* Now, without arenas that only await their last block. */
  int64_t retired_bytes;  /* Of those. */
  int64_t live_slots;     /* Now. */
  int64_t live_bytes;     /* Of those, as requested. */
  int64_t counts[MEMC_REPLAY_CAUSES];
  memc_replay_cause first[MEMC_REPLAY_CAUSES];
} memc_replay_stats;

MEMC_REPLAY_API void memc_replay_get_stats(memc_replay_engine* engine, memc_replay_stats* stats);

/* One line on what was given up and which request changed first; empty if nothing was. */
MEMC_REPLAY_API int64_t memc_replay_warning(memc_replay_engine* engine, char* text, int64_t room);

/* The arena that holds `address`. Returns 1 and its base and bytes, 0 if none does. */
MEMC_REPLAY_API int memc_replay_find_arena(memc_replay_engine* engine, const void* address,
                                           void** base, int64_t* bytes);

/* A block in use, for a snapshot. */
typedef struct {
  void* address;
  int64_t bytes;
  uint64_t stream;
} memc_replay_live;

/* At most `room` blocks in use. Returns how many there are. */
MEMC_REPLAY_API int64_t memc_replay_live_blocks(memc_replay_engine* engine,
                                                memc_replay_live* blocks, int64_t room);

/* Gives the arena back as soon as no block is in it, and lets steps pass until a plan is added
 * (after a native allocation has failed). Returns the bytes given back now. */
MEMC_REPLAY_API int64_t memc_replay_release_arena(memc_replay_engine* engine);

#ifdef __cplusplus
}
#endif

#endif /* MEMC_REPLAY_REPLAY_H_ */
