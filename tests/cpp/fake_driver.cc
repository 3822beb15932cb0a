// SPDX-License-Identifier: Apache-2.0
// The CUDA driver of fake_cuda.h but for launches, and the counters of all entry points.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "fake_cuda.h"

namespace {

using namespace fake;

}  // namespace

extern "C" {

int calls = 0;
int fake_objects() { return objects; }
void fake_count_anew() { made_calls = 0; }

int cuEventCreate(void** h, unsigned) { return Make<int>("cuEventCreate", h); }
int cuEventDestroy_v2(void* h) { return End<int>(h); }
int cuEventRecord(void*, void*) { return 0; }
// Events of a graph, and no others, are recorded as external ones.
int cuEventRecordWithFlags(void*, void*, unsigned flags) {
  if (Fails("cuEventRecordWithFlags")) return kFails;
  return flags == (capturing ? 1U : 0U) ? 0 : kFails;
}
int cuEventSynchronize(void*) { return 0; }
// Each way seems slower than the one before it.
int cuEventElapsedTime(float* ms, void*, void*) {
  static float time = 0;
  return *ms = ++time, 0;
}
int cuStreamSynchronize(void*) { return 0; }
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (Fails("cuMemAlloc_v2")) return kFails;
  ++objects;
  return *address = reinterpret_cast<uintptr_t>(std::malloc(bytes)), 0;
}
int cuMemFree_v2(uint64_t address) {
  --objects;
  return std::free(reinterpret_cast<void*>(static_cast<uintptr_t>(address))), 0;
}
int cuMemcpyDtoHAsync_v2(void* host, uint64_t address, size_t bytes, void*) {
  return std::memcpy(host, reinterpret_cast<const void*>(static_cast<uintptr_t>(address)), bytes),
         0;
}
int cuMemcpyHtoDAsync_v2(uint64_t address, const void* host, size_t bytes, void*) {
  if (Fails("cuMemcpyHtoDAsync_v2")) return kFails;
  return std::memcpy(reinterpret_cast<void*>(static_cast<uintptr_t>(address)), host, bytes), 0;
}
int cuStreamIsCapturing(void*, int* status) { return *status = capturing ? 1 : 0, 0; }
int cuStreamCreate(void** h, unsigned) { return *h = new int(0), 0; }
int cuStreamBeginCapture_v2(void*, int) { return capturing = true, 0; }
int cuStreamEndCapture(void*, void** graph) {
  capturing = false;
  return Make<int>("cuStreamEndCapture", graph);
}
int cuGraphInstantiateWithFlags(void** h, void*, unsigned long long) {
  return Make<int>("cuGraphInstantiateWithFlags", h);
}
int cuGraphLaunch(void*, void*) { return ++calls, Fails("cuGraphLaunch") ? kFails : 0; }
int cuGraphDestroy(void* h) { return End<int>(h); }
int cuGraphExecDestroy(void* h) { return End<int>(h); }
int cuGetErrorName(int, const char** name) { return *name = "FAKE_CUDA_ERROR", 0; }

}  // extern "C"
