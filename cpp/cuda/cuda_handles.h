// SPDX-License-Identifier: Apache-2.0
// Owners of the CUDA libraries' objects: what a function has made before it throws is destroyed.
#ifndef MEMC_CUDA_HANDLES_H_
#define MEMC_CUDA_HANDLES_H_

#include <memory>

#include "cuda/cuda_api.h"

namespace memc::cuda {

// Destroys an object by its library's own function.
struct Destroy {
  void operator()(CudnnTensor* object) const;
  void operator()(CudnnFilter* object) const;
  void operator()(CudnnConvolution* object) const;
  void operator()(CudnnActivation* object) const;
  void operator()(CudnnDescriptor* object) const;
  void operator()(LtProduct* object) const;
  void operator()(LtLayout* object) const;
  void operator()(LtPreference* object) const;
  void operator()(Event* object) const;
  void operator()(CapturedGraph* object) const;
  void operator()(ExecutableGraph* object) const;
  void operator()(StreamObject* object) const;
};

template <typename Object>
using Owned = std::unique_ptr<Object, Destroy>;

// The object that `create` makes for these arguments; `check` throws for its status, naming `what`.
template <typename Object, typename... Parameters, typename... Arguments>
Owned<Object> Made(int (*create)(Object**, Parameters...), void (*check)(int, const char*),
                   const char* what, Arguments... arguments) {
  Object* made = nullptr;
  check(create(&made, arguments...), what);
  return Owned<Object>(made);
}

// Device memory.
class DeviceBytes {
 public:
  // Throws std::runtime_error where there is not so much.
  explicit DeviceBytes(size_t bytes);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  uint64_t address() const { return address_; }

 private:
  uint64_t address_ = 0;
};

}  // namespace memc::cuda

#endif  // MEMC_CUDA_HANDLES_H_
