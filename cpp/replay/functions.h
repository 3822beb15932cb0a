/* SPDX-License-Identifier: Apache-2.0
 * An allocator of two C functions over an engine, for frameworks that take such, as CuPy does with
 * its CFunctionAllocator. Frees bring no more than an address, so blocks are looked up by it.
 *
 * A block that the engine serves touches no interpreter. What it does not serve comes from
 * `allocate`, which may.
 */
#ifndef MEMC_REPLAY_FUNCTIONS_H_
#define MEMC_REPLAY_FUNCTIONS_H_

#include <stddef.h>
#include <stdint.h>

#include "replay/replay.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memc_functions memc_functions;

/* What the framework and the device give. CUDA's calls return 0 if they are done. */
typedef struct {
  int32_t device; /* The one that the engine serves; others get native blocks. */
  /* The stream on which the calling thread works. */
  intptr_t (*current_stream)(void);
  /* A native block; null if there are not as many bytes, with the reason told to
   * memc_functions_explain. */
  void* (*allocate)(int64_t bytes);
  void (*free)(void* address);
  /* Arenas, and waiting for the device: called between steps, and when an arena's last block is
   * freed. */
  void* (*allocate_arena)(void* context, int64_t bytes);
  void (*free_arena)(void* context, void* address, int64_t bytes);
  void (*synchronize)(void* context);
  int (*create_event)(void** event, unsigned flags);
  int (*record)(void* event, void* stream);
  int (*wait)(void* stream, void* event, unsigned flags);
  int (*destroy_event)(void* event);
  /* Raises an error of the interpreter's, which is held: PyErr_SetObject. */
  void (*raise)(void* type, void* error);
} memc_functions_host;

/* Null if a function is missing. `host` is copied. The result stays until the process ends: blocks
 * may be freed at any time. */
MEMC_REPLAY_API memc_functions* memc_functions_create(const memc_functions_host* host);
MEMC_REPLAY_API memc_replay_engine* memc_functions_engine(memc_functions* functions);

/* The two functions. Without memory the first raises what was explained, and returns -1. */
MEMC_REPLAY_API void* memc_functions_allocate(void* functions, size_t bytes, int device);
MEMC_REPLAY_API void memc_functions_free(void* functions, void* address, int device);

/* The calling thread begins a step. */
MEMC_REPLAY_API void memc_functions_lead(memc_functions* functions);
/* While `on`, all requests are native and the engine is not asked: around calls of it that may call
 * the interpreter, for which another thread might wait with the interpreter held. */
MEMC_REPLAY_API void memc_functions_pause(memc_functions* functions, int on);
/* What to raise since `allocate` is about to return null, on this thread: objects of the
 * interpreter's that stay alive. */
MEMC_REPLAY_API void memc_functions_explain(void* type, void* error);
/* Ends the engine's service. Blocks in use stay valid. */
MEMC_REPLAY_API void memc_functions_close(memc_functions* functions);
/* Neither the device nor the interpreter is called any more. */
MEMC_REPLAY_API void memc_functions_abandon(memc_functions* functions);
/* Blocks in use. */
MEMC_REPLAY_API int64_t memc_functions_live(memc_functions* functions);

#ifdef __cplusplus
}
#endif

#endif /* MEMC_REPLAY_FUNCTIONS_H_ */
