// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN, with deterministic algorithms in strict f32 alone.
#include <algorithm>
#include <stdexcept>

#include "memc/cuda_kernels.h"

namespace memc::cuda {

namespace {

constexpr int kMostAlgorithms = 16;
constexpr float kOne = 1;
constexpr float kZero = 0;

Key KeyOf(Kind kind, const Convolution& c, bool bias, bool residual, size_t bytes) {
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

// The deterministic algorithms that fit the workspace, in the order of the library's guess.
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
  for (int i = 0; i < count; ++i) {
    const CudnnPerf& p = perf[i];
    const bool usable = p.status == 0 && p.memory <= bytes && p.determinism == kCudnnDeterministic;
    // An algorithm is listed once for each kind of arithmetic; the descriptor says which is used.
    if (usable && std::find(found.begin(), found.end(), p.algo) == found.end()) {
      found.push_back(p.algo);
    }
  }
  return found;
}

// One way to compute a site: an algorithm, and whether what follows it is part of its kernel.
struct Way {
  int algo;
  bool fused;
};

Way WayOf(const Choice& choice) { return {static_cast<int>(choice[0]), choice[1] != 0}; }

// The site of `key`, made at the first call with the fastest of its ways. `run` enqueues one way
// and returns its status.
template <typename Runner>
const ConvolutionSite& Site(Context& context, Handle handle, Kind kind, const Key& key,
                            const Convolution& shape, const Place& place, int channels,
                            bool may_fuse, const Runner& run) {
  const auto known = context.convolutions.find(key);
  if (known != context.convolutions.end()) return known->second;
  ConvolutionSite made = Describe(shape, channels);
  const auto candidates = [&] {
    std::vector<Choice> all;
    for (const int algo : Algorithms(kind, made, handle, place.bytes)) {
      if (may_fuse) all.push_back({algo, 1});
      all.push_back({algo, 0});
    }
    return all;
  };
  const auto attempt = [&](const Choice& choice) { return run(made, WayOf(choice)); };
  const Way way = WayOf(context.Decide(key, attempt, candidates, place.stream));
  made.algo = way.algo;
  made.fused = way.fused;
  return context.convolutions.emplace(key, made).first->second;
}

}  // namespace

void Convolve(const Convolution& shape, const Place& place, const float* x, const float* w,
              const float* bias, const float* residual, float* y) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const Handle handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
  const auto run = [&](const ConvolutionSite& s, const Way& way) -> int {
    if (way.fused) {
      return cudnn.forward_activated(
          handle, &kOne, s.x, x, s.w, w, s.convolution, way.algo, place.workspace, place.bytes,
          residual == nullptr ? &kZero : &kOne, s.y, residual == nullptr ? y : residual, s.bias,
          bias, s.activation, s.y, y);
    }
    int status = cudnn.forward(handle, &kOne, s.x, x, s.w, w, s.convolution, way.algo,
                               place.workspace, place.bytes, &kZero, s.y, y);
    if (status == 0 && bias != nullptr) {
      status = cudnn.add(handle, &kOne, s.bias, bias, &kOne, s.y, y);
    }
    if (status == 0 && residual != nullptr) {
      status = cudnn.add(handle, &kOne, s.y, residual, &kOne, s.y, y);
    }
    if (status == 0 && shape.relu) {
      status = cudnn.activate(handle, s.activation, &kOne, s.y, y, &kZero, s.y, y);
    }
    return status;
  };
  const Key key = KeyOf(kForward, shape, bias != nullptr, residual != nullptr, place.bytes);
  const ConvolutionSite& site = Site(context, handle, kForward, key, shape, place, shape.w[0],
                                     shape.relu && bias != nullptr, run);
  CheckCudnn(run(site, {site.algo, site.fused}), "cudnnConvolutionForward");
}

void ConvolveData(const Convolution& shape, const Place& place, const float* y, const float* w,
                  const float* bias, float* x) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const Handle handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
  const auto run = [&](const ConvolutionSite& s, const Way& way) -> int {
    const int status = cudnn.backward_data(handle, &kOne, s.w, w, s.y, y, s.convolution, way.algo,
                                           place.workspace, place.bytes, &kZero, s.x, x);
    if (status != 0 || bias == nullptr) return status;
    return cudnn.add(handle, &kOne, s.bias, bias, &kOne, s.x, x);
  };
  const Key key = KeyOf(kData, shape, bias != nullptr, false, place.bytes);
  const ConvolutionSite& site =
      Site(context, handle, kData, key, shape, place, shape.x[1], false, run);
  CheckCudnn(run(site, {site.algo, false}), "cudnnConvolutionBackwardData");
}

void ConvolveFilter(const Convolution& shape, const Place& place, const float* x, const float* y,
                    float* w) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const Handle handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
  const auto run = [&](const ConvolutionSite& s, const Way& way) -> int {
    return cudnn.backward_filter(handle, &kOne, s.x, x, s.y, y, s.convolution, way.algo,
                                 place.workspace, place.bytes, &kZero, s.w, w);
  };
  const Key key = KeyOf(kFilter, shape, false, false, place.bytes);
  const ConvolutionSite& site =
      Site(context, handle, kFilter, key, shape, place, shape.w[0], false, run);
  CheckCudnn(run(site, {site.algo, false}), "cudnnConvolutionBackwardFilter");
}

}  // namespace memc::cuda
