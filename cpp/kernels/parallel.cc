// SPDX-License-Identifier: Apache-2.0
// TVM keeps a pool of threads for each thread that launches work. In a forked child the pool of the
// thread that forked is without its threads: work that is given to it never ends, and once other
// threads take their places, it ends the process when it is destroyed. So it is made again there,
// before there are any.
#include "kernels/parallel.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

namespace memc {

namespace {

// The part of TVM's C interface used here (tvm/runtime/c_backend_api.h), which is not a build
// dependency.
struct ParallelGroup {
  void* sync_handle;
  int32_t num_task;
};
using ParallelLambda = int (*)(int task, ParallelGroup* group, void* data);
using ParallelLaunch = int (*)(ParallelLambda lambda, void* data, int num_task);

// A function of TVM's runtime; null where that is not loaded.
void* FindInRuntime(const char* name) {
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) return symbol;
  // Loaded, but not for everyone to see.
  void* runtime = dlopen("libtvm_runtime.so", RTLD_LAZY | RTLD_NOLOAD);
  return runtime == nullptr ? nullptr : dlsym(runtime, name);
}

// Replaces the pool of the calling thread. Looked up with TVM's launch: in a child that was just
// forked, the loader's locks may be held by a thread that is not there.
void (*reset_pool)() = nullptr;

// TVM's launch, looked up again until it is there: its runtime may be loaded after this library.
ParallelLaunch TvmLaunch() {
  static std::atomic<ParallelLaunch> found{nullptr};
  ParallelLaunch launch = found.load(std::memory_order_acquire);
  if (launch == nullptr) {
    launch = reinterpret_cast<ParallelLaunch>(FindInRuntime("TVMBackendParallelLaunch"));
    constexpr const char* kReset = "_ZN3tvm7runtime9threading15ResetThreadPoolEv";
    reset_pool = reinterpret_cast<void (*)()>(FindInRuntime(kReset));
    found.store(launch, std::memory_order_release);
  }
  return launch;
}

thread_local bool has_pool = false;   // Whether this thread has launched work.
thread_local bool lost_pool = false;  // Whether it forked, and its pool could not be replaced.

// What compiled loops and memc's kernels launch their work with.
int LaunchHere(ParallelLambda lambda, void* data, int num_task) {
  if (lost_pool) {
    ParallelGroup alone{nullptr, 1};
    return lambda(0, &alone, data);
  }
  has_pool = true;
  return TvmLaunch()(lambda, data, num_task);
}

// In the child, where only the thread that forked is left.
void AfterFork() {
  if (!has_pool || lost_pool) return;
  lost_pool = true;
  try {
    if (reset_pool != nullptr) {
      reset_pool();
      lost_pool = false;
    }
  } catch (...) {  // There can be no more threads.
  }
}

struct Job {
  TaskFn fn;
  void* data;
};

}  // namespace

void Launch(TaskFn fn, void* data, bool serial) {
  if (serial || TvmLaunch() == nullptr) {
    fn(data, 0, 1);
    return;
  }
  Job job{fn, data};
  LaunchHere(
      [](int task, ParallelGroup* group, void* opaque) {
        const Job* j = static_cast<Job*>(opaque);
        j->fn(j->data, task, group->num_task);
        return 0;
      },
      &job, 0);
}

void* LoopLauncher() {
  static const int watched = pthread_atfork(nullptr, nullptr, AfterFork);
  static_cast<void>(watched);
  return reinterpret_cast<void*>(LaunchHere);
}

}  // namespace memc
