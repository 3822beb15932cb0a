// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN, with deterministic algorithms in strict f32 alone.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include "memc/cuda_kernels.h"

namespace memc::cuda {

namespace {

constexpr int kMostAlgorithms = 16;
constexpr float kOne = 1;
constexpr float kZero = 0;

// How a convolution adds a residual.
enum Residual : int64_t { kNone, kBeside, kInPlace };

Key KeyOf(Kind kind, const Convolution& c, bool bias, Residual residual, size_t bytes) {
  Key key{kind, c.rank, c.group, c.relu, bias, residual, static_cast<int64_t>(bytes)};
  auto at = key.begin() + 7;
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

Handle Tensor(const std::array<int, 5>& shape, int rank) {
  const Cudnn& cudnn = LoadCudnn();
  std::array<int, 5> strides{};
  int step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  Handle made = nullptr;
  CheckCudnn(cudnn.create_tensor(&made), "cudnnCreateTensorDescriptor");
  CheckCudnn(cudnn.set_tensor(made, kCudnnFloat, rank, shape.data(), strides.data()),
             "cudnnSetTensorNdDescriptor");
  return made;
}

size_t Bytes(const std::array<int, 5>& shape, int rank) {
  size_t bytes = sizeof(float);
  for (int i = 0; i < rank + 2; ++i) bytes *= static_cast<size_t>(shape[i]);
  return bytes;
}

// The descriptors of a convolution with `channels` biases, without an algorithm.
ConvolutionSite Describe(const Convolution& c, int channels) {
  const Cudnn& cudnn = LoadCudnn();
  ConvolutionSite made;
  made.x = Tensor(c.x, c.rank + 2);
  made.y = Tensor(c.y, c.rank + 2);
  made.bias = Tensor({1, channels, 1, 1, 1}, c.rank + 2);
  CheckCudnn(cudnn.create_filter(&made.w), "cudnnCreateFilterDescriptor");
  CheckCudnn(cudnn.set_filter(made.w, kCudnnFloat, kCudnnNchw, c.rank + 2, c.w.data()),
             "cudnnSetFilterNdDescriptor");
  CheckCudnn(cudnn.create_convolution(&made.convolution), "cudnnCreateConvolutionDescriptor");
  CheckCudnn(cudnn.set_convolution(made.convolution, c.rank, c.pads.data(), c.strides.data(),
                                   c.dilations.data(), kCudnnCrossCorrelation, kCudnnFloat),
             "cudnnSetConvolutionNdDescriptor");
  CheckCudnn(cudnn.set_math(made.convolution, kCudnnFmaMath), "cudnnSetConvolutionMathType");
  CheckCudnn(cudnn.set_groups(made.convolution, c.group), "cudnnSetConvolutionGroupCount");
  CheckCudnn(cudnn.create_activation(&made.activation), "cudnnCreateActivationDescriptor");
  CheckCudnn(cudnn.set_activation(made.activation, kCudnnRelu, kCudnnPropagateNan, 0),
             "cudnnSetActivationDescriptor");
  return made;
}

// The algorithms that fit the workspace, in the order of the library's guess: the deterministic
// ones; if none fits, the others, which say so once for each call site.
std::vector<int> Algorithms(Kind kind, const ConvolutionSite& s, Handle handle, size_t bytes) {
  const Cudnn& cudnn = LoadCudnn();
  std::array<CudnnPerf, kMostAlgorithms> perf{};
  int count = 0;
  int status = 0;
  switch (kind) {
    case kForward:
      status = cudnn.get_forward(handle, s.x, s.w, s.convolution, s.y, kMostAlgorithms, &count,
                                 perf.data());
      break;
    case kData:
      status = cudnn.get_data(handle, s.w, s.y, s.convolution, s.x, kMostAlgorithms, &count,
                              perf.data());
      break;
    case kFilter:
      status = cudnn.get_filter(handle, s.x, s.y, s.convolution, s.w, kMostAlgorithms, &count,
                                perf.data());
      break;
    default:
      throw std::invalid_argument("not a convolution");
  }
  CheckCudnn(status, "cudnnGetConvolutionAlgorithm");
  std::vector<int> found;
  std::vector<int> others;
  size_t wanted = std::numeric_limits<size_t>::max();
  for (int i = 0; i < count; ++i) {
    const CudnnPerf& p = perf[i];
    if (p.status != 0) continue;
    const bool steady = p.determinism == kCudnnDeterministic;
    if (steady) wanted = std::min(wanted, p.memory);
    // An algorithm is listed once for each kind of arithmetic; the descriptor says which is used.
    std::vector<int>& list = steady ? found : others;
    if (p.memory <= bytes && std::find(list.begin(), list.end(), p.algo) == list.end()) {
      list.push_back(p.algo);
    }
  }
  if (!found.empty()) return found;
  std::fprintf(stderr,
               "memc: warning: a convolution's gradient differs in its last bits from run to run: "
               "cuDNN's deterministic algorithms need %zu bytes of workspace, planned are %zu\n",
               wanted, bytes);
  return others;
}

// Which word of a choice says what.
int AlgoOf(const Choice& choice) { return static_cast<int>(choice[0]); }
bool IsFused(const Choice& choice) { return !choice[8] && choice[1] != 0; }
bool IsProduct(const Choice& choice) { return choice[8] != 0; }

// Whether every element of y is a product of w with one position of x: what is then a product of
// matrices for each image, which cuBLASLt can split along its depth where there are few results.
bool IsPointwise(const Convolution& c) {
  bool pointwise = c.group == 1;
  for (int i = 0; i < c.rank; ++i) {
    pointwise = pointwise && c.w[i + 2] == 1 && c.strides[i] == 1 && c.pads[i] == 0;
  }
  return pointwise;
}

// y[i] = w x[i], or x[i] = w' y[i], with images as matrices [channels, positions].
Product ProductOf(Kind kind, const Convolution& c) {
  Product p;
  p.transpose_a = kind == kData;
  p.n = 1;
  for (int i = 0; i < c.rank; ++i) p.n *= c.x[i + 2];
  p.m = kind == kData ? c.x[1] : c.y[1];
  p.k = kind == kData ? c.y[1] : c.x[1];
  p.batch = c.x[0];
  p.stride_b = p.batch == 1 ? 0 : p.k * p.n;
  return p;
}

// The site of `key`, made at the first call with the fastest of its ways. `run` enqueues one way
// and returns its status.
template <typename Runner>
const ConvolutionSite& Site(Context& context, Handle handle, Kind kind, const Key& key,
                            const Convolution& shape, const Place& place, int channels,
                            bool may_fuse, const Taken& taken, const Runner& run) {
  const auto known = context.convolutions.find(key);
  if (known != context.convolutions.end()) return known->second;
  ConvolutionSite made = Describe(shape, channels);
  const bool product = kind != kFilter && IsPointwise(shape);
  if (product) made.product = DescribeProduct(ProductOf(kind, shape), {});
  const auto candidates = [&] {
    std::vector<Choice> all;
    for (const int algo : Algorithms(kind, made, handle, place.bytes)) {
      if (may_fuse) all.push_back({algo, 1});
      all.push_back({algo, 0});
    }
    if (product) {
      for (Choice choice : WaysOfProduct(made.product, context.Lt(), place.bytes)) {
        choice[8] = 1;
        all.push_back(choice);
      }
    }
    return all;
  };
  const auto attempt = [&](const Choice& choice) { return run(made, choice); };
  made.algo = context.Decide(key, attempt, candidates, place.stream, taken);
  return context.convolutions.emplace(key, made).first->second;
}

// Throws for the status of a way that has run before.
void Check(int status, const Choice& way, const char* what) {
  if (IsProduct(way)) {
    CheckLt(status, "cublasLtMatmul");
  } else {
    CheckCudnn(status, what);
  }
}

}  // namespace

void Convolve(const Convolution& shape, const Place& place, const float* x, const float* w,
              const float* bias, const float* residual, float* y) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const Handle handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
  const auto run = [&](const ConvolutionSite& s, const Choice& way) -> int {
    if (IsFused(way)) {
      return cudnn.forward_activated(
          handle, &kOne, s.x, x, s.w, w, s.convolution, AlgoOf(way), place.workspace, place.bytes,
          residual == nullptr ? &kZero : &kOne, s.y, residual == nullptr ? y : residual, s.bias,
          bias, s.activation, s.y, y);
    }
    // Added at once where it would be overwritten.
    const bool over = residual == y;
    const Terms terms{nullptr, nullptr, over ? residual : nullptr};
    int status = IsProduct(way)
                     ? RunProduct(context, s.product, way, place, w, x, terms, y)
                     : cudnn.forward(handle, &kOne, s.x, x, s.w, w, s.convolution, AlgoOf(way),
                                     place.workspace, place.bytes, over ? &kOne : &kZero, s.y, y);
    if (status == 0 && bias != nullptr) {
      status = cudnn.add(handle, &kOne, s.bias, bias, &kOne, s.y, y);
    }
    if (status == 0 && residual != nullptr && !over) {
      status = cudnn.add(handle, &kOne, s.y, residual, &kOne, s.y, y);
    }
    if (status == 0 && shape.relu) {
      status = cudnn.activate(handle, s.activation, &kOne, s.y, y, &kZero, s.y, y);
    }
    return status;
  };
  const Residual added = residual == nullptr ? kNone : residual == y ? kInPlace : kBeside;
  const Key key = KeyOf(kForward, shape, bias != nullptr, added, place.bytes);
  Taken taken;
  if (added == kInPlace) taken = {y, Bytes(shape.y, shape.rank)};
  const ConvolutionSite& site = Site(context, handle, kForward, key, shape, place, shape.w[0],
                                     shape.relu && bias != nullptr, taken, run);
  Check(run(site, site.algo), site.algo, "cudnnConvolutionForward");
}

void ConvolveData(const Convolution& shape, const Place& place, const float* y, const float* w,
                  const float* bias, float* x) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const Handle handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
  const auto run = [&](const ConvolutionSite& s, const Choice& way) -> int {
    const int status =
        IsProduct(way)
            ? RunProduct(context, s.product, way, place, w, y, {}, x)
            : cudnn.backward_data(handle, &kOne, s.w, w, s.y, y, s.convolution, AlgoOf(way),
                                  place.workspace, place.bytes, &kZero, s.x, x);
    if (status != 0 || bias == nullptr) return status;
    return cudnn.add(handle, &kOne, s.bias, bias, &kOne, s.x, x);
  };
  const Key key = KeyOf(kData, shape, bias != nullptr, kNone, place.bytes);
  const ConvolutionSite& site =
      Site(context, handle, kData, key, shape, place, shape.x[1], false, {}, run);
  Check(run(site, site.algo), site.algo, "cudnnConvolutionBackwardData");
}

void ConvolveFilter(const Convolution& shape, const Place& place, const float* x, const float* y,
                    float* w) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const Handle handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
  const auto run = [&](const ConvolutionSite& s, const Choice& way) -> int {
    return cudnn.backward_filter(handle, &kOne, s.x, x, s.y, y, s.convolution, AlgoOf(way),
                                 place.workspace, place.bytes, &kZero, s.w, w);
  };
  const Key key = KeyOf(kFilter, shape, false, kNone, place.bytes);
  const ConvolutionSite& site =
      Site(context, handle, kFilter, key, shape, place, shape.w[0], false, {}, run);
  Check(run(site, site.algo), site.algo, "cudnnConvolutionBackwardFilter");
}

}  // namespace memc::cuda
