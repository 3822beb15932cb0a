// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_CUDA_FP16_H_
#define MEMC_PHANTOM_CUDA_FP16_H_

// A number of two bytes, of which cuBLAS's header takes the name; CUDA's own header wants its
// compiler's.
struct __half {
  unsigned short bits;
};

#endif  // MEMC_PHANTOM_CUDA_FP16_H_
