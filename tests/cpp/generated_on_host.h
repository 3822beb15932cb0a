// SPDX-License-Identifier: Apache-2.0
// What generated CUDA kernels need of CUDA, on the host: the threads of a block are fibers that
// take turns where they meet. Blocks run one after another.
#ifndef MEMC_TESTS_GENERATED_ON_HOST_H_
#define MEMC_TESTS_GENERATED_ON_HOST_H_

#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace host {

struct Index {
  int x = 0, y = 0, z = 0;
};

// Threads that wait for one another, and what they show each other.
struct Meeting {
  std::array<std::array<char, 8>, 32> shown{};
  int arrived = 0, turn = 0;
};

struct Thread {
  ucontext_t context{};
  std::vector<char> stack;
  Index index;
  int number = 0;
  bool done = false;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Meeting> warps;
  Meeting all;
  Index index, extents, grid;
  Thread* current = nullptr;
  ucontext_t scheduler{};
};

inline Block block;

inline int Lane() { return block.current->number % 32; }

// Waits for the `first` to `last` threads that have not ended.
inline void Meet(Meeting& meeting, size_t first, size_t last) {
  const int before = meeting.turn;
  ++meeting.arrived;
  while (meeting.turn == before) {
    int wanted = 0;
    for (size_t i = first; i < last && i < block.threads.size(); ++i) {
      wanted += block.threads[i].done ? 0 : 1;
    }
    if (meeting.arrived >= wanted) {
      meeting.arrived = 0;
      ++meeting.turn;
      return;
    }
    swapcontext(&block.current->context, &block.scheduler);
  }
}

inline void MeetAll() { Meet(block.all, 0, block.threads.size()); }

inline Meeting& Warp() { return block.warps[block.current->number / 32]; }

inline void MeetWarp() {
  const size_t first = block.current->number / 32 * 32;
  Meet(Warp(), first, first + 32);
}

// What a lane of the warp has.
template <typename T>
T Shown(T value, int lane) {
  std::memcpy(Warp().shown[Lane()].data(), &value, sizeof(T));
  MeetWarp();
  T found;
  std::memcpy(&found, Warp().shown[lane & 31].data(), sizeof(T));
  MeetWarp();
  return found;
}

template <typename Test>
unsigned Lanes(const Test& test, int64_t value) {
  unsigned found = 0;
  const int first = block.current->number / 32 * 32;
  std::memcpy(Warp().shown[Lane()].data(), &value, 8);
  MeetWarp();
  for (int lane = 0; lane < 32; ++lane) {
    const size_t number = first + lane;
    if (number >= block.threads.size() || block.threads[number].done) continue;
    int64_t other;
    std::memcpy(&other, Warp().shown[lane].data(), 8);
    if (test(other)) found |= 1u << lane;
  }
  MeetWarp();
  return found;
}

template <typename Body>
void Run(int blocks, int wide, int high, const Body& body) {
  static const Body* running;
  running = &body;
  block.extents = {wide, high, 1};
  block.grid = {blocks, 1, 1};
  for (int number = 0; number < blocks; ++number) {
    block.index = {number, 0, 0};
    block.threads.clear();
    block.threads.resize(static_cast<size_t>(wide) * high);
    block.warps.assign((block.threads.size() + 31) / 32, {});
    block.all = {};
    for (size_t i = 0; i < block.threads.size(); ++i) {
      Thread& t = block.threads[i];
      t.number = static_cast<int>(i);
      t.index = {static_cast<int>(i) % wide, static_cast<int>(i) / wide, 0};
      t.stack.resize(1 << 16);
      getcontext(&t.context);
      t.context.uc_stack.ss_sp = t.stack.data();
      t.context.uc_stack.ss_size = t.stack.size();
      t.context.uc_link = &block.scheduler;
      makecontext(
          &t.context,
          +[] {
            (*running)();
            block.current->done = true;
          },
          0);
    }
    for (bool more = true; more;) {
      more = false;
      for (Thread& t : block.threads) {
        if (t.done) continue;
        block.current = &t;
        swapcontext(&block.scheduler, &t.context);
        more = true;
      }
    }
  }
}

}  // namespace host

#undef __shared__
#undef __launch_bounds__
#undef __device__
#undef __global__
#undef __forceinline__
#define __shared__ static
#define __launch_bounds__(...)
#define __device__
#define __global__
#define __forceinline__ inline
#define threadIdx (host::block.current->index)
#define blockIdx (host::block.index)
#define blockDim (host::block.extents)
#define gridDim (host::block.grid)

inline void __syncthreads() { host::MeetAll(); }
inline void __syncwarp(unsigned = ~0u) { host::MeetWarp(); }
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
  return host::Shown(value, host::Lane() ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  return host::Shown(value, host::Lane() / width * width + lane % width);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned by, int width = 32) {
  const int lane = host::Lane(), other = lane + static_cast<int>(by);
  return host::Shown(value, other / width == lane / width ? other : lane);
}
inline unsigned __activemask() {
  return host::Lanes([](int64_t) { return true; }, 0);
}
inline unsigned __ballot_sync(unsigned mask, int holds) {
  return mask & host::Lanes([](int64_t other) { return other != 0; }, holds != 0);
}
inline int __any_sync(unsigned mask, int holds) { return __ballot_sync(mask, holds) != 0; }
inline unsigned __match_any_sync(unsigned mask, long long value) {
  return mask & host::Lanes([value](int64_t other) { return other == value; }, value);
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
template <typename To, typename From>
To SameBits(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int bits) { return SameBits<float>(bits); }
inline double __longlong_as_double(long long bits) { return SameBits<double>(bits); }
template <typename A, typename B>
auto max(A a, B b) {
  return a > b ? a : b;
}
template <typename A, typename B>
auto min(A a, B b) {
  return a < b ? a : b;
}

#endif  // MEMC_TESTS_GENERATED_ON_HOST_H_
