// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_ERRORS_H_
#define MEMC_PHANTOM_ERRORS_H_

#include <cuda_runtime_api.h>

namespace phantom {

// The error, which cudaGetLastError tells once more in this thread.
cudaError_t Failed(cudaError_t error);

}  // namespace phantom

#endif  // MEMC_PHANTOM_ERRORS_H_
