// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_CRT_HOST_DEFINES_H_
#define MEMC_PHANTOM_CRT_HOST_DEFINES_H_

// What CUDA's headers take from those of its compiler, which come with no package of PyTorch's:
// marks that mean nothing to another compiler, alignment, and how functions are called.
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __location__(place)
#define __forceinline__ inline
#define __no_return__ __attribute__((noreturn))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __align__(bytes)

#endif  // MEMC_PHANTOM_CRT_HOST_DEFINES_H_
