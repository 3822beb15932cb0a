// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_pool.h"

#include <pthread.h>

#include <chrono>
#include <memory>
#include <system_error>
#include <vector>

namespace memc {

namespace {

thread_local std::unique_ptr<ThreadPool> pool_of_thread;

// In the child, where only the thread that forked is left. Its pool cannot be destroyed.
void AfterFork() {
  static auto& lost = *new std::vector<ThreadPool*>;
  if (pool_of_thread != nullptr) lost.push_back(pool_of_thread.release());
}

const int watched = pthread_atfork(nullptr, nullptr, AfterFork);

// Keeps the first status that is an error.
void Note(int status, std::atomic<int>* first) {
  int none = 0;
  if (status != 0) first->compare_exchange_strong(none, status);
}

}  // namespace

ThreadPool& ThreadPool::OfThisThread() {
  if (pool_of_thread == nullptr) pool_of_thread = std::make_unique<ThreadPool>();
  return *pool_of_thread;
}

ThreadPool::~ThreadPool() {
  Job end{nullptr, nullptr, 0, {0}};
  for (Worker& worker : workers_) Give(&worker, &end);
  for (Worker& worker : workers_) worker.thread.join();
}

int ThreadPool::Run(Task fn, void* data, int tasks) {
  const int threads = Grow(tasks - 1);
  Job job{fn, data, tasks, {threads}};
  for (int i = 0; i < threads; ++i) Give(&workers_[static_cast<size_t>(i)], &job);
  Note(fn(data, 0, tasks), &job.status);
  for (int task = threads + 1; task < tasks; ++task) Note(fn(data, task, tasks), &job.status);
  while (job.left.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  return job.status.load(std::memory_order_relaxed);
}

void ThreadPool::Serve(Worker* worker, int task) {
  for (;;) {
    Job* job = Wait(worker);
    if (job->fn == nullptr) return;
    Note(job->fn(job->data, task, job->tasks), &job->status);
    job->left.fetch_sub(1, std::memory_order_release);  // The job may be gone after this.
  }
}

ThreadPool::Job* ThreadPool::Wait(Worker* worker) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + std::chrono::milliseconds(1); Clock::now() < end;) {
    for (int i = 0; i < 64; ++i) {
      if (Job* job = worker->job.exchange(nullptr)) return job;
      std::this_thread::yield();
    }
  }
  std::unique_lock<std::mutex> lock(worker->mutex);
  worker->asleep = true;
  worker->wake.wait(lock, [worker] { return worker->job.load() != nullptr; });
  worker->asleep = false;
  return worker->job.exchange(nullptr);
}

// The job is there before `asleep` is read, and `asleep` before the job is looked for, both in the
// one order of all: either this finds the thread asleep, or the thread finds the job.
void ThreadPool::Give(Worker* worker, Job* job) {
  worker->job = job;
  if (!worker->asleep) return;
  std::lock_guard<std::mutex> lock(worker->mutex);
  worker->wake.notify_one();
}

// The number of threads to use: up to `threads`.
int ThreadPool::Grow(int threads) {
  while (static_cast<int>(workers_.size()) < threads) {
    Worker& worker = workers_.emplace_back();
    try {
      worker.thread = std::thread(Serve, &worker, static_cast<int>(workers_.size()));
    } catch (const std::system_error&) {  // The process or the machine has no room for more.
      workers_.pop_back();
      return static_cast<int>(workers_.size());
    }
  }
  return threads;
}

}  // namespace memc
