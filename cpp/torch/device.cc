// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <thread>

namespace memc_torch {

namespace {

cudaStream_t StreamOf(uint64_t stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t EventOf(uint64_t event) { return reinterpret_cast<cudaEvent_t>(event); }

// A call of the runtime's, whose failure is told by what is returned, not by the next call.
bool Done(cudaError_t error) {
  if (error == cudaSuccess) return true;
  (void)cudaGetLastError();
  return false;
}

bool IsCaptured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return !Done(cudaStreamIsCapturing(stream, &status)) || status != cudaStreamCaptureStatusNone;
}

}  // namespace

void Device::Open() {
  figures.Begin();
  memc_replay_backend backend{this,        AllocateArena, FreeArena,   Synchronize,
                              RecordEvent, WaitEvent,     DestroyEvent};
  engine_.store(memc_replay_create(&backend), std::memory_order_release);
}

void Device::Close() {
  memc_replay_engine* const engine = engine_.exchange(nullptr);
  if (engine == nullptr) return;
  while (asking_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  memc_replay_destroy(engine);
}

void Device::OpenPool(c10::MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  filters_.emplace_back(pool, std::move(filter));
  pools_open_ = static_cast<int>(filters_.size());
}

void Device::ClosePool(c10::MempoolId_t pool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(filters_.begin(), filters_.end(),
                                  [&](const auto& each) { return each.first == pool; });
  if (found != filters_.end()) filters_.erase(found);
  pools_open_ = static_cast<int>(filters_.size());
}

bool Device::InFilters(cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(filters_.begin(), filters_.end(),
                     [&](const auto& each) { return each.second(stream); });
}

std::pair<char*, size_t> Device::ArenaOf(const void* address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const char* const at = static_cast<const char*>(address);
  for (const auto& [base, bytes] : arenas_) {
    if (at >= base && at < base + bytes) return {base, bytes};
  }
  return {nullptr, 0};
}

int64_t Device::ArenaBytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t sum = 0;
  for (const auto& arena : arenas_) sum += static_cast<int64_t>(arena.second);
  return sum;
}

void* Device::AllocateArena(void* context, int64_t bytes) {
  Device& device = *static_cast<Device*>(context);
  if (device.HasOpenPool()) return nullptr;  // A captured graph may not be waited in.
  const c10::cuda::CUDAGuard guard(device.index_);
  const Figures::Stats before = device.native_->getDeviceStats(device.index_);
  void* base = nullptr;
  try {
    device.native_->emptyCache({0, 0});  // What the arena takes the place of.
    base = device.native_->raw_alloc(static_cast<size_t>(bytes));
  } catch (const c10::Error&) {  // Out of memory: steps are served natively.
    return nullptr;
  }
  device.figures.AddArena(before, device.native_->getDeviceStats(device.index_));
  const std::lock_guard<std::mutex> lock(device.mutex_);
  device.arenas_.emplace_back(static_cast<char*>(base), static_cast<size_t>(bytes));
  return base;
}

void Device::FreeArena(void* context, void* address, int64_t) {
  Device& device = *static_cast<Device*>(context);
  {
    const std::lock_guard<std::mutex> lock(device.mutex_);
    const auto found = std::find_if(device.arenas_.begin(), device.arenas_.end(),
                                    [&](const auto& each) { return each.first == address; });
    if (found != device.arenas_.end()) device.arenas_.erase(found);
  }
  const Figures::Stats before = device.native_->getDeviceStats(device.index_);
  device.native_->raw_delete(address);
  device.figures.RemoveArena(before, device.native_->getDeviceStats(device.index_));
}

void Device::Synchronize(void* context) {
  const c10::cuda::CUDAGuard guard(static_cast<Device*>(context)->index_);
  (void)Done(cudaDeviceSynchronize());
}

uint64_t Device::RecordEvent(void* context, uint64_t stream, uint64_t event) {
  const c10::cuda::CUDAGuard guard(static_cast<Device*>(context)->index_);
  // In a graph it would be no event outside of it. It is recorded later, which covers as much.
  if (IsCaptured(StreamOf(stream))) return 0;
  cudaEvent_t recorded = EventOf(event);
  if (event == 0 && !Done(cudaEventCreateWithFlags(&recorded, cudaEventDisableTiming))) return 0;
  if (Done(cudaEventRecord(recorded, StreamOf(stream)))) {
    return reinterpret_cast<uint64_t>(recorded);
  }
  if (event == 0) (void)Done(cudaEventDestroy(recorded));
  return 0;
}

int Device::WaitEvent(void* context, uint64_t stream, uint64_t event) {
  const c10::cuda::CUDAGuard guard(static_cast<Device*>(context)->index_);
  if (IsCaptured(StreamOf(stream))) return 1;
  return Done(cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0)) ? 0 : 1;
}

void Device::DestroyEvent(void*, uint64_t event) { (void)Done(cudaEventDestroy(EventOf(event))); }

}  // namespace memc_torch
