// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_RUNNING_SUM_H_
#define MEMC_RUNNING_SUM_H_

#include "kernels/sorts.h"

namespace memc {

// The sums of each line's elements up to each, or of those before it if `exclusive`, or from it (or
// beyond it) to the end if `reverse`. Sums of floats are made in double: of blocks, whose extent
// follows from the line's, and then inside of each from what the blocks before amount to, so that
// they do not depend on the number of threads. Integers wrap around. Several lines, and blocks of
// long ones, are shared out to the threads. T: float, double or an unsigned integer, for signed
// ones as well.
template <typename T>
void RunningSum(const Lines& lines, bool exclusive, bool reverse, const T* x, T* y);

}  // namespace memc

#endif  // MEMC_RUNNING_SUM_H_
