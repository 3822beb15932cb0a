// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_RUNNING_PRODUCT_H_
#define MEMC_RUNNING_PRODUCT_H_

#include "kernels/sorts.h"

namespace memc {

// The products of each line's elements up to each, or of those before it if `exclusive`, or from it
// (or beyond it) to the end if `reverse`. Multiplies one element after another, because products of
// parts would overflow where the whole is zero or small. Integers wrap around. Several lines are
// shared out to the threads. T: float, double or an unsigned integer, for signed ones as well.
template <typename T>
void RunningProduct(const Lines& lines, bool exclusive, bool reverse, const T* x, T* y);

}  // namespace memc

#endif  // MEMC_RUNNING_PRODUCT_H_
