// SPDX-License-Identifier: Apache-2.0
// The kernels, calls and mechanisms of gpu_copy_starts.cu.
#ifndef MEMC_GPU_COPY_STARTS_CUH_
#define MEMC_GPU_COPY_STARTS_CUH_

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define RT(call)                                                                \
  do {                                                                          \
    cudaError_t code_ = (call);                                                 \
    if (code_ != cudaSuccess) Fail(#call, cudaGetErrorString(code_), __LINE__); \
  } while (0)

#define DRV(call)                                            \
  do {                                                       \
    CUresult code_ = (call);                                 \
    const char* text_ = nullptr;                             \
    if (code_ != CUDA_SUCCESS) {                             \
      FOUND(cuGetErrorString)(code_, &text_);                \
      Fail(#call, text_ == nullptr ? "?" : text_, __LINE__); \
    }                                                        \
  } while (0)

namespace {

std::string mechanism;

[[noreturn]] void Fail(const char* call, const char* said, int line) {
  std::string what(call);
  std::replace(what.begin(), what.end(), '"', '\'');
  std::printf("{\"mechanism\": \"%s\", \"error\": \"%s: %s (line %d)\"}\n", mechanism.c_str(),
              what.substr(0, 60).c_str(), said, line);
  std::exit(1);
}

#define SPELLED(name) #name
#define NAMED(name) SPELLED(name)
#define FOUND(name) reinterpret_cast<decltype(&name)>(InDriver(NAMED(name)))

// A function of the driver, which is not linked: compilers' machines may have none.
void* InDriver(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) Fail(name, "not in the driver", __LINE__);
  return found;
}

constexpr size_t kTraffic = 8 << 20;  // Bytes that a kernel reads and writes, as ops do.
constexpr int kSlots = 8;             // Buffers of copies that take turns.

// Some tens of microseconds on the whole device.
__global__ void Work(float4* data, int loops, float seed, unsigned* stamp, unsigned value) {
  float a = seed + threadIdx.x, b = 1.0001f;
  for (int n = 0; n < loops; ++n) a = fmaf(a, b, 0.5f);
  const size_t count = kTraffic / sizeof(float4);
  for (size_t n = blockIdx.x * blockDim.x + threadIdx.x; n < count; n += gridDim.x * blockDim.x) {
    float4 item = data[n];
    item.x += a;
    data[n] = item;
  }
  if (stamp != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *stamp = value;
}

__global__ void Signal(unsigned* flag) {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(1u) : "memory");
}

// The kernel after it may begin before it has ended.
__global__ void SignalEarly(unsigned* flag) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(1u) : "memory");
}

__device__ bool Reached(const unsigned* flag) {
  unsigned found;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
  return found != 0;
}

__global__ void Await(const unsigned* flag, unsigned* late) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  while (!Reached(flag)) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - begin > 2000000000ull) {
      *late = 1;
      return;
    }
  }
}

// What came in: a word of the buffer, for the host to see.
__global__ void Look(const unsigned* from, unsigned* into) { *into = *from; }

enum class Start { kNone, kEvent, kMemory, kKernel, kEarly, kRecord };
enum class Wait { kNone, kEvent, kMemory, kKernel };
enum class Lanes { kNone, kForked, kBranch, kStream, kGraph };

struct Mechanism {
  const char* name;
  Start start;
  Wait wait;
  Lanes lanes;
};

// kForked: a copy follows its kernel by an edge. kBranch: lanes are branches of the graph from its
// beginning to its end, and flags order their copies. kStream, kGraph: lanes are work of their own
// beside the kernels' graph.
const Mechanism kMechanisms[] = {
    {"plain", Start::kNone, Wait::kNone, Lanes::kNone},
    {"event", Start::kEvent, Wait::kEvent, Lanes::kForked},
    {"event, no waits", Start::kEvent, Wait::kNone, Lanes::kForked},
    {"event waits only", Start::kNone, Wait::kEvent, Lanes::kBranch},
    {"branches only", Start::kNone, Wait::kNone, Lanes::kBranch},
    {"kernels without copies", Start::kKernel, Wait::kKernel, Lanes::kNone},
    {"signals without copies", Start::kKernel, Wait::kNone, Lanes::kNone},
    {"early signals without copies", Start::kEarly, Wait::kNone, Lanes::kNone},
    {"memory without copies", Start::kMemory, Wait::kMemory, Lanes::kNone},
    {"records without copies", Start::kRecord, Wait::kNone, Lanes::kNone},
    {"kernel, branch", Start::kKernel, Wait::kKernel, Lanes::kBranch},
    {"early, branch", Start::kEarly, Wait::kKernel, Lanes::kBranch},
    {"kernel and event, branch", Start::kKernel, Wait::kEvent, Lanes::kBranch},
    {"event and kernel", Start::kEvent, Wait::kKernel, Lanes::kForked},
    {"memory, branch", Start::kMemory, Wait::kMemory, Lanes::kBranch},
    {"kernel, stream", Start::kKernel, Wait::kKernel, Lanes::kStream},
    {"kernel, graph", Start::kKernel, Wait::kKernel, Lanes::kGraph},
    {"early, graph", Start::kEarly, Wait::kKernel, Lanes::kGraph},
    {"memory, stream", Start::kMemory, Wait::kMemory, Lanes::kStream},
    {"record, stream", Start::kRecord, Wait::kKernel, Lanes::kStream},
};

struct Copy {
  int lane;    // 0: out, 1: in.
  int start;   // After this kernel.
  int done;    // Before this one.
  int number;  // In its lane.
};

}  // namespace

#endif  // MEMC_GPU_COPY_STARTS_CUH_
