// SPDX-License-Identifier: Apache-2.0
// Device memory from the CUDA runtime that TVM uses. A failure is taken back from that runtime,
// where the next call of another library in the process would find it.
//
//   memc.cuda.set_runtime(path)            its library; empty: the one that is loaded
//   memc.cuda.output(device, dtype, shape) -> Tensor
//                                          fresh memory, to which it returns when nobody holds it
//   memc.cuda.require(device, bytes)       throws if so much cannot be allocated at once
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda_api.h"

namespace memc::cuda {

namespace {

namespace ffi = tvm::ffi;

constexpr size_t kPage = 4096;  // Pieces of memory are of multiples of it.

// The calling thread's calls are allowed while streams are captured: for as long as this lives.
class DuringCaptures {
 public:
  explicit DuringCaptures(const Runtime& runtime) : runtime_(runtime) {
    runtime_.exchange_capture_mode(&mode_);
  }
  ~DuringCaptures() { runtime_.exchange_capture_mode(&mode_); }
  DuringCaptures(const DuringCaptures&) = delete;
  DuringCaptures& operator=(const DuringCaptures&) = delete;

 private:
  const Runtime& runtime_;
  int mode_ = kCaptureRelaxed;
};

// A device is current for as long as this lives, and then the one that was.
class CurrentDevice {
 public:
  CurrentDevice(const Runtime& runtime, int device) : runtime_(runtime), device_(device) {
    if (runtime_.get_device(&before_) != 0) before_ = device;
    if (before_ != device_) runtime_.set_device(device_);
  }
  ~CurrentDevice() {
    if (before_ != device_) runtime_.set_device(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const Runtime& runtime_;
  int device_;
  int before_ = 0;
};

// Device memory that tensors have given back, by device and bytes.
class Pool {
 public:
  // Throws std::runtime_error where there is not so much.
  void* Take(int device, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<void*>& waiting = free_[{device, bytes}];
    if (waiting.empty()) return Allocate(device, bytes);
    void* found = waiting.back();
    waiting.pop_back();
    return found;
  }

  void Return(int device, size_t bytes, void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_[{device, bytes}].push_back(data);
  }

  // Allocates and frees so much, for TVM, which does not take back what fails.
  void Require(int device, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    void* data = Allocate(device, bytes);
    const CurrentDevice current(LoadRuntime(), device);
    LoadRuntime().free(data);
  }

 private:
  // New memory, for which what waits is given up if need be.
  void* Allocate(int device, size_t bytes) {
    const Runtime& runtime = LoadRuntime();
    const CurrentDevice current(runtime, device);
    const DuringCaptures allowed(runtime);
    void* data = nullptr;
    int status = runtime.malloc(&data, bytes);
    if (status != 0) {
      Release(runtime);
      status = runtime.malloc(&data, bytes);
    }
    if (status == 0) return data;
    runtime.last_error();
    throw std::runtime_error("cudaMalloc of " + std::to_string(bytes) +
                             " bytes: " + runtime.error_string(status));
  }

  // Frees what waits, TVM's too; the errors before are taken back.
  void Release(const Runtime& runtime) {
    runtime.last_error();
    for (auto& [key, waiting] : free_) {
      for (void* data : waiting) runtime.free(data);
      waiting.clear();
    }
    if (const auto clear = ffi::Function::GetGlobal("vm.builtin.memory_manager.clear")) {
      (*clear)();
    }
  }

  std::mutex mutex_;
  std::map<std::pair<int, size_t>, std::vector<void*>> free_;
};

// Lives as long as the process: tensors may outlive everything else.
Pool& ThePool() {
  static Pool* const pool = new Pool;
  return *pool;
}

class FromPool {
 public:
  void AllocData(DLTensor* tensor) {
    const size_t bytes = std::max<size_t>(ffi::GetDataSize(*tensor), 1);
    bytes_ = (bytes + kPage - 1) / kPage * kPage;
    tensor->data = ThePool().Take(tensor->device.device_id, bytes_);
  }
  void FreeData(DLTensor* tensor) {
    ThePool().Return(tensor->device.device_id, bytes_, tensor->data);
  }

 private:
  size_t bytes_ = 0;
};

ffi::Tensor Output(int device, DLDataType dtype, const ffi::Shape& shape) {
  return ffi::Tensor::FromNDAlloc(FromPool(), shape, dtype, DLDevice{kDLCUDA, device});
}

void Require(int device, int64_t bytes) { ThePool().Require(device, static_cast<size_t>(bytes)); }

void SetRuntime(const ffi::String& path) { SetRuntimePath(path); }

}  // namespace

}  // namespace memc::cuda

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace ffi = tvm::ffi;
  namespace cuda = memc::cuda;
  const auto add = [](const char* symbol, const ffi::Function& function) {
    ffi::Function::SetGlobal(symbol, function, true);
  };
  add("memc.cuda.set_runtime", ffi::Function::FromTyped(cuda::SetRuntime));
  add("memc.cuda.output", ffi::Function::FromTyped(cuda::Output));
  add("memc.cuda.require", ffi::Function::FromTyped(cuda::Require));
}
