// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN, with deterministic algorithms alone.
//
// An algorithm that needs more workspace than there is may fit for a part of the images: gradients
// are then computed one part after the other, and those in the weights added up.
#include <mutex>
#include <stdexcept>
#include <utility>

#include "cuda/cuda_conv_algorithms.h"
#include "cuda/cuda_conv_site.h"
#include "cuda/cuda_depthwise.h"
#include "cuda/cuda_library_kernels.h"
#include "cuda/cuda_patches.h"
#include "cuda/cuda_split_product.h"
#include "cuda/cuda_winograd.h"

namespace memc::cuda {

namespace {

constexpr float kOne = 1;
constexpr float kZero = 0;

const void* At(const void* data, size_t bytes) { return static_cast<const char*>(data) + bytes; }
void* At(void* data, size_t bytes) { return static_cast<char*>(data) + bytes; }

// The site of `key`, made at the first call with the fastest of its ways. `run` enqueues one way
// and returns its status; `terms` are what a product adds by itself.
template <typename Runner>
ConvolutionSite& Site(const ConvolutionCall& call, const Key& key, int channels, const Terms& terms,
                      const Runner& run) {
  Context& context = call.context;
  const auto known = context.convolutions.find(key);
  if (known != context.convolutions.end()) return known->second;
  ConvolutionSite made = Describe(call.shape, channels);
  const bool summed = call.kind == kFilter && !call.shape.channels_last;
  if (!summed && MayBeProduct(call.kind, call.shape)) {
    made.product = DescribeProduct(ProductOf(call.kind, call.shape), terms);
  }
  const auto attempt = [&](const Choice& choice) { return run(made, choice); };
  const auto decided = [&](bool steady) {
    made.algo = context.Decide(
        key, attempt, [&] { return ConvolutionWays(call, made, steady); }, call.place.stream,
        call.taken);
  };
  try {
    decided(true);
  } catch (const std::invalid_argument&) {
    try {  // The library may list what it cannot run.
      decided(false);
    } catch (const std::invalid_argument&) {
      throw std::invalid_argument(NoAlgorithm(call, made));
    }
  }
  return context.convolutions.emplace(key, std::move(made)).first->second;
}

// Throws for the status of a way that has run before.
void Check(int status, const Choice& way, const char* what) {
  if (IsProduct(way)) {
    CheckLt(status, "cublasLtMatmul");
  } else if (way[8] != 0) {  // One of memc's own.
    CheckDriver(status, "cuLaunchKernelEx");
  } else {
    CheckCudnn(status, what);
  }
}

// Enqueues one of cuDNN's algorithms, part by part, and returns its status.
int RunForward(CudnnHandle* handle, const Convolution& shape, ConvolutionSite& s, const Choice& way,
               const Place& place, const void* x, const void* w, const void* bias,
               const void* residual, void* y) {
  const Cudnn& cudnn = LoadCudnn();
  SetMath(shape, s, MathOf(way));
  const Parts parts(shape, PartsOf(way));
  const Images& images = ImagesOf(shape, parts.count, s);
  int status = 0;
  for (int64_t i = 0; i < parts.count && status == 0; ++i) {
    const void* from = At(x, i * parts.of_x);
    void* to = At(y, i * parts.of_y);
    if (IsFused(way)) {
      const void* added = residual == nullptr ? to : At(residual, i * parts.of_y);
      status = cudnn.forward_activated(
          handle, &kOne, images.x.get(), from, s.w.get(), w, s.convolution.get(), AlgoOf(way),
          place.workspace, place.bytes, residual == nullptr ? &kZero : &kOne, images.y.get(), added,
          s.bias.get(), bias, s.activation.get(), images.y.get(), to);
    } else {
      // A residual is added at once where it would be overwritten.
      status = cudnn.forward(handle, &kOne, images.x.get(), from, s.w.get(), w, s.convolution.get(),
                             AlgoOf(way), place.workspace, place.bytes,
                             residual == y ? &kOne : &kZero, images.y.get(), to);
    }
  }
  return status;
}

// Adds to a result what the way that made it has not, and returns the status.
int Finish(CudnnHandle* handle, const Convolution& shape, ConvolutionSite& s, const void* bias,
           const void* residual, void* y) {
  const Cudnn& cudnn = LoadCudnn();
  const Images& all = ImagesOf(shape, 1, s);
  int status = 0;
  if (bias != nullptr) {
    status = cudnn.add(handle, &kOne, s.bias.get(), bias, &kOne, all.y.get(), y);
  }
  if (status == 0 && residual != nullptr && residual != y) {
    status = cudnn.add(handle, &kOne, all.y.get(), residual, &kOne, all.y.get(), y);
  }
  if (status == 0 && shape.relu) {
    status =
        cudnn.activate(handle, s.activation.get(), &kOne, all.y.get(), y, &kZero, all.y.get(), y);
  }
  return status;
}

}  // namespace

void Convolve(const Convolution& shape, const Place& place, const void* x, const void* w,
              const void* bias, const void* residual, void* y) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  CudnnHandle* const handle = context.Cudnn(place.stream);
  const Terms whole = shape.channels_last ? Terms{nullptr, bias, residual} : Terms{};
  const auto run = [&](ConvolutionSite& s, const Choice& way) -> int {
    if (IsSplit(way)) {
      return RunSplit(context, way, place, shape, static_cast<const float*>(x),
                      static_cast<const float*>(w), {nullptr, bias, residual},
                      static_cast<float*>(y));
    }
    if (IsWinograd(way)) {
      return RunWinograd(context, kForward, way, place, shape, static_cast<const float*>(x),
                         static_cast<const float*>(w), {nullptr, bias, residual},
                         static_cast<float*>(y));
    }
    if (IsPatches(way)) {
      return RunPatches(context, kForward, way, place, shape, static_cast<const float*>(x),
                        static_cast<const float*>(w), {nullptr, bias, residual},
                        static_cast<float*>(y));
    }
    int status = 0;
    if (IsProduct(way) && shape.channels_last) {
      return RunProduct(context, s.product, way, place, x, w, whole, y);
    }
    if (IsProduct(way)) {
      const Terms terms{nullptr, nullptr, residual == y ? residual : nullptr};
      status = RunProduct(context, s.product, way, place, w, x, terms, y);
    } else {
      status = RunForward(handle, shape, s, way, place, x, w, bias, residual, y);
      if (IsFused(way)) return status;
    }
    return status != 0 ? status : Finish(handle, shape, s, bias, residual, y);
  };
  const Residual added = residual == nullptr ? kNone : residual == y ? kInPlace : kBeside;
  const Key key = KeyOf(kForward, shape, bias != nullptr, added, place.bytes);
  Taken taken;
  if (added == kInPlace) taken = {y, SizeOf(shape.type) * Elements(shape.y, shape.rank)};
  const bool may_fuse = shape.relu && bias != nullptr;
  ConvolutionSite& site =
      Site({context, handle, kForward, shape, place, may_fuse, taken}, key, shape.w[0], whole, run);
  Check(run(site, site.algo), site.algo, "cudnnConvolutionForward");
}

void ConvolveData(const Convolution& shape, const Place& place, const void* y, const void* w,
                  const void* bias, void* x) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  CudnnHandle* const handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
  const auto run = [&](ConvolutionSite& s, const Choice& way) -> int {
    if (IsWinograd(way)) {
      return RunWinograd(context, kData, way, place, shape, static_cast<const float*>(y),
                         static_cast<const float*>(w), {nullptr, bias, nullptr},
                         static_cast<float*>(x));
    }
    if (IsDepthwise(way)) {
      return RunDepthwise(context, kData, way, place, shape, static_cast<const float*>(w),
                          static_cast<const float*>(y), static_cast<const float*>(bias),
                          static_cast<float*>(x));
    }
    if (IsPatches(way)) {
      return RunPatches(context, kData, way, place, shape, static_cast<const float*>(y),
                        static_cast<const float*>(w), {nullptr, bias, nullptr},
                        static_cast<float*>(x));
    }
    int status = 0;
    if (IsProduct(way) && shape.channels_last) {
      status = RunProduct(context, s.product, way, place, y, w, {}, x);
    } else if (IsProduct(way)) {
      status = RunProduct(context, s.product, way, place, w, y, {}, x);
    } else {
      SetMath(shape, s, MathOf(way));
      const Parts parts(shape, PartsOf(way));
      const Images& images = ImagesOf(shape, parts.count, s);
      for (int64_t i = 0; i < parts.count && status == 0; ++i) {
        status =
            cudnn.backward_data(handle, &kOne, s.w.get(), w, images.y.get(), At(y, i * parts.of_y),
                                s.convolution.get(), AlgoOf(way), place.workspace, place.bytes,
                                &kZero, images.x.get(), At(x, i * parts.of_x));
      }
    }
    if (status != 0 || bias == nullptr) return status;
    return cudnn.add(handle, &kOne, s.bias.get(), bias, &kOne, ImagesOf(shape, 1, s).x.get(), x);
  };
  const Key key = KeyOf(kData, shape, bias != nullptr, kNone, place.bytes);
  ConvolutionSite& site =
      Site({context, handle, kData, shape, place, false, {}}, key, shape.x[1], {}, run);
  Check(run(site, site.algo), site.algo, "cudnnConvolutionBackwardData");
}

void ConvolveFilter(const Convolution& shape, const Place& place, const void* x, const void* y,
                    void* w) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  CudnnHandle* const handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
  const auto run = [&](ConvolutionSite& s, const Choice& way) -> int {
    if (IsProduct(way) && shape.channels_last) {
      return RunProduct(context, s.product, way, place, y, x, {}, w);
    }
    if (IsProduct(way)) {
      return RunSums(context, shape, s.sums, way, place, static_cast<const float*>(x),
                     static_cast<const float*>(y), static_cast<float*>(w));
    }
    if (IsDepthwise(way)) {
      return RunDepthwise(context, kFilter, way, place, shape, static_cast<const float*>(x),
                          static_cast<const float*>(y), nullptr, static_cast<float*>(w));
    }
    if (IsPatches(way)) {
      return RunPatches(context, kFilter, way, place, shape, static_cast<const float*>(x),
                        static_cast<const float*>(y), {}, static_cast<float*>(w));
    }
    SetMath(shape, s, MathOf(way));
    const Parts parts(shape, PartsOf(way));
    const Images& images = ImagesOf(shape, parts.count, s);
    int status = 0;
    for (int64_t i = 0; i < parts.count && status == 0; ++i) {
      status = cudnn.backward_filter(handle, &kOne, images.x.get(), At(x, i * parts.of_x),
                                     images.y.get(), At(y, i * parts.of_y), s.convolution.get(),
                                     AlgoOf(way), place.workspace, place.bytes,
                                     i == 0 ? &kZero : &kOne, s.w.get(), w);
    }
    return status;
  };
  const Key key = KeyOf(kFilter, shape, false, kNone, place.bytes);
  ConvolutionSite& site =
      Site({context, handle, kFilter, shape, place, false, {}}, key, shape.w[0], {}, run);
  Check(run(site, site.algo), site.algo, "cudnnConvolutionBackwardFilter");
}

}  // namespace memc::cuda
