// SPDX-License-Identifier: Apache-2.0
// cuDNN of fake_cuda.h.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fake_cuda.h"

namespace {

using namespace fake;

constexpr int kNotSupported = 3000;

struct Tensor {
  std::vector<int> shape;
  std::vector<int> strides;
  int type = 0;
};

struct Convolution {
  std::vector<int> pads, strides, dilations;
  int math = 0;
  int groups = 1;
};

int Offset(const Tensor& t, const std::vector<int>& at) {
  int offset = 0;
  for (size_t i = 0; i < at.size(); ++i) offset += at[i] * t.strides[i];
  return offset;
}

// Calls visit(index of x, of w, of y) for every product of a convolution.
template <typename Visit>
void Products(const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c,
              const Visit& visit) {
  const size_t axes = c.pads.size();
  std::vector<int> at_y(axes + 2, 0);
  std::vector<int> at_w(axes + 2, 0);
  std::vector<int> at_x(axes + 2, 0);
  const int per_group = y.shape[1] / c.groups;
  const auto next = [](std::vector<int>& at, const std::vector<int>& shape, size_t from) {
    for (size_t i = at.size(); i-- > from;) {
      if (++at[i] < shape[i]) return true;
      at[i] = 0;
    }
    return false;
  };
  do {
    do {
      at_w[0] = at_y[1];
      at_x[0] = at_y[0];
      at_x[1] = at_y[1] / per_group * w.shape[1] + at_w[1];
      bool inside = true;
      for (size_t i = 0; i < axes; ++i) {
        const int p = at_y[i + 2] * c.strides[i] - c.pads[i] + at_w[i + 2] * c.dilations[i];
        inside = inside && p >= 0 && p < x.shape[i + 2];
        at_x[i + 2] = p;
      }
      if (inside) visit(Offset(x, at_x), Offset(w, at_w), Offset(y, at_y));
    } while (next(at_w, w.shape, 1));
  } while (next(at_y, y.shape, 0));
}

size_t Elements(const Tensor& t) {
  size_t n = 1;
  for (const int d : t.shape) n *= static_cast<size_t>(d);
  return n;
}

std::vector<float> Values(const void* data, const Tensor& t) {
  std::vector<float> found(Elements(t));
  for (size_t i = 0; i < found.size(); ++i) found[i] = Get(data, t.type, i);
  return found;
}

void Put(void* data, const Tensor& t, const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) Set(data, t.type, i, values[i]);
}

struct Perf {
  int algo, status;
  float time;
  size_t memory;
  int determinism, math_type, reserved[3];
};

// Algorithm 0 is not deterministic, 1 needs 64 bytes of workspace, 2 none, 3 is not supported. With
// FAKE_CUDNN_STEADY_BYTES, 2 needs so many bytes, and 0 can run, too; with FAKE_CUDNN_IMAGE_BYTES,
// only 1 is supported, and needs so many for each image.
int List(const Tensor& x, int most, int* count, Perf* perf) {
  if (const char* each = std::getenv("FAKE_CUDNN_IMAGE_BYTES")) {
    perf[0] = {1, 0, 1, std::strtoul(each, nullptr, 10) * x.shape[0], 1, 3, {}};
    return *count = 1, 0;
  }
  const char* steady = std::getenv("FAKE_CUDNN_STEADY_BYTES");
  const Perf all[] = {
      {0, 0, 1, 0, 0, 3, {}},
      {1, 0, 2, 64, 1, 3, {}},
      {2, 0, 3, steady == nullptr ? 0 : std::strtoul(steady, nullptr, 10), 1, 3, {}},
      {3, kNotSupported, -1, 0, 1, 3, {}}};
  *count = most < 4 ? most : 4;
  for (int i = 0; i < *count; ++i) perf[i] = all[i];
  return 0;
}

// What a call of an algorithm with this workspace returns.
int Check(const char* name, const Convolution& c, int algo, void* workspace, size_t bytes) {
  if (Fails(name)) return kFails;
  const bool any = std::getenv("FAKE_CUDNN_STEADY_BYTES") != nullptr;
  if ((c.math != 3 && c.math != 0 && c.math != 1) || (algo != 1 && algo != 2 && !any))
    return kFails;
  if (algo == 1 && (bytes < 64 || workspace == nullptr)) return kFails;
  if (algo == 1) std::memset(workspace, 0xFF, 64);
  return 0;
}

std::vector<float> Forward(const void* x, const Tensor& xt, const void* w, const Tensor& wt,
                           const Convolution& c, const Tensor& yt) {
  const std::vector<float> image = Values(x, xt), weights = Values(w, wt);
  std::vector<double> sums(Elements(yt), 0.0);
  Products(xt, wt, yt, c,
           [&](int i, int j, int k) { sums[k] += static_cast<double>(image[i]) * weights[j]; });
  return {sums.begin(), sums.end()};
}

// c += a, which has extents of 1 where it is spread out.
void Add(const std::vector<float>& a, const Tensor& at, std::vector<float>& c, const Tensor& ct) {
  for (size_t i = 0; i < Elements(ct); ++i) {
    size_t rest = i;
    int from = 0;
    int to = 0;
    for (size_t axis = ct.shape.size(); axis-- > 0;) {
      const int index = static_cast<int>(rest % ct.shape[axis]);
      rest /= ct.shape[axis];
      if (at.shape[axis] != 1) from += index * at.strides[axis];
      to += index * ct.strides[axis];
    }
    c[to] += a[from];
  }
}

}  // namespace

extern "C" {

int used_math = 0;

int cudnnCreate(void** h) { return Fails("cudnnCreate") ? kFails : (*h = new int(0), 0); }
int cudnnSetStream(void*, void*) { return 0; }
const char* cudnnGetErrorString(int) { return "FAKE_CUDNN_ERROR"; }
void cudnnGetLastErrorString(char* text, size_t size) { std::strncpy(text, "no reason", size); }
size_t cudnnGetVersion() { return 90000; }
int cudnnCreateTensorDescriptor(void** h) { return Make<Tensor>("cudnnCreateTensorDescriptor", h); }
int cudnnDestroyTensorDescriptor(void* h) { return End<Tensor>(h); }
int cudnnSetTensorNdDescriptor(void* h, int type, int rank, const int* shape, const int* strides) {
  As<Tensor>(h) = {{shape, shape + rank}, {strides, strides + rank}, type == 9 ? kBf16 : type};
  return rank < 4 || Fails("cudnnSetTensorNdDescriptor") ? kFails : 0;
}
int cudnnCreateFilterDescriptor(void** h) { return Make<Tensor>("cudnnCreateFilterDescriptor", h); }
int cudnnDestroyFilterDescriptor(void* h) { return End<Tensor>(h); }
int cudnnSetFilterNdDescriptor(void* h, int type, int format, int rank, const int* shape) {
  std::vector<int> strides(rank, 1);
  if (format == 1) {  // With the channels last.
    int step = shape[1];
    for (int i = rank - 1; i > 1; --i) strides[i] = step, step *= shape[i];
    strides[0] = step;
  } else {
    for (int i = rank - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
  }
  As<Tensor>(h) = {{shape, shape + rank}, strides, type == 9 ? kBf16 : type};
  return Fails("cudnnSetFilterNdDescriptor") ? kFails : 0;
}
int cudnnCreateConvolutionDescriptor(void** h) {
  return Make<Convolution>("cudnnCreateConvolutionDescriptor", h);
}
int cudnnDestroyConvolutionDescriptor(void* h) { return End<Convolution>(h); }
int cudnnSetConvolutionNdDescriptor(void* h, int rank, const int* pads, const int* strides,
                                    const int* dilations, int, int) {
  auto& c = As<Convolution>(h);
  c.pads.assign(pads, pads + rank);
  c.strides.assign(strides, strides + rank);
  c.dilations.assign(dilations, dilations + rank);
  return Fails("cudnnSetConvolutionNdDescriptor") ? kFails : 0;
}
int cudnnSetConvolutionMathType(void* h, int math) {
  As<Convolution>(h).math = math;
  return Fails("cudnnSetConvolutionMathType") ? kFails : 0;
}
int cudnnSetConvolutionGroupCount(void* h, int n) {
  As<Convolution>(h).groups = n;
  return Fails("cudnnSetConvolutionGroupCount") ? kFails : 0;
}
int cudnnCreateActivationDescriptor(void** h) {
  return Make<int>("cudnnCreateActivationDescriptor", h);
}
int cudnnDestroyActivationDescriptor(void* h) { return End<int>(h); }
int cudnnSetActivationDescriptor(void*, int mode, int, double) {
  return mode == 1 && !Fails("cudnnSetActivationDescriptor") ? 0 : kFails;
}

int cudnnGetConvolutionForwardAlgorithm_v7(void*, void* x, void*, void*, void*, int most,
                                           int* count, Perf* perf) {
  return List(As<Tensor>(x), most, count, perf);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, void*, void*, void*, void* x, int most,
                                                int* count, Perf* perf) {
  return List(As<Tensor>(x), most, count, perf);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, void* x, void*, void*, void*, int most,
                                                  int* count, Perf* perf) {
  return List(As<Tensor>(x), most, count, perf);
}

int cudnnConvolutionForward(void*, const void*, void* xt, const void* x, void* wt, const void* w,
                            void* c, int algo, void* workspace, size_t bytes, const void* beta,
                            void* yt, void* y) {
  ++calls;
  const int status = Check("cudnnConvolutionForward", As<Convolution>(c), algo, workspace, bytes);
  if (status != 0) return status;
  const auto& to = As<Tensor>(yt);
  auto result = Forward(x, As<Tensor>(xt), w, As<Tensor>(wt), As<Convolution>(c), to);
  if (*static_cast<const float*>(beta) != 0) Add(Values(y, to), to, result, to);
  return Put(y, to, result), 0;
}

int cudnnConvolutionBiasActivationForward(void*, const void*, void* xt, const void* x, void* wt,
                                          const void* w, void* c, int algo, void* workspace,
                                          size_t bytes, const void* alpha_z, void* zt,
                                          const void* z, void* bt, const void* bias, void*,
                                          void* yt, void* y) {
  ++calls;
  const int status =
      Check("cudnnConvolutionBiasActivationForward", As<Convolution>(c), algo, workspace, bytes);
  if (status != 0) return status;
  const auto& to = As<Tensor>(yt);
  auto result = Forward(x, As<Tensor>(xt), w, As<Tensor>(wt), As<Convolution>(c), to);
  Add(Values(bias, As<Tensor>(bt)), As<Tensor>(bt), result, to);
  if (*static_cast<const float*>(alpha_z) != 0)
    Add(Values(z, As<Tensor>(zt)), As<Tensor>(zt), result, to);
  for (float& value : result) value = std::fmax(value, 0.0F);
  return Put(y, to, result), 0;
}

int cudnnConvolutionBackwardData(void*, const void*, void* wt, const void* w, void* yt,
                                 const void* y, void* c, int algo, void* workspace, size_t bytes,
                                 const void*, void* xt, void* x) {
  ++calls;
  const int status =
      Check("cudnnConvolutionBackwardData", As<Convolution>(c), algo, workspace, bytes);
  if (status != 0) return status;
  const auto &to = As<Tensor>(xt), &from = As<Tensor>(yt), &of_w = As<Tensor>(wt);
  const std::vector<float> g = Values(y, from), weights = Values(w, of_w);
  std::vector<float> result(Elements(to), 0.0F);
  Products(to, of_w, from, As<Convolution>(c),
           [&](int i, int j, int k) { result[i] += g[k] * weights[j]; });
  return Put(x, to, result), 0;
}

int cudnnConvolutionBackwardFilter(void*, const void*, void* xt, const void* x, void* yt,
                                   const void* y, void* c, int algo, void* workspace, size_t bytes,
                                   const void* beta, void* wt, void* w) {
  ++calls;
  used_math |= 1 << As<Convolution>(c).math;
  const int status =
      Check("cudnnConvolutionBackwardFilter", As<Convolution>(c), algo, workspace, bytes);
  if (status != 0) return status;
  const auto &to = As<Tensor>(wt), &from = As<Tensor>(yt), &of_x = As<Tensor>(xt);
  const std::vector<float> g = Values(y, from), image = Values(x, of_x);
  std::vector<float> result(Elements(to), 0.0F);
  if (*static_cast<const float*>(beta) != 0) result = Values(w, to);
  Products(of_x, to, from, As<Convolution>(c),
           [&](int i, int j, int k) { result[j] += g[k] * image[i]; });
  return Put(w, to, result), 0;
}

int cudnnAddTensor(void*, const void*, void* at, const void* a, const void*, void* ct, void* c) {
  ++calls;
  auto result = Values(c, As<Tensor>(ct));
  Add(Values(a, As<Tensor>(at)), As<Tensor>(at), result, As<Tensor>(ct));
  return Put(c, As<Tensor>(ct), result), 0;
}
int cudnnActivationForward(void*, void*, const void*, void* xt, const void* x, const void*, void*,
                           void* y) {
  ++calls;
  auto result = Values(x, As<Tensor>(xt));
  for (float& value : result) value = std::fmax(value, 0.0F);
  return Put(y, As<Tensor>(xt), result), 0;
}

}  // extern "C"
