// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_conv_site.h"

#include <algorithm>
#include <utility>

namespace memc::cuda {

namespace {

int TypeOf(Element element) {
  return element == kF32 ? kCudnnFloat : element == kF16 ? kCudnnHalf : kCudnnBfloat16;
}

Owned<CudnnTensor> Tensor(const Convolution& c, const std::array<int, 5>& shape) {
  const Cudnn& cudnn = LoadCudnn();
  const int rank = c.rank + 2;
  std::array<int, 5> strides{};
  int step = 1;
  if (c.channels_last) {
    strides[1] = step;
    step *= shape[1];
  }
  for (int i = rank - 1; i >= 0; --i) {
    if (c.channels_last && i == 1) continue;
    strides[i] = step;
    step *= shape[i];
  }
  auto made = Made(cudnn.create_tensor, CheckCudnn, "cudnnCreateTensorDescriptor");
  CheckCudnn(cudnn.set_tensor(made.get(), TypeOf(c.type), rank, shape.data(), strides.data()),
             "cudnnSetTensorNdDescriptor");
  return made;
}

}  // namespace

Key KeyOf(Kind kind, const Convolution& c, bool bias, Residual residual, size_t bytes) {
  Key key{kind, c.rank, c.group, c.relu, c.tf32, bias, residual, static_cast<int64_t>(bytes)};
  key.back() = c.type;
  key[key.size() - 2] = c.channels_last;
  auto at = key.begin() + 8;
  for (int i = 0; i < c.rank; ++i) {
    *at++ = c.strides[i];
    *at++ = c.pads[i];
    *at++ = c.dilations[i];
  }
  // The other extents follow from these.
  at = std::copy_n(c.x.begin(), c.rank + 2, at);
  at = std::copy_n(c.w.begin(), c.rank + 2, at);
  std::copy_n(c.y.begin() + 2, c.rank, at);
  return key;
}

size_t Elements(const std::array<int, 5>& shape, int rank) {
  size_t elements = 1;
  for (int i = 0; i < rank + 2; ++i) elements *= static_cast<size_t>(shape[i]);
  return elements;
}

ConvolutionSite Describe(const Convolution& c, int channels) {
  const Cudnn& cudnn = LoadCudnn();
  ConvolutionSite made;
  made.bias = Tensor(c, {1, channels, 1, 1, 1});
  made.w = Made(cudnn.create_filter, CheckCudnn, "cudnnCreateFilterDescriptor");
  const int format = c.channels_last ? kCudnnNhwc : kCudnnNchw;
  CheckCudnn(cudnn.set_filter(made.w.get(), TypeOf(c.type), format, c.rank + 2, c.w.data()),
             "cudnnSetFilterNdDescriptor");
  made.convolution = Made(cudnn.create_convolution, CheckCudnn, "cudnnCreateConvolutionDescriptor");
  CheckCudnn(cudnn.set_convolution(made.convolution.get(), c.rank, c.pads.data(), c.strides.data(),
                                   c.dilations.data(), kCudnnCrossCorrelation, kCudnnFloat),
             "cudnnSetConvolutionNdDescriptor");
  CheckCudnn(cudnn.set_groups(made.convolution.get(), c.group), "cudnnSetConvolutionGroupCount");
  made.activation = Made(cudnn.create_activation, CheckCudnn, "cudnnCreateActivationDescriptor");
  CheckCudnn(cudnn.set_activation(made.activation.get(), kCudnnRelu, kCudnnPropagateNan, 0),
             "cudnnSetActivationDescriptor");
  return made;
}

const Images& ImagesOf(const Convolution& c, int64_t parts, ConvolutionSite& site) {
  const auto known = site.images.find(parts);
  if (known != site.images.end()) return known->second;
  Convolution part = c;
  part.x[0] /= static_cast<int>(parts);
  part.y[0] /= static_cast<int>(parts);
  Images made{Tensor(c, part.x), Tensor(c, part.y)};
  return site.images.emplace(parts, std::move(made)).first->second;
}

void SetMath(const Convolution& c, const ConvolutionSite& s, int64_t math) {
  if (c.type == kF32) math = math != 0 ? kCudnnDefaultMath : kCudnnFmaMath;
  CheckCudnn(LoadCudnn().set_math(s.convolution.get(), static_cast<int>(math)),
             "cudnnSetConvolutionMathType");
}

}  // namespace memc::cuda
