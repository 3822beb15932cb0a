// SPDX-License-Identifier: Apache-2.0
// CPU kernels for f32 tensors, dense and row-major. They use the calling process's TVM threads.
#ifndef MEMC_CPU_KERNELS_H_
#define MEMC_CPU_KERNELS_H_

#include <cstdint>
#include <limits>
#include <vector>

// Compiles a function several times, for older and newer x86-64 processors, and picks at load time.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define MEMC_CLONES __attribute__((target_clones("avx512f", "fma", "default")))
#else
#define MEMC_CLONES
#endif

namespace memc {

// What every element of a result is brought between last. NaN stays NaN.
struct Limits {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};

struct MatmulShape {
  int64_t m, n, k;                  // Extents of one product, in elements.
  bool transpose_a, transpose_b;    // Whether a is stored k x m, b n x k.
  std::vector<int64_t> a_at, b_at;  // First element of each product's operands, one per batch.
  Limits limits;                    // Of the result.
};

struct MatmulOperands {
  const float *a, *b;
  const float* bias;  // [n], or null.
  const float* add;   // As c, which it may be; or null.
  float* c;
};

// c[i] = a[i] b[i] + bias + add, within the limits, for every product i of the batch.
void Matmul(const MatmulShape& shape, const MatmulOperands& operands);

// One product, nothing transposed, with b in column panels (`panel_product.h`).
void PackedMatmul(const MatmulShape& shape, const MatmulOperands& operands);

struct Conv2dShape {
  int64_t batch, group;               // Images; channel groups.
  int64_t in_channels, out_channels;  // Over all groups.
  int64_t in_h, in_w, out_h, out_w;   // Pixels.
  int64_t kernel_h, kernel_w;         // Taps.
  int64_t stride_h, stride_w;         // Pixels.
  int64_t pad_top, pad_left;          // Pixels of zeros before the image.
  int64_t dilation_h, dilation_w;     // Pixels between taps.
  Limits limits;                      // Of the result.

  int64_t GroupIn() const { return in_channels / group; }
  int64_t GroupOut() const { return out_channels / group; }
  int64_t Depth() const { return GroupIn() * kernel_h * kernel_w; }  // Terms of one result element.
  int64_t Pixels() const { return out_h * out_w; }
  // The input itself is the matrix that the weights multiply.
  bool IsProduct() const {
    return kernel_h == 1 && kernel_w == 1 && stride_h == 1 && stride_w == 1 && pad_top == 0 &&
           pad_left == 0 && out_h == in_h && out_w == in_w;
  }
};

struct ConvOperands {
  const float* x;     // [batch, in_channels, in_h, in_w]
  const float* w;     // [out_channels, in_channels / group, kernel_h, kernel_w]
  const float* bias;  // [out_channels], or null.
  const float* add;   // As y, which it may be; or null.
  float* y;           // [batch, out_channels, out_h, out_w]
};

// y = conv(x, w) + bias + add, within the limits, as im2col in panels and matrix products; the
// panels lie in the workspace, whose size in bytes decides theirs, or with less than 64 KiB on the
// threads' stacks. A 1 x 1 convolution with stride 1 has no use for a workspace.
void Conv2d(const Conv2dShape& shape, const ConvOperands& operands, float* workspace,
            int64_t workspace_bytes);

// The same with each group's weights in row panels (`panel_product.h`), without workspace.
void PackedConv2d(const Conv2dShape& shape, const ConvOperands& operands);

// The same for one input channel per group, directly and without workspace. There is no add.
void DepthwiseConv2d(const Conv2dShape& shape, const ConvOperands& operands);

// The gradient in the weights: w[m, c, tap] = sum over images and pixels of g[m, pixel] times the
// element of x under the tap. x as of Conv2d, g as its y. Uses a workspace of more than 64 KiB for
// each thread.
void Conv2dGradWeight(const Conv2dShape& shape, const float* x, const float* g, float* w,
                      float* workspace, int64_t workspace_bytes);

// The gradient in x from that in y, which is a transposed convolution; bias [in_channels] is added
// if not null. Workspace as above.
void Conv2dGradData(const Conv2dShape& shape, const float* g, const float* w, const float* bias,
                    float* x, float* workspace, int64_t workspace_bytes);

// In place over `rows` rows of `columns` elements, `stride` elements apart: adds row_bias[row] or
// column_bias[column] where not null, then applies the limits.
void Epilogue(float* c, int64_t rows, int64_t columns, int64_t stride, const float* row_bias,
              const float* column_bias, const Limits& limits);

// Below this many multiply-adds, waking the other threads costs more than it gains.
constexpr int64_t kSerialWork = 1 << 15;

}  // namespace memc

#endif  // MEMC_CPU_KERNELS_H_
