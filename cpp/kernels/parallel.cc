// SPDX-License-Identifier: Apache-2.0
#include "kernels/parallel.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

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

thread_local int limit = 0;         // What UseThreads has set.
thread_local bool in_task = false;  // Whether this thread is running a task of some pool.

int AllThreads() {
  static const int threads = [] {
    for (const char* name : {"TVM_NUM_THREADS", "OMP_NUM_THREADS"}) {
      if (const char* value = std::getenv(name)) return std::max(std::atoi(value), 1);
    }
    const int cores = CoresOf(static_cast<int>(std::thread::hardware_concurrency()),
                              "/sys/devices/system/cpu/smt/active");
    cpu_set_t allowed;
    const bool known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
    return known ? std::min(cores, CPU_COUNT(&allowed)) : cores;
  }();
  return threads;
}

// While it lives, launches of this thread are one task: its pool is at work.
struct Inside {
  const bool before = in_task;
  Inside() { in_task = true; }
  ~Inside() { in_task = before; }
};

int RunTasks(ThreadPool::Task fn, void* data, int tasks) {
  if (tasks == 1 || in_task) return fn(data, 0, 1);
  return ThreadPool::OfThisThread().Run(fn, data, tasks);
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

int CoresOf(int processors, const char* smt_active) {
  std::string active;
  std::ifstream(smt_active) >> active;
  return std::max(active == "0" ? processors : processors / 2, 1);
}

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
