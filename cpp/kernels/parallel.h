// SPDX-License-Identifier: Apache-2.0
// Work on TVM's thread pool, so that generated and library kernels share one set of threads.
#ifndef MEMC_PARALLEL_H_
#define MEMC_PARALLEL_H_

#include <cstdint>
#include <type_traits>

namespace memc {

using TaskFn = void (*)(void* data, int64_t task, int64_t tasks);

// Calls fn(data, task, tasks) for 0 <= task < tasks, where `tasks` is the number of the pool's
// threads, or 1 if `serial` or if there is no TVM runtime in the process. Returns after all have.
void Launch(TaskFn fn, void* data, bool serial);

// What compiled loops launch their work with in place of TVM's own function
// (TVMBackendParallelLaunch, whose type it has): it knows of forks. Only once TVM's runtime is
// loaded. At the first call, forks begin to be watched.
void* LoopLauncher();

// As Launch, with any callable body(task, tasks), which must not throw.
template <typename Body>
void ParallelFor(bool serial, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  Launch([](void* data, int64_t task, int64_t tasks) { (*static_cast<Plain*>(data))(task, tasks); },
         &body, serial);
}

}  // namespace memc

#endif  // MEMC_PARALLEL_H_
