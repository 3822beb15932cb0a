// SPDX-License-Identifier: Apache-2.0
// Work of kernels and of compiled loops on several threads. Each thread that launches work has a
// pool of its own (thread_pool.h).
#ifndef MEMC_PARALLEL_H_
#define MEMC_PARALLEL_H_

#include <cstdint>
#include <type_traits>

namespace memc {

using TaskFn = void (*)(void* data, int64_t task, int64_t tasks);

// Calls fn(data, task, tasks) for 0 <= task < tasks, where `tasks` is Threads(), or 1 if `serial`
// or if this is called in such a task. Returns after all have.
void Launch(TaskFn fn, void* data, bool serial);

// The number of tasks that this thread's launches have: what the environment variable
// TVM_NUM_THREADS or OMP_NUM_THREADS says, or one for each core that the process may use, unless
// UseThreads has set fewer.
int Threads();

// The number of cores behind so many processors. `smt_active` is the path of Linux's file that has
// 0 where each processor is a core, as on most virtual machines. Where it does not say so, every
// second processor is taken to be a hyperthread, as TVM does.
int CoresOf(int processors, const char* smt_active);

// Has this thread's launches take `count` threads, or all of them for 0. Throws
// std::invalid_argument for more than there are.
void UseThreads(int count);

// What compiled loops launch their work with in place of TVM's own function
// (TVMBackendParallelLaunch in tvm/runtime/c_backend_api.h, whose type it has).
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
