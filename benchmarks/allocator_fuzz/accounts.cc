// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime that only keeps accounts of memory, for PyTorch's allocator to run on without a
// GPU: addresses are handed out one after another and nothing lies behind them; events are complete
// once their stream is told to have passed them.
#include "accounts.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>

namespace accounts {

size_t total = 0, used = 0;
uintptr_t next_address = uintptr_t{1} << 40;
std::map<uintptr_t, uint64_t> passed;
uint64_t clock = 0;

namespace {

constexpr size_t kPage = 2 << 20;
std::map<uintptr_t, size_t> allocated;
std::map<unsigned long long, size_t> pages;
std::map<uintptr_t, std::pair<uintptr_t, uint64_t>> events;  // stream and time of each
uintptr_t handle = 0x1000;
cudaError_t last = cudaSuccess;

size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

uintptr_t Reserve(size_t bytes) {
  const uintptr_t address = next_address;
  next_address += Pages(bytes);
  return address;
}

CUresult Nothing() { return CUDA_SUCCESS; }

CUresult AddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                        unsigned long long) {
  *address = Reserve(bytes);
  return CUDA_SUCCESS;
}

CUresult Create(CUmemGenericAllocationHandle* made, size_t bytes, const CUmemAllocationProp*,
                unsigned long long) {
  if (used + Pages(bytes) > total) return CUDA_ERROR_OUT_OF_MEMORY;
  used += Pages(bytes);
  *made = handle += 16;
  pages[*made] = Pages(bytes);
  return CUDA_SUCCESS;
}

CUresult Release(CUmemGenericAllocationHandle made) {
  used -= pages[made];
  pages.erase(made);
  return CUDA_SUCCESS;
}

CUresult ErrorString(CUresult, const char** text) {
  *text = "error";
  return CUDA_SUCCESS;
}

CUresult Attribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult Granularity(size_t* bytes, const CUmemAllocationProp*, int) {
  *bytes = kPage;
  return CUDA_SUCCESS;
}

}  // namespace

}  // namespace accounts

using namespace accounts;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  if (used + Pages(bytes) > total) {
    *address = nullptr;
    return last = cudaErrorMemoryAllocation;
  }
  used += Pages(bytes);
  const uintptr_t at = Reserve(bytes);
  allocated[at] = Pages(bytes);
  *address = reinterpret_cast<void*>(at);
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  const auto found = allocated.find(reinterpret_cast<uintptr_t>(address));
  if (found == allocated.end()) return cudaSuccess;
  used -= found->second;
  allocated.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* all) {
  *free = total - used;
  *all = total;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "accounts only");
  properties->totalGlobalMem = total;
  properties->major = 9;
  properties->multiProcessorCount = 132;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  events[reinterpret_cast<uintptr_t>(event)] = {reinterpret_cast<uintptr_t>(stream),
                                                ++accounts::clock};
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto [stream, time] = events[reinterpret_cast<uintptr_t>(event)];
  return time <= passed[stream] ? cudaSuccess : (last = cudaErrorNotReady);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(handle += 16);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = reinterpret_cast<cudaStream_t>(handle += 16);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "error"; }
const char* cudaGetErrorName(cudaError_t) { return "error"; }

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) {
  return *least = 0, *most = -5, cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
  if (id != nullptr) *id = 0;
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string, void*> known = {
      {"cuMemAddressReserve", reinterpret_cast<void*>(AddressReserve)},
      {"cuMemCreate", reinterpret_cast<void*>(Create)},
      {"cuMemRelease", reinterpret_cast<void*>(Release)},
      {"cuGetErrorString", reinterpret_cast<void*>(ErrorString)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(Attribute)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(Granularity)},
  };
  const auto found = known.find(name);
  *function = found == known.end() ? reinterpret_cast<void*>(Nothing) : found->second;
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// What the library asks for by name and the allocator does not use.
#include "unused_names.inc"
}
