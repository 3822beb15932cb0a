// SPDX-License-Identifier: Apache-2.0
// What the doors for Python share: host arrays of i64, and exceptions of the same meaning.
#ifndef MEMC_FFI_ARRAYS_H_
#define MEMC_FFI_ARRAYS_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <new>
#include <stdexcept>
#include <string>

#include "solvers/common/watch.h"

namespace memc {

// Runs `body`; a C++ exception becomes the Python exception of the same meaning.
template <typename Fn>
auto Translate(Fn body) {
  try {
    return body();
  } catch (const std::invalid_argument& error) {
    TVM_FFI_THROW(ValueError) << error.what();
  } catch (const std::overflow_error& error) {
    TVM_FFI_THROW(OverflowError) << error.what();
  } catch (const Cancelled& error) {
    TVM_FFI_THROW(InterruptedError) << error.what();
  } catch (const std::bad_alloc&) {
    TVM_FFI_THROW(MemoryError) << "not enough memory for the solver";
  }
  TVM_FFI_UNREACHABLE();
}

// The elements of a one-dimensional contiguous host array of i64, of `length` elements unless that
// is negative. Throws std::invalid_argument naming `what` otherwise.
inline int64_t* Int64s(tvm::ffi::TensorView array, int64_t length, const char* what) {
  const DLDataType type = array.dtype();
  if (type.code != kDLInt || type.bits != 64 || type.lanes != 1 || array.ndim() != 1 ||
      !array.IsContiguous() || array.device().device_type != kDLCPU) {
    throw std::invalid_argument(std::string(what) + " must be a one-dimensional host array of i64");
  }
  if (length >= 0 && array.size(0) != length) {
    throw std::invalid_argument(std::string(what) + " has " + std::to_string(array.size(0)) +
                                " elements, expected " + std::to_string(length));
  }
  return reinterpret_cast<int64_t*>(static_cast<char*>(array.data_ptr()) + array.byte_offset());
}

// The watch whose numbers an array has. Throws std::invalid_argument for another number of them.
inline Watch MakeWatch(tvm::ffi::TensorView slots) {
  return Watch(Int64s(slots, Watch::kSlots, "watch"));
}

}  // namespace memc

#endif  // MEMC_FFI_ARRAYS_H_
