// SPDX-License-Identifier: Apache-2.0
// What the packed functions of CUDA kernels share: checks, a tensor's bytes, where a call runs, and
// errors that name the function.
#ifndef MEMC_CUDA_PACKED_H_
#define MEMC_CUDA_PACKED_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <stdexcept>
#include <string>

#include "cuda/cuda_context.h"

namespace memc::cuda {

inline void Require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

inline void* DataOf(const tvm::ffi::TensorView& tensor) {
  return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
}

// TVM's current stream of the result's device.
inline Place PlaceOf(const tvm::ffi::TensorView& result) {
  const DLDevice device = result.device();
  Place place;
  place.device = device.device_id;
  place.stream = static_cast<Stream>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  return place;
}

// Calls a kernel; its errors get the name of its symbol.
template <void (*kKernel)(tvm::ffi::PackedArgs)>
tvm::ffi::Function Named(const std::string& symbol) {
  namespace ffi = tvm::ffi;
  return ffi::Function::FromPacked([symbol](ffi::PackedArgs args, ffi::Any* /*result*/) {
    try {
      kKernel(args);
    } catch (const ffi::Error&) {
      throw;
    } catch (const std::invalid_argument& error) {
      TVM_FFI_THROW(ValueError) << symbol << ": " << error.what();
    } catch (const std::exception& error) {
      TVM_FFI_THROW(RuntimeError) << symbol << ": " << error.what();
    }
  });
}

}  // namespace memc::cuda

#endif  // MEMC_CUDA_PACKED_H_
