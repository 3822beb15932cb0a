// SPDX-License-Identifier: Apache-2.0
// What the packed functions of CPU kernels share: a tensor's elements, and errors.
#ifndef MEMC_CPU_PACKED_H_
#define MEMC_CPU_PACKED_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <stdexcept>

namespace memc {

template <typename T>
T* Elements(const tvm::ffi::TensorView& t) {
  return reinterpret_cast<T*>(static_cast<char*>(t.data_ptr()) + t.byte_offset());
}

// A packed function whose C++ exceptions become those of the FFI.
template <void (*kKernel)(tvm::ffi::PackedArgs, tvm::ffi::Any*)>
void Guarded(tvm::ffi::PackedArgs args, tvm::ffi::Any* result) {
  try {
    kKernel(args, result);
  } catch (const tvm::ffi::Error&) {
    throw;
  } catch (const std::invalid_argument& error) {
    TVM_FFI_THROW(ValueError) << error.what();
  } catch (const std::exception& error) {
    TVM_FFI_THROW(RuntimeError) << error.what();
  }
}

}  // namespace memc

#endif  // MEMC_CPU_PACKED_H_
