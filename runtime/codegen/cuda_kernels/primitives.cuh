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

// One of those.
__device__ __forceinline__ float ReadOne(const float* shared, int block) {
#if __CUDA_ARCH__ >= 900
  unsigned address;
  float one;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(AddressOf(shared)), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(one) : "r"(address) : "memory");
  return one;
#else
  return *shared;
#endif
}

// The nearest of the numbers that TF32 has, those halfway away from zero, but for the last 13 bits,
// which products do not read. Infinities and nan stay.
__device__ __forceinline__ float RoundedToTf32(float value) {
  return fabsf(value) < INFINITY ? __uint_as_float(__float_as_uint(value) + 0x1000U) : value;
}

// Elements of a warp for MultiplyAdd: four matrices of 8 x 4, of which each thread names a row (the
// first eight threads those of the first, and so on) and has element lane / 4, lane % 4.
__device__ __forceinline__ void LoadMatrices(float (&to)[4], const float* row) {
#if __CUDA_ARCH__ >= 800
  unsigned bits[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
               : "r"(AddressOf(row)));
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(bits[i]);
#endif
}

// Adds the product of matrices of 16 x 8 and 8 x 8 in TF32 to one of 16 x 8, on tensor cores. With
// g = lane / 4 and t = lane % 4, a thread has of the first those at (g, t), (g + 8, t), (g, t + 4)
// and (g + 8, t + 4), of the second (t, g) and (t + 4, g), and of the sums (g, 2 t), (g, 2 t + 1),
// (g + 8, 2 t) and (g + 8, 2 t + 1). Devices before sm_80 have none of this.
__device__ __forceinline__ void MultiplyAdd(float (&sums)[4], const float (&a)[4],
                                            const float (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#endif
}

}  // namespace

#define SHARED_FLOATS(name, elements) __shared__ __align__(16) float name[elements]
// The same, of what the launch gives to a block.
#define GIVEN_FLOATS(name, elements) extern __shared__ __align__(16) float name[]
#endif

#endif  // MEMC_CUDA_KERNELS_PRIMITIVES_CUH_
