// SPDX-License-Identifier: Apache-2.0
#include "memc/parallel.h"

#include <dlfcn.h>

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

ParallelLaunch FindLaunch() {
  constexpr const char* kSymbol = "TVMBackendParallelLaunch";
  if (void* symbol = dlsym(RTLD_DEFAULT, kSymbol)) return reinterpret_cast<ParallelLaunch>(symbol);
  // Loaded, but not for everyone to see.
  void* runtime = dlopen("libtvm_runtime.so", RTLD_LAZY | RTLD_NOLOAD);
  if (runtime == nullptr) return nullptr;
  return reinterpret_cast<ParallelLaunch>(dlsym(runtime, kSymbol));
}

struct Job {
  TaskFn fn;
  void* data;
};

}  // namespace

void Launch(TaskFn fn, void* data, bool serial) {
  // Looked up again until it is there: the runtime may be loaded after this library.
  static std::atomic<ParallelLaunch> found{nullptr};
  ParallelLaunch launch = found.load(std::memory_order_acquire);
  if (!serial && launch == nullptr) {
    launch = FindLaunch();
    found.store(launch, std::memory_order_release);
  }
  if (serial || launch == nullptr) {
    fn(data, 0, 1);
    return;
  }
  Job job{fn, data};
  launch(
      [](int task, ParallelGroup* group, void* opaque) {
        const Job* j = static_cast<Job*>(opaque);
        j->fn(j->data, task, group->num_task);
        return 0;
      },
      &job, 0);
}

}  // namespace memc
