// SPDX-License-Identifier: Apache-2.0
// The CUDA driver of fake_cuda.h but for launches, and the counters of all entry points.
//
// Calls on streams and events are written down, one a line (fake_log), pinned memory is counted in
// `fake_pinned` and streams in `fake_streams`. "cuMemHost" in FAKE_CUDA_FAILS is every way to pin.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "fake_cuda.h"

namespace {

using namespace fake;

std::string written;
std::map<void*, size_t> pinned;
void* current_context = nullptr;
int the_context = 0;
int thread_mode = 0;

void Write(const char* what, void* first, void* second) {
  char line[128];
  std::snprintf(line, sizeof line, "%s %p %p\n", what, first, second);
  written += line;
}

bool FailsToPin(const char* name) { return Fails("cuMemHost") || Fails(name); }

}  // namespace

extern "C" {

int calls = 0;
int fake_objects() { return objects; }
void fake_count_anew() { made_calls = 0; }
const char* fake_log() { return written.c_str(); }
void fake_log_anew() { written.clear(); }
void fake_without_context() { current_context = nullptr; }
int fake_pinned = 0;
int fake_streams = 0;

int cuEventCreate(void** h, unsigned) { return Make<int>("cuEventCreate", h); }
int cuEventDestroy_v2(void* h) { return End<int>(h); }
int cuEventRecord(void* event, void* stream) {
  Write("record", event, stream);
  return 0;
}
// Events of a graph, and no others, are recorded as external ones.
int cuEventRecordWithFlags(void*, void*, unsigned flags) {
  if (Fails("cuEventRecordWithFlags")) return kFails;
  return flags == (capturing ? 1U : 0U) ? 0 : kFails;
}
int cuEventSynchronize(void* event) {
  Write("await", event, nullptr);
  return 0;
}
// Each way seems slower than the one before it.
int cuEventElapsedTime(float* ms, void*, void*) {
  static float time = 0;
  return *ms = ++time, 0;
}
int cuStreamSynchronize(void* stream) {
  Write("synchronize", stream, nullptr);
  return 0;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  if (Fails("cuStreamWaitEvent")) return kFails;
  Write("wait", stream, event);
  return 0;
}
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (Fails("cuMemAlloc_v2")) return kFails;
  ++objects;
  return *address = reinterpret_cast<uintptr_t>(std::malloc(bytes)), 0;
}
int cuMemFree_v2(uint64_t address) {
  --objects;
  return std::free(reinterpret_cast<void*>(static_cast<uintptr_t>(address))), 0;
}
int cuMemcpyDtoHAsync_v2(void* host, uint64_t address, size_t bytes, void* stream) {
  Write("out", stream, reinterpret_cast<void*>(bytes));
  return std::memcpy(host, reinterpret_cast<const void*>(static_cast<uintptr_t>(address)), bytes),
         0;
}
int cuMemcpyHtoDAsync_v2(uint64_t address, const void* host, size_t bytes, void* stream) {
  if (Fails("cuMemcpyHtoDAsync_v2")) return kFails;
  Write("in", stream, reinterpret_cast<void*>(bytes));
  return std::memcpy(reinterpret_cast<void*>(static_cast<uintptr_t>(address)), host, bytes), 0;
}
int cuStreamIsCapturing(void*, int* status) { return *status = capturing ? 1 : 0, 0; }
int cuStreamCreate(void** h, unsigned flags) {
  if (Fails("cuStreamCreate")) return kFails;
  ++fake_streams;
  return *h = new int(static_cast<int>(flags)), 0;
}
int cuStreamDestroy_v2(void* h) {
  --fake_streams;
  return delete static_cast<int*>(h), 0;
}
int cuMemHostRegister_v2(void* data, size_t bytes, unsigned) {
  if (FailsToPin("cuMemHostRegister_v2")) return kFails;
  fake_pinned += static_cast<int>(pinned[data] = bytes);
  return 0;
}
int cuMemHostUnregister(void* data) {
  fake_pinned -= static_cast<int>(pinned[data]);
  return pinned.erase(data) == 1 ? 0 : kFails;
}
int cuMemHostAlloc(void** data, size_t bytes, unsigned) {
  if (FailsToPin("cuMemHostAlloc")) return kFails;
  *data = std::calloc(bytes, 1);
  fake_pinned += static_cast<int>(pinned[*data] = bytes);
  return 0;
}
int cuMemFreeHost(void* data) {
  cuMemHostUnregister(data);
  return std::free(data), 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &the_context, 0; }
int cuCtxGetCurrent(void** context) { return *context = current_context, 0; }
int cuCtxSetCurrent(void* context) { return current_context = context, 0; }
int cuCtxSynchronize() {
  Write("synchronize-all", nullptr, nullptr);
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) { return std::swap(*mode, thread_mode), 0; }
int cuStreamBeginCapture_v2(void* stream, int) {
  Write("begin", stream, nullptr);
  return capturing = true, 0;
}
int cuStreamEndCapture(void* stream, void** graph) {
  Write("end", stream, nullptr);
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
