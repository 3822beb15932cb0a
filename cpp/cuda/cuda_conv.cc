// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN, with deterministic algorithms alone.
//
// An algorithm that needs more workspace than there is may fit for a part of the images: gradients
// are then computed one part after the other, and those in the weights added up.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "cuda/cuda_kernels.h"
#include "cuda/cuda_split.h"
#include "cuda/cuda_winograd.h"

namespace memc::cuda {

namespace {

constexpr int kMostAlgorithms = 16;
constexpr std::array<int64_t, 6> kParts{1, 2, 4, 8, 16, 32};
constexpr float kOne = 1;
constexpr float kZero = 0;

// How a convolution adds a residual.
enum Residual : int64_t { kNone, kBeside, kInPlace };

Key KeyOf(Kind kind, const Convolution& c, bool bias, Residual residual, size_t bytes) {
  Key key{kind, c.rank, c.group, c.relu, c.tf32, bias, residual, static_cast<int64_t>(bytes)};
  key.back() = c.type;
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

int TypeOf(Element element) {
  return element == kF32 ? kCudnnFloat : element == kF16 ? kCudnnHalf : kCudnnBfloat16;
}

Owned<CudnnTensor> Tensor(Element type, const std::array<int, 5>& shape, int rank) {
  const Cudnn& cudnn = LoadCudnn();
  std::array<int, 5> strides{};
  int step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  auto made = Made(cudnn.create_tensor, CheckCudnn, "cudnnCreateTensorDescriptor");
  CheckCudnn(cudnn.set_tensor(made.get(), TypeOf(type), rank, shape.data(), strides.data()),
             "cudnnSetTensorNdDescriptor");
  return made;
}

size_t Elements(const std::array<int, 5>& shape, int rank) {
  size_t elements = 1;
  for (int i = 0; i < rank + 2; ++i) elements *= static_cast<size_t>(shape[i]);
  return elements;
}

// The parts that the images of a convolution are cut into.
struct Parts {
  int64_t count;
  size_t of_x;  // Bytes of one part.
  size_t of_y;

  Parts(const Convolution& c, int64_t n)
      : count(n),
        of_x(SizeOf(c.type) * Elements(c.x, c.rank) / n),
        of_y(SizeOf(c.type) * Elements(c.y, c.rank) / n) {}
};

// The descriptors of a convolution with `channels` biases, without images or an algorithm.
ConvolutionSite Describe(const Convolution& c, int channels) {
  const Cudnn& cudnn = LoadCudnn();
  ConvolutionSite made;
  made.bias = Tensor(c.type, {1, channels, 1, 1, 1}, c.rank + 2);
  made.w = Made(cudnn.create_filter, CheckCudnn, "cudnnCreateFilterDescriptor");
  CheckCudnn(cudnn.set_filter(made.w.get(), TypeOf(c.type), kCudnnNchw, c.rank + 2, c.w.data()),
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

// The images of one of `parts` parts.
const Images& ImagesOf(const Convolution& c, int64_t parts, ConvolutionSite& site) {
  const auto known = site.images.find(parts);
  if (known != site.images.end()) return known->second;
  Convolution part = c;
  part.x[0] /= static_cast<int>(parts);
  part.y[0] /= static_cast<int>(parts);
  Images made{Tensor(c.type, part.x, c.rank + 2), Tensor(c.type, part.y, c.rank + 2)};
  return site.images.emplace(parts, std::move(made)).first->second;
}

const void* At(const void* data, size_t bytes) { return static_cast<const char*>(data) + bytes; }
void* At(void* data, size_t bytes) { return static_cast<char*>(data) + bytes; }

// What the library says of its algorithms for some images, in the order of its guess.
std::vector<CudnnPerf> Listed(Kind kind, const ConvolutionSite& s, const Images& images,
                              CudnnHandle* handle) {
  const Cudnn& cudnn = LoadCudnn();
  std::vector<CudnnPerf> perf(kMostAlgorithms);
  int count = 0;
  int status = 0;
  switch (kind) {
    case kForward:
      status = cudnn.get_forward(handle, images.x.get(), s.w.get(), s.convolution.get(),
                                 images.y.get(), kMostAlgorithms, &count, perf.data());
      break;
    case kData:
      status = cudnn.get_data(handle, s.w.get(), images.y.get(), s.convolution.get(),
                              images.x.get(), kMostAlgorithms, &count, perf.data());
      break;
    case kFilter:
      status = cudnn.get_filter(handle, images.x.get(), images.y.get(), s.convolution.get(),
                                s.w.get(), kMostAlgorithms, &count, perf.data());
      break;
    default:
      throw std::invalid_argument("not a convolution");
  }
  CheckCudnn(status, "cudnnGetConvolutionAlgorithm");
  perf.resize(count);
  return perf;
}

// Has the descriptor compute in TF32 where that is faster (1), or in strict f32 (0); for halves,
// `math` is the library's own number.
void SetMath(const Convolution& c, const ConvolutionSite& s, int64_t math) {
  if (c.type == kF32) math = math != 0 ? kCudnnDefaultMath : kCudnnFmaMath;
  CheckCudnn(LoadCudnn().set_math(s.convolution.get(), static_cast<int>(math)),
             "cudnnSetConvolutionMathType");
}

// Why no algorithm fits: what the library says of each.
std::string NoAlgorithm(Kind kind, const Convolution& c, ConvolutionSite& s, CudnnHandle* handle,
                        size_t bytes) {
  std::ostringstream text;
  text << "the library has no algorithm for this call in its workspace: planned are " << bytes
       << " bytes for x";
  for (int i = 0; i < c.rank + 2; ++i) text << (i == 0 ? " " : "x") << c.x[i];
  text << " and w";
  for (int i = 0; i < c.rank + 2; ++i) text << (i == 0 ? " " : "x") << c.w[i];
  text << ", it has (number: bytes, status)";
  for (const CudnnPerf& p : Listed(kind, s, ImagesOf(c, 1, s), handle)) {
    text << ' ' << p.algo << ": " << p.memory << ", " << p.status << ';';
  }
  return text.str() + " give it more (--workspace SIZE), or compile with --kernels generated";
}

// Whether an algorithm (Winograd's or a Fourier transform's) keeps transformed images, for halves
// in halves: sums of many elements, which may exceed f16 where no result does.
bool Transforms(Kind kind, int algo) {
  const int last = kind == kForward ? 3 : 1;  // Of the others, but for the gradient in weights:
  return algo > last && !(kind == kFilter && algo == 3);
}

// The algorithms that fit the workspace, each with as few parts as it needs: the deterministic
// ones, for halves without those that transform; if none fits and there is no other way, or not
// `steady`, the others, which say so once for each call site. Where TF32 is allowed, strict f32 is
// too, which needs less workspace.
std::vector<Choice> Algorithms(Kind kind, const Convolution& c, ConvolutionSite& s,
                               CudnnHandle* handle, size_t bytes, bool steady, bool has_other) {
  std::vector<Choice> found;
  std::vector<Choice> others;
  size_t wanted = std::numeric_limits<size_t>::max();
  const auto add_all = [&](int64_t asked, int64_t parts) {
    SetMath(c, s, asked);
    for (const CudnnPerf& p : Listed(kind, s, ImagesOf(c, parts, s), handle)) {
      const bool repeats = p.determinism == kCudnnDeterministic;
      if (p.status != 0 || (!repeats && parts > 1)) continue;
      if (repeats) wanted = std::min(wanted, p.memory);
      // An algorithm is listed once for each kind of arithmetic; the descriptor says which is used,
      // and for halves they differ in workspace: copies with channels last are for tensor cores.
      const int64_t math = c.type == kF32 ? asked : p.math_type;
      const bool safe = c.type == kF32 || !Transforms(kind, p.algo);
      std::vector<Choice>& list = repeats && safe ? found : others;
      const auto same = [&](const Choice& choice) {
        return choice[0] == p.algo && choice[2] == math;
      };
      if (p.memory <= bytes && std::none_of(list.begin(), list.end(), same)) {
        list.push_back({p.algo, 0, math, 0, 0, 0, 0, 0, 0, parts});
      }
    }
  };
  for (const int64_t parts : kParts) {
    if (c.x[0] % parts != 0) continue;
    // A gradient in halves that is added up in parts is rounded at each.
    if (kind == kFilter && c.type != kF32 && !found.empty()) break;
    if (c.tf32) add_all(1, parts);
    add_all(c.type == kF32 ? 0 : kCudnnTensorMath, parts);
  }
  if (steady && (has_other || !found.empty())) return found;
  std::fprintf(stderr,
               "memc: warning: a convolution's gradient differs in its last bits from run to run: "
               "cuDNN's deterministic algorithms need %zu bytes of workspace, planned are %zu\n",
               wanted, bytes);
  return others;
}

// Which word of a choice says what.
int AlgoOf(const Choice& choice) { return static_cast<int>(choice[0]); }
bool IsFused(const Choice& choice) { return !choice[8] && choice[1] != 0; }
int64_t MathOf(const Choice& choice) { return choice[2]; }
bool IsProduct(const Choice& choice) { return choice[8] == 1; }
int64_t PartsOf(const Choice& choice) { return choice[9]; }

// The site of `key`, made at the first call with the fastest of its ways. `run` enqueues one way
// and returns its status.
template <typename Runner>
ConvolutionSite& Site(Context& context, CudnnHandle* handle, Kind kind, const Key& key,
                      const Convolution& shape, const Place& place, int channels, bool may_fuse,
                      const Taken& taken, const Runner& run) {
  const auto known = context.convolutions.find(key);
  if (known != context.convolutions.end()) return known->second;
  ConvolutionSite made = Describe(shape, channels);
  // Sums of a gradient in weights, in f32, would need one more pass to become halves.
  const bool product = IsPointwise(shape) && (kind != kFilter || shape.type == kF32);
  if (product && kind != kFilter) made.product = DescribeProduct(ProductOf(kind, shape), {});
  const auto candidates = [&](bool steady) {
    std::vector<Choice> all;
    std::vector<Choice> ways;
    if (kind != kFilter) ways = WinogradWays(context, kind, shape, place.bytes, taken.bytes > 0);
    for (Choice choice :
         Algorithms(kind, shape, made, handle, place.bytes, steady, !ways.empty())) {
      choice[1] = 1;
      if (may_fuse) all.push_back(choice);
      choice[1] = 0;
      all.push_back(choice);
    }
    if (product) {
      std::vector<Choice> products = kind == kFilter
                                         ? WaysOfSums(context, shape, place.bytes, made.sums)
                                         : WaysOfProduct(made.product, context.Lt(), place.bytes);
      for (Choice& choice : products) {
        choice[8] = 1;
        all.push_back(choice);
      }
    }
    all.insert(all.end(), ways.begin(), ways.end());
    if (kind == kForward) {
      const std::vector<Choice> split = SplitWays(context, shape);
      all.insert(all.end(), split.begin(), split.end());
    }
    return all;
  };
  const auto attempt = [&](const Choice& choice) { return run(made, choice); };
  const auto decided = [&](bool steady) {
    made.algo =
        context.Decide(key, attempt, [&] { return candidates(steady); }, place.stream, taken);
  };
  try {
    decided(true);
  } catch (const std::invalid_argument&) {
    try {  // The library may list what it cannot run.
      decided(false);
    } catch (const std::invalid_argument&) {
      throw std::invalid_argument(NoAlgorithm(kind, shape, made, handle, place.bytes));
    }
  }
  return context.convolutions.emplace(key, std::move(made)).first->second;
}

// Throws for the status of a way that has run before.
void Check(int status, const Choice& way, const char* what) {
  if (IsProduct(way)) {
    CheckLt(status, "cublasLtMatmul");
  } else if (IsSplit(way) || IsWinograd(way)) {
    CheckDriver(status, "cuLaunchKernelEx");
  } else {
    CheckCudnn(status, what);
  }
}

}  // namespace

void Convolve(const Convolution& shape, const Place& place, const void* x, const void* w,
              const void* bias, const void* residual, void* y) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  CudnnHandle* const handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
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
    const Images& all = ImagesOf(shape, 1, s);
    // Added at once where it would be overwritten.
    const bool over = residual == y;
    const Terms terms{nullptr, nullptr, over ? residual : nullptr};
    int status = 0;
    if (IsProduct(way)) {
      status = RunProduct(context, s.product, way, place, w, x, terms, y);
    } else {
      SetMath(shape, s, MathOf(way));
      const Parts parts(shape, PartsOf(way));
      const Images& images = ImagesOf(shape, parts.count, s);
      for (int64_t i = 0; i < parts.count && status == 0; ++i) {
        const void* from = At(x, i * parts.of_x);
        void* to = At(y, i * parts.of_y);
        if (IsFused(way)) {
          const void* added = residual == nullptr ? to : At(residual, i * parts.of_y);
          status = cudnn.forward_activated(
              handle, &kOne, images.x.get(), from, s.w.get(), w, s.convolution.get(), AlgoOf(way),
              place.workspace, place.bytes, residual == nullptr ? &kZero : &kOne, images.y.get(),
              added, s.bias.get(), bias, s.activation.get(), images.y.get(), to);
        } else {
          status = cudnn.forward(handle, &kOne, images.x.get(), from, s.w.get(), w,
                                 s.convolution.get(), AlgoOf(way), place.workspace, place.bytes,
                                 over ? &kOne : &kZero, images.y.get(), to);
        }
      }
      if (IsFused(way)) return status;
    }
    if (status == 0 && bias != nullptr) {
      status = cudnn.add(handle, &kOne, s.bias.get(), bias, &kOne, all.y.get(), y);
    }
    if (status == 0 && residual != nullptr && !over) {
      status = cudnn.add(handle, &kOne, all.y.get(), residual, &kOne, all.y.get(), y);
    }
    if (status == 0 && shape.relu) {
      status =
          cudnn.activate(handle, s.activation.get(), &kOne, all.y.get(), y, &kZero, all.y.get(), y);
    }
    return status;
  };
  const Residual added = residual == nullptr ? kNone : residual == y ? kInPlace : kBeside;
  const Key key = KeyOf(kForward, shape, bias != nullptr, added, place.bytes);
  Taken taken;
  if (added == kInPlace) taken = {y, SizeOf(shape.type) * Elements(shape.y, shape.rank)};
  ConvolutionSite& site = Site(context, handle, kForward, key, shape, place, shape.w[0],
                               shape.relu && bias != nullptr, taken, run);
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
    int status = 0;
    if (IsProduct(way)) {
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
      Site(context, handle, kData, key, shape, place, shape.x[1], false, {}, run);
  Check(run(site, site.algo), site.algo, "cudnnConvolutionBackwardData");
}

void ConvolveFilter(const Convolution& shape, const Place& place, const void* x, const void* y,
                    void* w) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  CudnnHandle* const handle = context.Cudnn(place.stream);
  const Cudnn& cudnn = LoadCudnn();
  const auto run = [&](ConvolutionSite& s, const Choice& way) -> int {
    if (IsProduct(way)) {
      return RunSums(context, shape, s.sums, way, place, static_cast<const float*>(x),
                     static_cast<const float*>(y), static_cast<float*>(w));
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
      Site(context, handle, kFilter, key, shape, place, shape.w[0], false, {}, run);
  Check(run(site, site.algo), site.algo, "cudnnConvolutionBackwardFilter");
}

}  // namespace memc::cuda
