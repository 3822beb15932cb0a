// SPDX-License-Identifier: Apache-2.0
// What Python calls. Functions that return text return null if all went well.
#include <c10/core/StorageImpl.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <mutex>
#include <string>

#include "allocator.h"

#define MEMC_TORCH_EXPORT extern "C" __attribute__((visibility("default")))

namespace memc_torch {

namespace {

std::atomic<PlannedAllocator*> planned{nullptr};  // Made once; it stays, as blocks may.

thread_local std::string error;

const char* Failed(std::string text) {
  error = std::move(text);
  return error.c_str();
}

// Where PyTorch looks: torch.cuda in the one place, torch.accelerator in the other.
void Replace(CUDAAllocator* old, CUDAAllocator* with) {
  caching::allocator.store(with);
  if (c10::GetAllocator(c10::DeviceType::CUDA) == old) {
    c10::SetAllocator(c10::DeviceType::CUDA, with, 0);
  }
}

}  // namespace

}  // namespace memc_torch

using namespace memc_torch;

// The version of PyTorch, and its commit.
MEMC_TORCH_EXPORT const char* memc_torch_built_for() { return MEMC_TORCH_BUILT_FOR; }

// Puts the planned allocator in front of PyTorch's own, which must be initialized.
MEMC_TORCH_EXPORT const char* memc_torch_install() {
  CUDAAllocator* const now = caching::allocator.load();
  PlannedAllocator* front = planned.load();
  if (now == front) return Failed("is in front already");
  if (now->name() != "native") return Failed("is " + now->name());
  if (front == nullptr) {
    front = new PlannedAllocator(now, c10::cuda::device_count());
    planned = front;
  } else if (front->native() != now) {
    return Failed("is another than before");
  }
  for (int index = 0; index < front->devices(); ++index) {
    front->device(static_cast<DeviceIndex>(index)).Open();
  }
  Replace(now, front);
  return nullptr;
}

// Puts PyTorch's own allocator back. If another is in front by now, this one stays behind it and
// passes all on.
MEMC_TORCH_EXPORT const char* memc_torch_uninstall() {
  PlannedAllocator* const front = planned.load();
  if (front == nullptr) return nullptr;
  for (int index = 0; index < front->devices(); ++index) {
    front->device(static_cast<DeviceIndex>(index)).Close();
  }
  CUDAAllocator* const now = caching::allocator.load();
  if (now == front) Replace(front, front->native());
  if (now == front || now == front->native()) return nullptr;
  return Failed("is " + now->name());
}

// No device is touched any more.
MEMC_TORCH_EXPORT void memc_torch_abandon() {
  PlannedAllocator* const front = planned.load();
  for (int index = 0; front != nullptr && index < front->devices(); ++index) {
    memc_replay_engine* const engine = front->device(static_cast<DeviceIndex>(index)).engine();
    if (engine != nullptr) memc_replay_abandon(engine);
  }
}

// Of a device; null while nothing is installed.
MEMC_TORCH_EXPORT memc_replay_engine* memc_torch_engine(int index) {
  PlannedAllocator* const front = planned.load();
  return front == nullptr ? nullptr : front->device(static_cast<DeviceIndex>(index)).engine();
}

// The calling thread begins a step.
MEMC_TORCH_EXPORT void memc_torch_lead_step() {
  if (PlannedAllocator* const front = planned.load()) front->LeadStep();
}

// Whether requests go to a private pool on a device, as while a graph is captured.
MEMC_TORCH_EXPORT int memc_torch_pool_open(int index) {
  PlannedAllocator* const front = planned.load();
  return front != nullptr && front->device(static_cast<DeviceIndex>(index)).HasOpenPool() ? 1 : 0;
}

// Whether an arena of the device has the byte at an address.
MEMC_TORCH_EXPORT int memc_torch_in_arena(int index, const void* address) {
  return planned.load()->device(static_cast<DeviceIndex>(index)).ArenaOf(address).first != nullptr;
}

// What PyTorch's allocator has reserved on a device, and what of it no block uses.
MEMC_TORCH_EXPORT void memc_torch_reserved(int index, int64_t* reserved, int64_t* allocated) {
  const DeviceStats stats =
      planned.load()->native()->getDeviceStats(static_cast<DeviceIndex>(index));
  *reserved = stats.reserved_bytes[0].current;
  *allocated = stats.allocated_bytes[0].current;
}

// Exchanges the bytes of two storages, for all tensors that share them.
MEMC_TORCH_EXPORT void memc_torch_swap_storages(c10::StorageImpl* one, c10::StorageImpl* other) {
  DataPtr bytes = one->set_data_ptr(DataPtr());
  one->set_data_ptr_noswap(other->set_data_ptr(DataPtr()));
  other->set_data_ptr_noswap(std::move(bytes));
}
