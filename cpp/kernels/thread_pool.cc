// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_pool.h"

#include <chrono>
#include <system_error>

namespace memc {

namespace {

// Keeps the first status that is an error.
void Note(int status, std::atomic<int>* first) {
  int none = 0;
  if (status != 0) first->compare_exchange_strong(none, status);
}

}  // namespace

ThreadPool::~ThreadPool() {
  Job end{nullptr, nullptr, 0, {0}};
  for (Slot& slot : slots_) Give(&slot, &end);
  for (Slot& slot : slots_) slot.thread.join();
}

int ThreadPool::Run(Task fn, void* data, int tasks) {
  const int threads = Grow(tasks - 1);
  Job job{fn, data, tasks, {threads}};
  for (int i = 0; i < threads; ++i) Give(&slots_[static_cast<size_t>(i)], &job);
  Note(fn(data, 0, tasks), &job.status);
  for (int task = threads + 1; task < tasks; ++task) Note(fn(data, task, tasks), &job.status);
  while (job.left.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  return job.status.load(std::memory_order_relaxed);
}

void ThreadPool::Serve(Slot* slot, int task) {
  for (;;) {
    Job* job = Wait(slot);
    if (job->fn == nullptr) return;
    Note(job->fn(job->data, task, job->tasks), &job->status);
    job->left.fetch_sub(1, std::memory_order_release);  // The job may be gone after this.
  }
}

ThreadPool::Job* ThreadPool::Wait(Slot* slot) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + std::chrono::milliseconds(1); Clock::now() < end;) {
    for (int i = 0; i < 64; ++i) {
      if (Job* job = slot->job.exchange(nullptr)) return job;
      std::this_thread::yield();
    }
  }
  std::unique_lock<std::mutex> lock(slot->mutex);
  slot->asleep = true;
  slot->wake.wait(lock, [slot] { return slot->job.load() != nullptr; });
  slot->asleep = false;
  return slot->job.exchange(nullptr);
}

// The job is there before `asleep` is read, and `asleep` before the job is looked for, both in the
// one order of all: either this finds the thread asleep, or the thread finds the job.
void ThreadPool::Give(Slot* slot, Job* job) {
  slot->job = job;
  if (!slot->asleep) return;
  std::lock_guard<std::mutex> lock(slot->mutex);
  slot->wake.notify_one();
}

// The number of threads to use: up to `threads`.
int ThreadPool::Grow(int threads) {
  while (static_cast<int>(slots_.size()) < threads) {
    Slot& slot = slots_.emplace_back();
    try {
      slot.thread = std::thread(Serve, &slot, static_cast<int>(slots_.size()));
    } catch (const std::system_error&) {  // The process or the machine has no room for more.
      slots_.pop_back();
      return static_cast<int>(slots_.size());
    }
  }
  return threads;
}

}  // namespace memc
