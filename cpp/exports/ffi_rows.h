// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_FFI_ROWS_H_
#define MEMC_FFI_ROWS_H_

#include <tvm/ffi/container/tensor.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "exports/ffi_arrays.h"
#include "solvers/common/rows.h"

namespace memc {

// Rows from Python's two arrays of i64: where each of the `rows` rows begins, and the indices.
// Throws std::invalid_argument naming `what` if they are none.
inline Rows MakeRows(tvm::ffi::TensorView first, tvm::ffi::TensorView index, int64_t rows,
                     const char* what) {
  Rows made;
  const int64_t* start = Int64s(first, rows + 1, what);
  made.first.assign(start, start + rows + 1);
  const int64_t* from = Int64s(index, -1, what);
  made.index.reserve(index.size(0));
  for (int64_t i = 0; i < index.size(0); ++i) {
    if (from[i] < 0 || from[i] > std::numeric_limits<int32_t>::max()) {
      throw std::invalid_argument(std::string(what) + " index " + std::to_string(from[i]) +
                                  " is out of range");
    }
    made.index.push_back(static_cast<int32_t>(from[i]));
  }
  return made;
}

}  // namespace memc

#endif  // MEMC_FFI_ROWS_H_
