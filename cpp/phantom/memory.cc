// SPDX-License-Identifier: Apache-2.0
// Memory of the CUDA runtime: accounts of what is allocated, and copies of what a host may read.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "address_space.h"
#include "device.h"
#include "errors.h"
#include "export.h"
#include "reads.h"

namespace phantom {

namespace {

// Copies of at most so many bytes are done; larger ones hold data that no program decides by.
constexpr size_t kSmall = 65536;
constexpr uintptr_t kHostPage = 4096;

struct Blocks {
  std::mutex mutex;
  std::map<uintptr_t, size_t> bytes;  // by address
};

Blocks& Allocated() {
  static auto* const blocks = new Blocks;
  return *blocks;
}

Blocks& OnHost() {
  static auto* const blocks = new Blocks;
  return *blocks;
}

// Pages of the device that hold something else than zeros. Whoever allocates a block of them anew
// finds zeros, not what another left there.
struct Written {
  std::mutex mutex;
  std::set<uintptr_t> pages;  // their addresses
};

Written& OnDevicePages() {
  static auto* const written = new Written;
  return *written;
}

void Write(void* to, size_t bytes) {
  if (bytes == 0) return;
  Written& written = OnDevicePages();
  const std::lock_guard<std::mutex> lock(written.mutex);
  const auto begin = reinterpret_cast<uintptr_t>(to);
  for (uintptr_t page = begin / kHostPage * kHostPage; page < begin + bytes; page += kHostPage) {
    written.pages.insert(page);
  }
}

// A number as the sum of counts, as PyTorch has them of parts of a large tensor.
void WriteSum(int32_t* to, size_t counts, int64_t number) {
  const auto parts = static_cast<int64_t>(counts);
  for (int64_t at = 0; at < parts; ++at) {
    to[at] = static_cast<int32_t>(number / parts + (at < number % parts ? 1 : 0));
  }
}

void Copy(void* to, const void* from, size_t bytes) {
  const bool to_device = OnDevice(to), from_device = OnDevice(from);
  if (to_device && !from_device) CountWrite(to);
  if (to_device && bytes <= kSmall) Write(to, bytes);
  if (from_device && !to_device) {
    const int64_t number = CountRead(bytes);
    if (number >= 0 && bytes % sizeof(int32_t) == 0) {
      WriteSum(static_cast<int32_t*>(to), bytes / sizeof(int32_t), number);
      return;
    }
    if (bytes > kSmall) {
      std::memset(to, 0, bytes);  // What kernels have written is not there; zeros stand for it.
      return;
    }
  }
  if (bytes <= kSmall || (!from_device && !to_device)) std::memcpy(to, from, bytes);
}

cudaError_t Allocate(void** address, size_t bytes) {
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  RequireOwner();
  if (!Take(Pages(bytes))) return Failed(cudaErrorMemoryAllocation);
  const uintptr_t at = ReserveRange(bytes);
  if (at == 0) {
    GiveBack(Pages(bytes));
    Refuse("cudaMalloc", "this machine gives no address space for the phantom device's memory");
  }
  Blocks& blocks = Allocated();
  const std::lock_guard<std::mutex> lock(blocks.mutex);
  blocks.bytes[at] = bytes;
  *address = reinterpret_cast<void*>(at);
  return cudaSuccess;
}

cudaError_t Free(void* address) {
  if (address == nullptr) return cudaSuccess;
  Blocks& blocks = Allocated();
  const std::lock_guard<std::mutex> lock(blocks.mutex);
  const auto found = blocks.bytes.find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks.bytes.end()) return Failed(cudaErrorInvalidValue);
  GiveBack(Pages(found->second));
  {
    Written& written = OnDevicePages();
    const std::lock_guard<std::mutex> pages(written.mutex);
    written.pages.erase(written.pages.lower_bound(found->first),
                        written.pages.lower_bound(found->first + found->second));
  }
  ReleaseRange(found->first, found->second);
  blocks.bytes.erase(found);
  return cudaSuccess;
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT cudaError_t cudaMalloc(void** address, size_t bytes) {
  return Allocate(address, bytes);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaFree(void* address) { return Free(address); }
MEMC_PHANTOM_EXPORT cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t) {
  return Allocate(address, bytes);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return Free(address); }

MEMC_PHANTOM_EXPORT cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = static_cast<size_t>(Number("totalGlobalMem"));
  const size_t gone = Used() + Outside();
  const size_t limit = Limit() < *total ? Limit() : *total;
  *free = gone < limit ? limit - gone : 0;
  return cudaSuccess;
}

MEMC_PHANTOM_EXPORT cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* at = mmap(nullptr, bytes == 0 ? 1 : bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (at == MAP_FAILED) return Failed(cudaErrorMemoryAllocation);
  Blocks& blocks = OnHost();
  const std::lock_guard<std::mutex> lock(blocks.mutex);
  blocks.bytes[reinterpret_cast<uintptr_t>(at)] = bytes == 0 ? 1 : bytes;
  *address = at;
  return cudaSuccess;
}

MEMC_PHANTOM_EXPORT cudaError_t cudaFreeHost(void* address) {
  Blocks& blocks = OnHost();
  const std::lock_guard<std::mutex> lock(blocks.mutex);
  const auto found = blocks.bytes.find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks.bytes.end()) return cudaSuccess;
  munmap(address, found->second);
  blocks.bytes.erase(found);
  return cudaSuccess;
}

MEMC_PHANTOM_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found,
                                                         const void* address) {
  std::memset(found, 0, sizeof *found);
  found->device = -1;
  found->type = cudaMemoryTypeUnregistered;
  found->hostPointer = const_cast<void*>(address);
  if (OnDevice(address)) {
    found->type = cudaMemoryTypeDevice;
    found->device = 0;
    found->devicePointer = const_cast<void*>(address);
    found->hostPointer = nullptr;
    return cudaSuccess;
  }
  Blocks& blocks = OnHost();
  const std::lock_guard<std::mutex> lock(blocks.mutex);
  auto it = blocks.bytes.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (it == blocks.bytes.begin()) return cudaSuccess;
  --it;
  if (reinterpret_cast<uintptr_t>(address) < it->first + it->second) {
    found->type = cudaMemoryTypeHost;
    found->device = 0;
    found->devicePointer = const_cast<void*>(address);
  }
  return cudaSuccess;
}

MEMC_PHANTOM_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                                           cudaMemcpyKind) {
  Copy(to, from, bytes);
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                                cudaMemcpyKind, cudaStream_t) {
  Copy(to, from, bytes);
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int,
                                                    size_t bytes, cudaStream_t) {
  Copy(to, from, bytes);
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                                  size_t from_pitch, size_t width, size_t height,
                                                  cudaMemcpyKind, cudaStream_t) {
  for (size_t row = 0; row < height; ++row) {
    Copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
         width);
  }
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  const bool on_device = OnDevice(to);
  if (on_device && value != 0 && bytes <= kSmall) Write(to, bytes);
  if (bytes <= kSmall || !on_device) std::memset(to, value, bytes);
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  return cudaMemset(to, value, bytes);
}

// An allocator gives out a block of the device: it reads as zeros from now on.
MEMC_PHANTOM_EXPORT void memc_phantom_clear(uintptr_t address, size_t bytes) {
  Written& written = OnDevicePages();
  const std::lock_guard<std::mutex> lock(written.mutex);
  auto page = written.pages.lower_bound(address / kHostPage * kHostPage);
  while (page != written.pages.end() && *page < address + bytes) {
    const uintptr_t begin = *page < address ? address : *page;
    const uintptr_t end = *page + kHostPage < address + bytes ? *page + kHostPage : address + bytes;
    std::memset(reinterpret_cast<void*>(begin), 0, end - begin);
    page = end - begin == kHostPage ? written.pages.erase(page) : std::next(page);
  }
}
