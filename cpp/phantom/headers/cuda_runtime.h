// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_CUDA_RUNTIME_H_
#define MEMC_PHANTOM_CUDA_RUNTIME_H_

// PyTorch's headers take the runtime's functions from here; what CUDA's own adds to them wants its
// compiler.
#include <cuda_runtime_api.h>

#endif  // MEMC_PHANTOM_CUDA_RUNTIME_H_
