// SPDX-License-Identifier: Apache-2.0
// What the kernels of this folder use of CUDA: places, copies, barriers and the memory of clusters.
//
// With CUDA_KERNELS_HOST, the file that names is included for what CUDA has and a host has not.
#ifndef MEMC_CUDA_KERNELS_PRIMITIVES_CUH_
#define MEMC_CUDA_KERNELS_PRIMITIVES_CUH_

#ifdef CUDA_KERNELS_HOST
#include CUDA_KERNELS_HOST
#else

namespace {

__device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int Block() { return static_cast<int>(blockIdx.x); }
__device__ __forceinline__ int Blocks() { return static_cast<int>(gridDim.x); }
__device__ __forceinline__ int Matrix() { return static_cast<int>(blockIdx.y); }
__device__ __forceinline__ void SyncBlock() { __syncthreads(); }
__device__ __forceinline__ void SyncWarp() { __syncwarp(); }

// What the thread has whose place in the warp differs in the bits of `mask`.
__device__ __forceinline__ float Exchange(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

__device__ __forceinline__ unsigned AddressOf(const float* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// Copy `bytes`, 0 for the rest of 4 or 16, as part of what the next CommitCopies closes. Devices
// before sm_80 copy at once.
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ void CopyAsync4(float* to, const float* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(AddressOf(to)), "l"(from),
               "r"(bytes));
}
__device__ __forceinline__ void CopyAsync16(float* to, const float* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(AddressOf(to)), "l"(from),
               "r"(bytes));
}
__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;"); }

// Waits for this thread's copies but for the last kBut groups of them.
template <int kBut>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kBut) : "memory");
}
#else
__device__ __forceinline__ void CopyAsync4(float* to, const float* from, int bytes) {
  *to = bytes > 0 ? *from : 0.0F;
}
__device__ __forceinline__ void CopyAsync16(float* to, const float* from, int bytes) {
  float4 four = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  if (bytes == 16) {
    four = *reinterpret_cast<const float4*>(from);
  } else {
    if (bytes > 0) four.x = from[0];
    if (bytes > 4) four.y = from[1];
    if (bytes > 8) four.z = from[2];
  }
  *reinterpret_cast<float4*>(to) = four;
}
__device__ __forceinline__ void CommitCopies() {}

template <int kBut>
__device__ __forceinline__ void WaitForCopies() {}
#endif

// Blocks of older devices are alone.
__device__ __forceinline__ void SyncCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

// Four elements of another block of the cluster, from where this block has `shared`.
__device__ __forceinline__ float4 ReadShared(const float* shared, int block) {
#if __CUDA_ARCH__ >= 900
  unsigned address;
  float4 four;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(AddressOf(shared)), "r"(block));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(address)
               : "memory");
  return four;
#else
  return *reinterpret_cast<const float4*>(shared);
#endif
}

}  // namespace

#define SHARED_FLOATS(name, elements) __shared__ __align__(16) float name[elements]
// The same, of what the launch gives to a block.
#define GIVEN_FLOATS(name, elements) extern __shared__ __align__(16) float name[]
#endif

#endif  // MEMC_CUDA_KERNELS_PRIMITIVES_CUH_
