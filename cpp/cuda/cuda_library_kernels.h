// SPDX-License-Identifier: Apache-2.0
// Kernels of the CUDA libraries on row-major tensors in device memory: of f32, in strict f32 or
// with factors rounded to TF32, or of halves, added up in f32. Each call is enqueued on its stream
// and takes no memory but the workspace. All throw std::runtime_error where a library is missing or
// a call fails, std::invalid_argument for what the library cannot do.
#ifndef MEMC_CUDA_LIBRARY_KERNELS_H_
#define MEMC_CUDA_LIBRARY_KERNELS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "cuda/cuda_context.h"

namespace memc::cuda {

// What a product is scaled by and what is added to it: a scalar, a row bias[n], and a residual,
// which may be where the result goes. All lie in device memory; null for none. The scale is f32,
// the others have the result's type.
struct Terms {
  const float* scale = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
};

// c[i] = scale op(a[i]) op(b[i]) + bias + residual[i], then at least 0 if `relu`.
struct Product {
  bool transpose_a = false;  // a[i] is k x m.
  bool transpose_b = false;  // b[i] is n x k.
  bool relu = false;
  bool tf32 = false;
  Element factors = kF32;
  Element result = kF32;  // f32, or what the factors are.
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  int64_t stride_a = 0;  // Elements from one matrix to the next; 0: one for all.
  int64_t stride_b = 0;
};

void Matmul(const Product& product, const Place& place, const void* a, const void* b,
            const Terms& terms, void* c);

// The parts of Matmul: the descriptors, the ways to compute it that fit some bytes of workspace, in
// the order of the library's guess, and one way, whose status is returned.
ProductSite DescribeProduct(const Product& product, const Terms& terms);
std::vector<Choice> WaysOfProduct(const ProductSite& site, LtHandle* handle, size_t bytes);
int RunProduct(Context& context, const ProductSite& site, const Choice& choice, const Place& place,
               const void* a, const void* b, const Terms& terms, void* c);

// A convolution of x [N, C, spatial...] with w [M, C / group, kernel...] that makes y, over `rank`
// spatial axes, 2 or 3; the pads are the same on both sides, but y may have no window that reaches
// into the last ones. With the channels last in memory, tensors are x [N, spatial..., C],
// w [M, kernel..., C / group] and y alike; the extents below are in the order above all the same.
struct Convolution {
  int rank = 2;
  int group = 1;
  bool channels_last = false;
  bool relu = false;  // Of the result of Convolve.
  bool tf32 = false;
  Element type = kF32;  // Of all tensors.
  std::array<int, 5> x{};
  std::array<int, 5> w{};
  std::array<int, 5> y{};
  std::array<int, 3> strides{};
  std::array<int, 3> pads{};
  std::array<int, 3> dilations{};
};

// y = x * w + bias + residual; either may be null, and y may be the residual.
void Convolve(const Convolution& shape, const Place& place, const void* x, const void* w,
              const void* bias, const void* residual, void* y);

// The gradient in x for the gradient y in the result; with a bias [C], plus that.
void ConvolveData(const Convolution& shape, const Place& place, const void* y, const void* w,
                  const void* bias, void* x);

// The gradient in w.
void ConvolveFilter(const Convolution& shape, const Place& place, const void* x, const void* y,
                    void* w);

// Convolutions that are products of matrices (cuda_pointwise.cc): every element of y is a product
// of w with one position of x.
bool IsPointwise(const Convolution& c);

// y[i] = w x[i] (kForward), or x[i] = w' y[i] (kData), with images as matrices [channels,
// positions]; with the channels last one product of all positions, y = x w', which adds bias and
// residual and applies ReLU, x = y w, or w = y' x (kFilter).
Product ProductOf(Kind kind, const Convolution& c);

// The ways to compute the gradient in f32 weights by products, added to `sums` as they need it, and
// one way, whose status is returned.
std::vector<Choice> WaysOfSums(Context& context, const Convolution& c, size_t bytes,
                               std::map<int64_t, PartialSums>& sums);
int RunSums(Context& context, const Convolution& c, std::map<int64_t, PartialSums>& sums,
            const Choice& choice, const Place& place, const float* x, const float* y, float* w);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_LIBRARY_KERNELS_H_
