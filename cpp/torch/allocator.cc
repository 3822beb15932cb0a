// SPDX-License-Identifier: Apache-2.0
#include "allocator.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>

namespace memc_torch {

namespace {

constexpr size_t kMost = 1ULL << 60;  // Bytes: PyTorch's allocator refuses more.

std::atomic<bool> forked{false};  // This process is a child, which has no device.

// Of a block of the arena: what its tensor's deleter is handed.
struct Served {
  Device* device;
  void* address;
  int64_t bytes;
  uint64_t ticket;
  cudaStream_t stream;
};

// Of a block of PyTorch's allocator in a step that is watched.
struct Watched {
  uint64_t ticket;
  DataPtr native;
};

void Tell(Device& device, TraceEntry::Action action, const Served& block) {
  device.history.Add(action, device.index(), block.address, Rounded(block.bytes), block.stream);
}

void FreeServed(void* context) {
  if (forked) return;
  Served* const block = static_cast<Served*>(context);
  Device& device = *block->device;
  if (device.history.on()) {
    Tell(device, TraceEntry::FREE_REQUESTED, *block);
    Tell(device, TraceEntry::FREE_COMPLETED, *block);
  }
  device.figures.Free(block->bytes);  // Before another request may have the bytes.
  memc_replay_free(block->ticket);
  delete block;
}

void FreeWatched(void* context) {
  if (forked) return;
  Watched* const block = static_cast<Watched*>(context);
  memc_replay_free(block->ticket);
  delete block;
}

}  // namespace

PlannedAllocator::PlannedAllocator(CUDAAllocator* native, int devices) : native_(native) {
  for (int index = 0; index < devices; ++index) {
    devices_.push_back(std::make_unique<Device>(static_cast<DeviceIndex>(index), native));
  }
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

DataPtr PlannedAllocator::allocate(size_t bytes) {
  DeviceIndex index = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
  Device& of = device(index);
  if (of.engine() == nullptr || bytes == 0 || bytes > kMost) return ServeNatively(bytes, of);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(index);
  if (of.ToPool(stream)) return ServeNatively(bytes, of);
  memc_replay_block block{};
  const int thread = pthread_equal(leader_.load(std::memory_order_relaxed), pthread_self()) ? 0 : 1;
  const auto asked = static_cast<int64_t>(bytes);
  const bool served = of.Ask(asked, stream, thread, &block);
  if (served) {
    of.Serve(asked);
    auto* const context = new Served{&of, block.address, asked, block.ticket, stream};
    if (of.history.on()) Tell(of, TraceEntry::ALLOC, *context);
    return {block.address, context, &FreeServed, c10::Device(c10::DeviceType::CUDA, index)};
  }
  if (block.ticket == 0) return ServeNatively(bytes, of);
  DataPtr native;
  try {
    native = ServeNatively(bytes, of);
  } catch (...) {
    memc_replay_free(block.ticket);
    throw;
  }
  void* const address = native.get();
  auto* const context = new Watched{block.ticket, std::move(native)};
  return {address, context, &FreeWatched, c10::Device(c10::DeviceType::CUDA, index)};
}

DataPtr PlannedAllocator::ServeNatively(size_t bytes, Device& of) {
  DataPtr native = of.OrTellOfArena([&] { return native_->allocate(bytes); });
  of.ServeNatively();
  return native;
}

void* PlannedAllocator::raw_alloc(size_t bytes) {
  DeviceIndex index = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
  void* const address = device(index).OrTellOfArena([&] { return native_->raw_alloc(bytes); });
  device(index).ServeNatively();
  return address;
}

void* PlannedAllocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  DeviceIndex index = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
  void* const address =
      device(index).OrTellOfArena([&] { return native_->raw_alloc_with_stream(bytes, stream); });
  device(index).ServeNatively();
  return address;
}

void PlannedAllocator::recordStream(const DataPtr& pointer, CUDAStream stream) {
  const auto handle = reinterpret_cast<uint64_t>(stream.stream());
  if (pointer.get_deleter() == &FreeServed) {
    memc_replay_record_stream(static_cast<Served*>(pointer.get_context())->ticket, handle);
  } else if (pointer.get_deleter() == &FreeWatched) {
    const auto* const block = static_cast<Watched*>(pointer.get_context());
    memc_replay_record_stream(block->ticket, handle);
    native_->recordStream(block->native, stream);
  } else {
    native_->recordStream(pointer, stream);
  }
}

// PyTorch's allocator knows an arena by its first address alone.
void* PlannedAllocator::getBaseAllocation(void* pointer, size_t* bytes) {
  for (const auto& each : devices_) {
    if (char* const base = each->ArenaOf(pointer).first) {
      return native_->getBaseAllocation(base, bytes);
    }
  }
  return native_->getBaseAllocation(pointer, bytes);
}

caching::ShareableHandle PlannedAllocator::shareIpcHandle(void* pointer) {
  for (const auto& each : devices_) {
    if (char* const base = each->ArenaOf(pointer).first) {
      caching::ShareableHandle handle = native_->shareIpcHandle(base);
      handle.offset += static_cast<char*>(pointer) - base;
      return handle;
    }
  }
  return native_->shareIpcHandle(pointer);
}

DeviceStats PlannedAllocator::getDeviceStats(DeviceIndex index) {
  DeviceStats stats = native_->getDeviceStats(index);
  return index < devices() ? device(index).figures.Together(std::move(stats)) : stats;
}

void PlannedAllocator::resetAccumulatedStats(DeviceIndex index) {
  native_->resetAccumulatedStats(index);
  if (index < devices()) device(index).figures.ResetAccumulated();
}

void PlannedAllocator::resetPeakStats(DeviceIndex index) {
  native_->resetPeakStats(index);
  if (index < devices()) device(index).figures.ResetPeak(native_->getDeviceStats(index));
}

void PlannedAllocator::recordHistory(bool enabled,
                                     c10::CachingDeviceAllocator::CreateContextFn context,
                                     size_t entries,
                                     c10::CachingDeviceAllocator::RecordContext when, bool clear,
                                     const std::vector<std::string>& skipped) {
  native_->recordHistory(enabled, context, entries, when, clear, skipped);
  for (const auto& each : devices_) {
    each->history.Record(enabled, context, entries, when, clear, skipped);
  }
}

void PlannedAllocator::beginAllocateToPool(DeviceIndex index, MempoolId_t pool,
                                           std::function<bool(cudaStream_t)> filter) {
  if (index < devices()) device(index).OpenPool(pool, filter);
  native_->beginAllocateToPool(index, pool, std::move(filter));
}

void PlannedAllocator::endAllocateToPool(DeviceIndex index, MempoolId_t pool) {
  native_->endAllocateToPool(index, pool);
  if (index < devices()) device(index).ClosePool(pool);
}

caching::SnapshotInfo PlannedAllocator::snapshot(MempoolId_t pool, bool include_traces) {
  caching::SnapshotInfo found = native_->snapshot(pool, include_traces);
  for (const auto& each : devices_) {
    each->ShowArenas(found.segments);
    const auto index = static_cast<size_t>(each->index());
    if (include_traces && index < found.device_traces.size()) {
      each->history.AddTo(found.device_traces[index]);
    }
  }
  return found;
}

}  // namespace memc_torch
