// SPDX-License-Identifier: Apache-2.0
// Not TVM's pool: it cannot be destroyed in a forked child, whatever is done there, because its
// condition variables wait for the threads that slept in the parent.
#include "kernels/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/thread_pool.h"

namespace memc {

namespace {

// The part of TVM's C interface used here (tvm/runtime/c_backend_api.h), which is not a build
// dependency.
struct ParallelGroup {
  void* sync_handle;
  int32_t num_task;
};
using ParallelLambda = int (*)(int task, ParallelGroup* group, void* data);

thread_local std::unique_ptr<ThreadPool> pool;
thread_local int limit = 0;         // What UseThreads has set.
thread_local bool in_task = false;  // Whether this thread is running a task of some pool.

int AllThreads() {
  static const int threads = [] {
    for (const char* name : {"TVM_NUM_THREADS", "OMP_NUM_THREADS"}) {
      if (const char* value = std::getenv(name)) return std::max(std::atoi(value), 1);
    }
    // As TVM does: most machines that do not say otherwise show each core as two processors.
    return std::max(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1);
  }();
  return threads;
}

// In the child, where only the thread that forked is left. Its pool cannot be destroyed.
void AfterFork() {
  static auto& lost = *new std::vector<ThreadPool*>;
  if (pool != nullptr) lost.push_back(pool.release());
}

const int watched = pthread_atfork(nullptr, nullptr, AfterFork);

// While it lives, launches of this thread are one task: its pool is at work.
struct Inside {
  const bool before = in_task;
  Inside() { in_task = true; }
  ~Inside() { in_task = before; }
};

int RunTasks(ThreadPool::Task fn, void* data, int tasks) {
  if (tasks == 1 || in_task) return fn(data, 0, 1);
  if (pool == nullptr) pool = std::make_unique<ThreadPool>();
  return pool->Run(fn, data, tasks);
}

struct Loop {
  ParallelLambda lambda;
  void* data;
};

int LaunchLoop(ParallelLambda lambda, void* data, int num_task) {
  Loop loop{lambda, data};
  const auto run = [](void* opaque, int task, int tasks) {
    const Loop* l = static_cast<const Loop*>(opaque);
    ParallelGroup group{nullptr, tasks};
    const Inside inside;
    return l->lambda(task, &group, l->data);
  };
  return RunTasks(run, &loop, num_task == 0 ? Threads() : num_task);
}

struct Job {
  TaskFn fn;
  void* data;
};

}  // namespace

int Threads() { return limit == 0 ? AllThreads() : limit; }

void UseThreads(int count) {
  if (count < 0 || count > AllThreads()) {
    throw std::invalid_argument("threads: expected 0 to " + std::to_string(AllThreads()) +
                                ", got " + std::to_string(count));
  }
  limit = count;
}

void Launch(TaskFn fn, void* data, bool serial) {
  Job job{fn, data};
  const auto run = [](void* opaque, int task, int tasks) {
    const Job* j = static_cast<const Job*>(opaque);
    const Inside inside;
    j->fn(j->data, task, tasks);
    return 0;
  };
  RunTasks(run, &job, serial ? 1 : Threads());
}

void* LoopLauncher() {
  AllThreads();  // Known before any fork, in which another thread could be the one that finds it
                 // out.
  return reinterpret_cast<void*>(LaunchLoop);
}

}  // namespace memc
