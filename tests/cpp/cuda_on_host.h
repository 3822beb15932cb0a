// SPDX-License-Identifier: Apache-2.0
// What runtime/codegen/cuda_kernels needs of CUDA, on the host: the threads of a cluster are fibers
// that take turns at barriers. Shared memory starts as NaN, and what is copied to it arrives when
// it is waited for, at the latest possible time, or with FAKE_CUDA_EAGER at once.
#ifndef MEMC_TESTS_CUDA_ON_HOST_H_
#define MEMC_TESTS_CUDA_ON_HOST_H_

#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct float2 {
  float x, y;
};

struct float4 {
  float x, y, z, w;
};

namespace host {

struct Copy {
  float* to;
  const float* from;
  int bytes, size;
};

// What a thread has of the factors of a product of matrices, or a row of one.
struct Factors {
  std::array<float, 4> a;
  std::array<float, 2> b;
  const float* row;
};

struct Warp {
  std::array<float, 32> values{};
  std::array<Factors, 32> factors{};
  int arrived = 0;
  int turn = 0;
};

struct Block {
  std::vector<float> shared;
  std::vector<Warp> warps;
  int arrived = 0;
  int turn = 0;
};

struct Thread {
  ucontext_t context{};
  std::vector<char> stack;
  int block = 0;  // In the cluster.
  int thread = 0;
  bool done = false;
  std::vector<std::vector<Copy>> groups;  // Of copies under way, the last one not closed.
};

struct Cluster {
  std::vector<Block> blocks;
  std::vector<Thread> threads;
  ucontext_t scheduler{};
  Thread* current = nullptr;
  int first_block = 0;
  int grid = 0;              // Blocks of it.
  unsigned given_bytes = 0;  // Of a block's shared memory, by the launch.
  int matrix = 0;
  bool eager = false;
  int arrived = 0;
  int turn = 0;
};

inline Cluster cluster;

inline void Yield() { swapcontext(&cluster.current->context, &cluster.scheduler); }

// Waits until `count` threads have come here.
inline void Barrier(int& arrived, int& turn, size_t count) {
  const int before = turn;
  if (static_cast<size_t>(++arrived) == count) {
    arrived = 0;
    ++turn;
  }
  while (turn == before) Yield();
}

// Runs `body` in every thread of a grid, a cluster at a time.
template <typename Body>
void Run(int blocks, int matrices, int threads, int blocks_of_cluster, const Body& body) {
  static const Body* running;
  running = &body;
  cluster.eager = std::getenv("FAKE_CUDA_EAGER") != nullptr;
  for (int matrix = 0; matrix < matrices; ++matrix) {
    for (int first = 0; first < blocks; first += blocks_of_cluster) {
      cluster.blocks.assign(blocks_of_cluster, {});
      for (Block& block : cluster.blocks) block.warps.resize((threads + 31) / 32);
      cluster.threads.resize(static_cast<size_t>(blocks_of_cluster) * threads);
      cluster.first_block = first;
      cluster.grid = blocks;
      cluster.matrix = matrix;
      cluster.arrived = cluster.turn = 0;
      for (size_t i = 0; i < cluster.threads.size(); ++i) {
        Thread& t = cluster.threads[i];
        t.stack.resize(1 << 16);
        t.block = static_cast<int>(i) / threads;
        t.thread = static_cast<int>(i) % threads;
        t.done = false;
        t.groups.assign(1, {});
        getcontext(&t.context);
        t.context.uc_stack.ss_sp = t.stack.data();
        t.context.uc_stack.ss_size = t.stack.size();
        t.context.uc_link = &cluster.scheduler;
        makecontext(
            &t.context,
            +[] {
              (*running)();
              cluster.current->done = true;
            },
            0);
      }
      for (bool more = true; more;) {
        more = false;
        for (Thread& t : cluster.threads) {
          if (t.done) continue;
          cluster.current = &t;
          swapcontext(&cluster.scheduler, &t.context);
          more = true;
        }
      }
    }
  }
}

inline Block& OwnBlock() { return cluster.blocks[cluster.current->block]; }

inline Warp& OwnWarp() { return OwnBlock().warps[cluster.current->thread / 32]; }

inline float* Shared(size_t elements) {
  std::vector<float>& shared = OwnBlock().shared;
  if (shared.empty()) shared.assign(elements, std::numeric_limits<float>::quiet_NaN());
  return shared.data();
}

// What is used must be what the launch gives: the end of the process, if not.
inline float* Given(size_t elements) {
  if (cluster.given_bytes != elements * sizeof(float)) std::abort();
  return Shared(elements);
}

inline void Arrive(const Copy& copy) {
  std::memset(copy.to, 0, copy.size);
  std::memcpy(copy.to, copy.from, copy.bytes);
}

inline void Start(float* to, const float* from, int bytes, int size) {
  const Copy copy{to, from, bytes, size};
  if (cluster.eager) return Arrive(copy);
  cluster.current->groups.back().push_back(copy);
}

}  // namespace host

namespace {

int Thread() { return host::cluster.current->thread; }
int Block() { return host::cluster.first_block + host::cluster.current->block; }
int Blocks() { return host::cluster.grid; }
int Matrix() { return host::cluster.matrix; }
int Threads() {
  return static_cast<int>(host::cluster.threads.size() / host::cluster.blocks.size());
}

void SyncBlock() {
  host::Block& block = host::OwnBlock();
  host::Barrier(block.arrived, block.turn,
                host::cluster.threads.size() / host::cluster.blocks.size());
}
void SyncCluster() {
  host::Barrier(host::cluster.arrived, host::cluster.turn, host::cluster.threads.size());
}

void SyncWarp() {
  host::Warp& warp = host::OwnWarp();
  host::Barrier(warp.arrived, warp.turn, 32);
}
float Exchange(float value, int mask) {
  host::Warp& warp = host::OwnWarp();
  const int lane = host::cluster.current->thread % 32;
  warp.values[lane] = value;
  SyncWarp();
  const float other = warp.values[lane ^ mask];
  SyncWarp();  // Until all have read, no value may go.
  return other;
}

void CopyAsync4(float* to, const float* from, int bytes) { host::Start(to, from, bytes, 4); }
void CopyAsync16(float* to, const float* from, int bytes) { host::Start(to, from, bytes, 16); }
void CommitCopies() { host::cluster.current->groups.emplace_back(); }

template <int kBut>
void WaitForCopies() {
  auto& groups = host::cluster.current->groups;
  while (groups.size() > kBut + 1) {
    for (const host::Copy& copy : groups.front()) host::Arrive(copy);
    groups.erase(groups.begin());
  }
}

float4 ReadShared(const float* shared, int block) {
  const float* from =
      host::cluster.blocks[block].shared.data() + (shared - host::OwnBlock().shared.data());
  return {from[0], from[1], from[2], from[3]};
}

float ReadOne(const float* shared, int block) {
  return host::cluster.blocks[block].shared[shared - host::OwnBlock().shared.data()];
}

// The bits that products in TF32 read.
float Tf32Of(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits &= 0xffffe000U;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

float RoundedToTf32(float value) {
  if (!(std::fabs(value) < INFINITY)) return value;
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0x1000U;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

void LoadMatrices(float (&to)[4], const float* row) {
  host::Warp& warp = host::OwnWarp();
  const int lane = host::cluster.current->thread % 32;
  warp.factors[lane].row = row;
  SyncWarp();
  for (int i = 0; i < 4; ++i) to[i] = warp.factors[i * 8 + lane / 4].row[lane % 4];
  SyncWarp();
}

void MultiplyAdd(float (&sums)[4], const float (&a)[4], const float (&b)[2]) {
  host::Warp& warp = host::OwnWarp();
  const int lane = host::cluster.current->thread % 32;
  warp.factors[lane] = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, nullptr};
  SyncWarp();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4;
    const int column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 8; ++k) {
      const float left = warp.factors[row * 4 + k % 4].a[k / 4 * 2 + i / 2];
      const float right = warp.factors[column * 4 + k % 4].b[k / 4];
      sums[i] = fmaf(Tf32Of(left), Tf32Of(right), sums[i]);
    }
  }
  SyncWarp();
}

unsigned BitsOf(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
float FloatOf(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

using std::fmaf;

}  // namespace

#include "halves_on_host.h"

#define SHARED_FLOATS(name, elements) float* name = host::Shared(elements)
#define GIVEN_FLOATS(name, elements) float* name = host::Given(elements)

#endif  // MEMC_TESTS_CUDA_ON_HOST_H_
