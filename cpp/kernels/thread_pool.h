// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_THREAD_POOL_H_
#define MEMC_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

namespace memc {

// Threads that run tasks for the one that made them. The kernels of a run follow each other within
// microseconds, so threads without work look for more during a millisecond before they sleep.
//
// Not TVM's pool: it cannot be destroyed in a forked child, whatever is done there, because its
// condition variables wait for the threads that slept in the parent.
class ThreadPool {
 public:
  // The status of one task; anything but 0 is an error.
  using Task = int (*)(void* data, int task, int tasks);

  // The pool of the calling thread, made when it is first asked for. In a forked child, where the
  // pool's threads are not, the pool is forgotten and another one is made.
  static ThreadPool& OfThisThread();

  ThreadPool() = default;
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls fn(data, task, tasks) for each task, the first one here and each other on its own thread
  // (threads are started as they are needed; where there can be no more, tasks run here). Returns
  // after all have, with the first status that is not 0.
  int Run(Task fn, void* data, int tasks);

 private:
  struct Job {
    Task fn;
    void* data;
    int tasks;
    std::atomic<int> left;
    std::atomic<int> status{0};
  };

  // A thread and the job that it is given; on a cache line of its own.
  struct alignas(64) Worker {
    std::atomic<Job*> job{nullptr};
    std::atomic<bool> asleep{false};
    std::mutex mutex;
    std::condition_variable wake;
    std::thread thread;
  };

  static void Serve(Worker* worker, int task);
  static Job* Wait(Worker* worker);
  static void Give(Worker* worker, Job* job);
  int Grow(int threads);

  std::deque<Worker> workers_;  // Workers stay where they are when there are more.
};

}  // namespace memc

#endif  // MEMC_THREAD_POOL_H_
