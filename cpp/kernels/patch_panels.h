// SPDX-License-Identifier: Apache-2.0
// The patch matrix of a convolution in column panels (`panel_product.h`).
#ifndef MEMC_PATCH_PANELS_H_
#define MEMC_PATCH_PANELS_H_

#include <cstdint>

#include "kernels/cpu_kernels.h"

namespace memc {

// The images of one group, of which patches are made.
struct PatchSource {
  const float* x;            // The image's first channel of the group.
  const float *begin, *end;  // The whole tensor, beyond which nothing is read.
};

// Terms [term, term + depth) of the pixels [begin, end): for each 16 pixels, depth x 16 elements,
// zeros for pixels that do not exist.
void PackPatches(const Conv2dShape& shape, const PatchSource& source, int64_t term, int64_t depth,
                 int64_t begin, int64_t end, float* to);

}  // namespace memc

#endif  // MEMC_PATCH_PANELS_H_
