// SPDX-License-Identifier: Apache-2.0
// Launches on the pools of several threads, nested, limited, and in forked children.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "kernels/parallel.h"
#include "kernels/thread_pool.h"

namespace {

using namespace memc;

// Before the first launch, which finds out how many threads there are.
[[maybe_unused]] const int set = setenv("TVM_NUM_THREADS", "4", 1);

// How often each task ran, over `launches`.
std::vector<int> Counts(int launches, bool serial = false) {
  std::vector<std::atomic<int>> counts(8);
  for (int i = 0; i < launches; ++i) {
    ParallelFor(serial, [&](int64_t task, int64_t tasks) {
      counts[static_cast<size_t>(task)] += tasks == 4 ? 1 : 1000;
    });
  }
  return {counts.begin(), counts.end()};
}

const std::vector<int> kOnce{1, 1, 1, 1, 0, 0, 0, 0};

bool is_child = false;

// Whether the child says so within seconds; a hung one is ended by its alarm.
template <typename Body>
bool HoldsInChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    is_child = true;
    alarm(10);
    std::exit(body() ? 0 : 1);  // As processes end, with their threads' pools.
  }
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(EveryTaskRunsOnceALaunch) {
  CHECK(Counts(1) == kOnce);
  CHECK(Counts(3000) == (std::vector<int>{3000, 3000, 3000, 3000, 0, 0, 0, 0}));
  CHECK(Counts(1, true) == (std::vector<int>{1000, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(ThreadsThatSleepWakeUp) {
  for (int i = 0; i < 20; ++i) {
    Sleep(i % 4);
    CHECK(Counts(1) == kOnce);
  }
}

TEST(FewerThreads) {
  CHECK_EQ(Threads(), 4);
  UseThreads(1);
  CHECK(Counts(1) == (std::vector<int>{1000, 0, 0, 0, 0, 0, 0, 0}));
  std::thread([] { CHECK_EQ(Threads(), 4); }).join();  // Each thread's own choice.
  UseThreads(0);
  CHECK(Counts(1) == kOnce);
  CHECK_THROWS(std::invalid_argument, (UseThreads(5), 0), "expected 0 to 4, got 5");
}

TEST(CoresByWhatLinuxSaysOfThem) {
  char path[] = "/tmp/memc_smt_XXXXXX";
  close(mkstemp(path));
  std::ofstream(path) << "0\n";
  CHECK_EQ(CoresOf(6, path), 6);
  std::ofstream(path) << "1\n";
  CHECK_EQ(CoresOf(6, path), 3);
  CHECK_EQ(CoresOf(1, path), 1);
  unlink(path);
  CHECK_EQ(CoresOf(6, path), 3);
}

TEST(ALaunchInATaskIsOneTask) {
  std::atomic<int> inner{0}, wrong{0};
  ParallelFor(false, [&](int64_t, int64_t) {
    for (int i = 0; i < 3; ++i) {
      ParallelFor(false, [&](int64_t, int64_t tasks) {
        ++inner;
        if (tasks != 1) ++wrong;
      });
    }
  });
  CHECK_EQ(inner.load(), 12);
  CHECK_EQ(wrong.load(), 0);
}

TEST(ThreadsHavePoolsOfTheirOwn) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      if (Counts(200) == std::vector<int>{200, 200, 200, 200, 0, 0, 0, 0}) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(right.load(), 6);
}

TEST(TheFirstErrorIsReturned) {
  ThreadPool pool;
  const auto task = [](void*, int number, int) { return number == 2 ? -7 : 0; };
  CHECK_EQ(pool.Run(task, nullptr, 2), 0);
  CHECK_EQ(pool.Run(task, nullptr, 4), -7);
  CHECK_EQ(pool.Run(task, nullptr, 2), 0);
}

TEST(CompiledLoopsSayHowManyTasks) {
  struct Group {
    void* sync;
    int32_t tasks;
  };
  using Lambda = int (*)(int, Group*, void*);
  const auto launch = reinterpret_cast<int (*)(Lambda, void*, int)>(LoopLauncher());
  std::atomic<int> sum{0};
  const Lambda add = [](int task, Group* group, void* data) {
    *static_cast<std::atomic<int>*>(data) += 100 * group->tasks + task;
    return 0;
  };
  CHECK_EQ(launch(add, &sum, 0), 0);
  CHECK_EQ(sum.exchange(0), 4 * 400 + 6);
  CHECK_EQ(launch(add, &sum, 2), 0);
  CHECK_EQ(sum.exchange(0), 2 * 200 + 1);
  CHECK_EQ(launch([](int task, Group*, void*) { return task == 1 ? -1 : 0; }, nullptr, 0), -1);
}

// The pool's threads are looking for work at the fork, asleep, or at work for another thread.
TEST(ForkedChildren) {
  const auto works = [] { return Counts(50)[3] == 50; };
  const auto works_again = [&] { return works() && (Sleep(5), HoldsInChild(works)); };
  for (const int wait : {0, 1, 20}) {
    CHECK(works());
    Sleep(wait);
    CHECK(HoldsInChild(works_again));
    CHECK(HoldsInChild([] { return true; }));
  }
  // The other thread allocates nothing: AddressSanitizer's allocator, unlike the C library's, is
  // left locked in a child if a thread of the parent was in it.
  std::atomic<bool> stop{false};
  std::atomic<int> launches{0};
  std::thread other([&] {
    while (!stop) {
      ParallelFor(false, [](int64_t, int64_t) {});
      ++launches;
    }
  });
  while (launches == 0) Sleep(1);  // It has its pool.
  for (int i = 0; i < 30; ++i) CHECK(HoldsInChild(works));
  stop = true;
  other.join();
  CHECK(HoldsInChild([&] {
    bool right = false;
    std::thread([&] { right = works(); }).join();
    return right && works();
  }));
}

}  // namespace

// Asked by AddressSanitizer before it looks for leaks. A child has none of its parent's other
// threads, so that whatever they hold would look lost there.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return is_child ? 1 : 0;
}
