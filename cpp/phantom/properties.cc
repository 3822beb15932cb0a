// SPDX-License-Identifier: Apache-2.0
// What the CUDA runtime says of the described device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "device.h"
#include "errors.h"
#include "export.h"

namespace phantom {

namespace {

int Int(const char* key) { return static_cast<int>(Number(key)); }

void Fill(cudaDeviceProp* found) {
  std::memset(found, 0, sizeof *found);
  std::snprintf(found->name, sizeof found->name, "%s", Text("name").c_str());
  found->totalGlobalMem = Number("totalGlobalMem");
  found->sharedMemPerBlock = Number("sharedMemPerBlock");
  found->sharedMemPerBlockOptin = Number("sharedMemPerBlockOptin");
  found->sharedMemPerMultiprocessor = Number("sharedMemPerMultiprocessor");
  found->reservedSharedMemPerBlock = Number("reservedSharedMemPerBlock");
  found->regsPerBlock = Int("regsPerBlock");
  found->regsPerMultiprocessor = Int("regsPerMultiprocessor");
  found->warpSize = 32;
  found->maxThreadsPerBlock = 1024;
  const int threads[] = {1024, 1024, 64}, grid[] = {2147483647, 65535, 65535};
  std::copy(threads, threads + 3, found->maxThreadsDim);
  std::copy(grid, grid + 3, found->maxGridSize);
  found->maxThreadsPerMultiProcessor = Int("maxThreadsPerMultiProcessor");
  found->maxBlocksPerMultiProcessor = Int("maxBlocksPerMultiProcessor");
  found->multiProcessorCount = Int("multiProcessorCount");
  found->major = Int("major");
  found->minor = Int("minor");
  found->l2CacheSize = Int("l2CacheSize");
  found->memoryBusWidth = Int("memoryBusWidth");
  found->memPitch = 2147483647;
  found->totalConstMem = 65536;
  found->textureAlignment = 512;
  found->asyncEngineCount = 3;
  found->concurrentKernels = found->unifiedAddressing = found->managedMemory = 1;
  found->canMapHostMemory = found->cooperativeLaunch = found->streamPrioritiesSupported = 1;
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  *count = Int("count");
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
  if (device < 0 || device >= Int("count")) return Failed(cudaErrorInvalidDevice);
  Fill(found);
  found->pciDeviceID = device;
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                                       int device) {
  cudaDeviceProp found;
  if (const cudaError_t error = cudaGetDeviceProperties(&found, device)) return error;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = found.multiProcessorCount;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(found.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(found.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(found.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = found.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = found.minor;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = found.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = found.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = found.regsPerBlock;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = found.maxGridSize[0];
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = found.maxGridSize[1];
      break;
    case cudaDevAttrWarpSize:
      *value = found.warpSize;
      break;
    case cudaDevAttrL2CacheSize:
      *value = found.l2CacheSize;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, size, "0000:%02x:00.0", device);
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  *version = Int("driverVersion");
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
