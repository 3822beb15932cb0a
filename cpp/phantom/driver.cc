// SPDX-License-Identifier: Apache-2.0
// What PyTorch asks of the driver itself: address ranges of expandable segments, and NVRTC's
// modules.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "address_space.h"
#include "device.h"
#include "export.h"

namespace phantom {

namespace {

struct Pieces {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, size_t> bytes;
};

Pieces& Physical() {
  static auto* const pieces = new Pieces;
  return *pieces;
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t,
                                                 CUdeviceptr, unsigned long long) {
  *address = ReserveLongRange(bytes);
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  ReleaseLongRange(address, bytes);
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* made, size_t bytes,
                                         const CUmemAllocationProp*, unsigned long long) {
  RequireOwner();
  if (!Take(Pages(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  Pieces& pieces = Physical();
  const std::lock_guard<std::mutex> lock(pieces.mutex);
  *made = NewHandle();
  pieces.bytes[*made] = Pages(bytes);
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle made) {
  Pieces& pieces = Physical();
  const std::lock_guard<std::mutex> lock(pieces.mutex);
  const auto found = pieces.bytes.find(made);
  if (found == pieces.bytes.end()) return CUDA_ERROR_INVALID_VALUE;
  GiveBack(found->second);
  pieces.bytes.erase(found);
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                                      unsigned long long) {
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  madvise(reinterpret_cast<void*>(address), bytes, MADV_DONTNEED);
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuMemGetAllocationGranularity(size_t* bytes,
                                                           const CUmemAllocationProp*,
                                                           CUmemAllocationGranularity_flags) {
  *bytes = kPage;
  return CUDA_SUCCESS;
}

MEMC_PHANTOM_EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
MEMC_PHANTOM_EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(Number("driverVersion"));
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(Number("count"));
  return CUDA_SUCCESS;
}
// The runtime's attributes have the same numbers.
MEMC_PHANTOM_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                                  CUdevice device) {
  const auto same = static_cast<cudaDeviceAttr>(attribute);
  return cudaDeviceGetAttribute(value, same, device) == cudaSuccess ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_INVALID_DEVICE;
}
MEMC_PHANTOM_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(uintptr_t{64});
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
MEMC_PHANTOM_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  return cuCtxGetCurrent(context);
}
MEMC_PHANTOM_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error of the phantom device";
  return CUDA_SUCCESS;
}

MEMC_PHANTOM_EXPORT CUresult cuModuleLoad(CUmodule* module, const char*) {
  *module = reinterpret_cast<CUmodule>(NewHandle());
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void*) {
  return cuModuleLoad(module, nullptr);
}
MEMC_PHANTOM_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned,
                                                CUjit_option*, void**) {
  return cuModuleLoad(module, nullptr);
}
MEMC_PHANTOM_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* module, const void*) {
  return cuModuleLoad(module, nullptr);
}
MEMC_PHANTOM_EXPORT CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
MEMC_PHANTOM_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  *function = reinterpret_cast<CUfunction>(NewHandle());
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 0;
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction,
                                                                         int, size_t) {
  *blocks = 2;
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute,
                                                   CUdeviceptr address) {
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
      attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
    *static_cast<CUdeviceptr*>(value) = address;
  } else {
    *static_cast<int*>(value) = 0;
  }
  return CUDA_SUCCESS;
}

// What cuDNN wants to be there before it plans with engines that are compiled at run time.
MEMC_PHANTOM_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*,
                                               void**, unsigned, CUlibraryOption*, void**,
                                               unsigned) {
  *library = reinterpret_cast<CUlibrary>(NewHandle());
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) {
  *kernel = reinterpret_cast<CUkernel>(NewHandle());
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuKernelGetAttribute(int* value, CUfunction_attribute, CUkernel,
                                                  CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuLinkComplete(CUlinkState, void** cubin, size_t* bytes) {
  static char nothing[1];
  *cubin = nothing;
  *bytes = 0;
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction,
                                                                const CUlaunchConfig*) {
  *size = 8;
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  return cuCtxGetCurrent(context);
}
MEMC_PHANTOM_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
MEMC_PHANTOM_EXPORT CUresult cuGetErrorName(CUresult error, const char** text) {
  return cuGetErrorString(error, text);
}
