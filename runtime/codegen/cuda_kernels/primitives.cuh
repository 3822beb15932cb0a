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
__device__ __forceinline__ int Threads() { return static_cast<int>(blockDim.x); }
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

// A number of 32 bits as those, and the other way round.
__device__ __forceinline__ unsigned BitsOf(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float FloatOf(unsigned bits) { return __uint_as_float(bits); }

// 2 to the power of a number, within 2 units in the last place; what is no normal number is 0.
__device__ __forceinline__ float PowerOfTwo(float exponent) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
}

// Two numbers as halves, the first one in the lower bits, to the nearest.
__device__ __forceinline__ float PackF16(float low, float high) {
  unsigned bits;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#else
  asm("{.reg .f16 a, b;\ncvt.rn.f16.f32 a, %1;\ncvt.rn.f16.f32 b, %2;\nmov.b32 %0, {a, b};}"
      : "=r"(bits)
      : "f"(low), "f"(high));
#endif
  return FloatOf(bits);
}
__device__ __forceinline__ float PackBf16(float low, float high) {
  unsigned bits;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#else
  const auto rounded = [](float value) {
    const unsigned all = BitsOf(value);
    return value == value ? (all + 0x7fffU + (all >> 16 & 1U)) >> 16 : 0x7fffU;
  };
  bits = rounded(low) | rounded(high) << 16;
#endif
  return FloatOf(bits);
}

// A half, given by its bits.
__device__ __forceinline__ float UnpackF16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// Elements of a warp for MultiplyAdd: four matrices of 8 x 4, of which each thread names a row (the
// first eight threads those of the first, and so on) and has element lane / 4, lane % 4.
__device__ __forceinline__ void LoadMatrices(float (&to)[4], const float* row) {
#if __CUDA_ARCH__ >= 750
  unsigned bits[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
               : "r"(AddressOf(row)));
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(bits[i]);
#endif
}

// The same of four matrices of 8 x 8 halves, across: a thread has elements 2 (lane % 4) and the
// next of column lane / 4.
__device__ __forceinline__ void LoadAcross(float (&to)[4], const float* row) {
#if __CUDA_ARCH__ >= 750
  unsigned bits[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
               : "r"(AddressOf(row)));
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = FloatOf(bits[i]);
#endif
}

// What tensor cores do, by other means: of each word of the factors, `dot` adds the product to a
// sum.
template <typename Dot>
__device__ __noinline__ void MultiplyAddSlowly(float (&sums)[4], const float (&a)[4],
                                               const float (&b)[2], const Dot& dot) {
  const int lane = Thread() % 32;
  const auto of = [](float value, int from) { return __shfl_sync(0xffffffffu, value, from); };
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float low = of(a[k / 4 * 2], lane / 4 * 4 + k % 4);
    const float high = of(a[k / 4 * 2 + 1], lane / 4 * 4 + k % 4);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float right = of(b[k / 4], (lane % 4 * 2 + n) * 4 + k % 4);
      sums[n] = dot(low, right, sums[n]);
      sums[n + 2] = dot(high, right, sums[n + 2]);
    }
  }
}

// Adds the product of matrices of 16 x 8 and 8 x 8 in TF32 to one of 16 x 8, on tensor cores. With
// g = lane / 4 and t = lane % 4, a thread has of the first those at (g, t), (g + 8, t), (g, t + 4)
// and (g + 8, t + 4), of the second (t, g) and (t + 4, g), and of the sums (g, 2 t), (g, 2 t + 1),
// (g + 8, 2 t) and (g + 8, 2 t + 1). Devices before sm_80 multiply in f32, on no tensor cores.
__device__ __forceinline__ void MultiplyAdd(float (&sums)[4], const float (&a)[4],
                                            const float (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#else
  MultiplyAddSlowly(sums, a, b, [](float x, float y, float sum) { return fmaf(x, y, sum); });
#endif
}

// The same of halves: 16 x 16 and 16 x 8, two elements, side by side in the depth, in the place of
// each one above.
__device__ __forceinline__ void MultiplyAddF16(float (&sums)[4], const float (&a)[4],
                                               const float (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(BitsOf(a[0])), "r"(BitsOf(a[1])), "r"(BitsOf(a[2])), "r"(BitsOf(a[3])),
        "r"(BitsOf(b[0])), "r"(BitsOf(b[1])));
#elif __CUDA_ARCH__ >= 750
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(BitsOf(a[2 * i])), "r"(BitsOf(a[2 * i + 1])), "r"(BitsOf(b[i])));
  }
#endif
}
__device__ __forceinline__ void MultiplyAddBf16(float (&sums)[4], const float (&a)[4],
                                                const float (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(BitsOf(a[0])), "r"(BitsOf(a[1])), "r"(BitsOf(a[2])), "r"(BitsOf(a[3])),
        "r"(BitsOf(b[0])), "r"(BitsOf(b[1])));
#else
  MultiplyAddSlowly(sums, a, b, [](float x, float y, float sum) {
    sum = fmaf(FloatOf(BitsOf(x) << 16), FloatOf(BitsOf(y) << 16), sum);
    return fmaf(FloatOf(BitsOf(x) & 0xffff0000U), FloatOf(BitsOf(y) & 0xffff0000U), sum);
  });
#endif
}

}  // namespace

#define SHARED_FLOATS(name, elements) __shared__ __align__(16) float name[elements]
// The same, of what the launch gives to a block.
#define GIVEN_FLOATS(name, elements) extern __shared__ __align__(16) float name[]
#endif

#endif  // MEMC_CUDA_KERNELS_PRIMITIVES_CUH_
