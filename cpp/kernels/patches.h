// SPDX-License-Identifier: Apache-2.0
// The patch matrix of a convolution [K terms, P pixels]: a row is one channel under one kernel tap.
#ifndef MEMC_PATCHES_H_
#define MEMC_PATCHES_H_

#include <cstdint>

#include "kernels/cpu_kernels.h"

namespace memc {

constexpr int64_t kStackPanel = int64_t{16} * 1024;  // Elements: 64 KiB of a thread's own stack.

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A part of the patch matrix.
struct Panel {
  int64_t depth;  // Rows.
  int64_t width;  // Pixels.
};

// The panel to use with room for `elements` floats: full depth and a good width if both fit.
Panel ChoosePanel(const Conv2dShape& shape, int64_t elements);

// Writes pixels [begin, end) of the row of the channel plane `x` and the tap (kh, kw).
void PatchRow(const Conv2dShape& shape, const float* x, int64_t kh, int64_t kw, int64_t begin,
              int64_t end, float* to);

// The inverse: adds scale * from[0, end - begin) to the elements of the plane `x` under the tap.
void AddPatchRow(const Conv2dShape& shape, const float* from, float scale, int64_t kh, int64_t kw,
                 int64_t begin, int64_t end, float* x);

// The sum of the whole row times g[0, pixels).
double DotPatchRow(const Conv2dShape& shape, const float* x, int64_t kh, int64_t kw,
                   const float* g);

}  // namespace memc

#endif  // MEMC_PATCHES_H_
