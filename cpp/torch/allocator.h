// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_TORCH_ALLOCATOR_H_
#define MEMC_TORCH_ALLOCATOR_H_

#include <c10/cuda/CUDACachingAllocator.h>
#include <pthread.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "device.h"

namespace memc_torch {

using c10::DataPtr;
using c10::DeviceIndex;
using c10::MempoolId_t;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::cuda::CUDAStream;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;
namespace caching = c10::cuda::CUDACachingAllocator;

// PyTorch's own allocator, in front of which a planned arena serves what it can. What is asked of
// the arena's blocks is answered here; all else goes on to the allocator that was there before.
class PlannedAllocator final : public CUDAAllocator {
 public:
  PlannedAllocator(CUDAAllocator* native, int devices);

  CUDAAllocator* native() const { return native_; }
  int devices() const { return static_cast<int>(devices_.size()); }
  Device& device(DeviceIndex index) { return *devices_[static_cast<size_t>(index)]; }

  // The calling thread is the one whose requests make a step's sequence; others follow it.
  void LeadStep() { leader_ = pthread_self(); }

  // Of the arena, or with it.
  DataPtr allocate(size_t bytes) override;
  void recordStream(const DataPtr& pointer, CUDAStream stream) override;
  void* getBaseAllocation(void* pointer, size_t* bytes) override;
  caching::ShareableHandle shareIpcHandle(void* pointer) override;
  DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  caching::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override;
  void recordHistory(bool enabled, c10::CachingDeviceAllocator::CreateContextFn context,
                     size_t entries, c10::CachingDeviceAllocator::RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override;
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override;
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;

  // As before.
  c10::DeleterFnPtr raw_deleter() const override { return native_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    native_->copy_data(to, from, bytes);
  }
  void raw_delete(void* pointer) override { native_->raw_delete(pointer); }
  void init(int devices) override { native_->init(devices); }
  bool initialized() override { return native_->initialized(); }
  double getMemoryFraction(DeviceIndex device) override {
    return native_->getMemoryFraction(device);
  }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    native_->setMemoryFraction(fraction, device);
  }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return native_->getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { native_->enable(value); }
  bool isEnabled() const override { return native_->isEnabled(); }
  void cacheInfo(DeviceIndex device, size_t* largest) override {
    native_->cacheInfo(device, largest);
  }
  void emptyCache(MempoolId_t pool) override { native_->emptyCache(pool); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    return native_->getMemoryInfo(device);
  }
  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    native_->releasePool(device, pool);
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    return native_->getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    native_->createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) override {
    native_->setUseOnOOM(device, pool, use);
  }
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override {
    native_->setNoSplit(device, pool);
  }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return native_->checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return native_->getIpcDevPtr(std::move(handle));
  }
  bool isHistoryEnabled() override { return native_->isHistoryEnabled(); }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& what) override {
    native_->recordAnnotation(what);
  }
  void pushCompileContext(std::string& context) override { native_->pushCompileContext(context); }
  void popCompileContext() override { native_->popCompileContext(); }
  void setUserMetadata(const std::string& metadata) override { native_->setUserMetadata(metadata); }
  std::string getUserMetadata() override { return native_->getUserMetadata(); }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
    native_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(
      c10::CachingDeviceAllocator::AllocatorTraceTracker tracker) override {
    native_->attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(DeviceIndex device, DeviceIndex other) override {
    native_->enablePeerAccess(device, other);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool p2p) override {
    return native_->memcpyAsync(to, to_device, from, from_device, bytes, stream, p2p);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device,
                                                              MempoolId_t pool) override {
    return native_->getCheckpointState(device, pool);
  }
  caching::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) override {
    return native_->setCheckpointPoolState(device, std::move(state));
  }
  // PyTorch's own: what asks by name whether it has its usual abilities is right.
  std::string name() override { return native_->name(); }

 private:
  DataPtr ServeNatively(size_t bytes, Device& device);

  CUDAAllocator* const native_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::atomic<pthread_t> leader_{};
};

}  // namespace memc_torch

#endif  // MEMC_TORCH_ALLOCATOR_H_
