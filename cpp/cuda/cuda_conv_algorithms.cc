// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_conv_algorithms.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "cuda/cuda_conv_site.h"
#include "cuda/cuda_depthwise.h"
#include "cuda/cuda_patches.h"
#include "cuda/cuda_split_product.h"
#include "cuda/cuda_winograd.h"

namespace memc::cuda {

namespace {

constexpr int kMostAlgorithms = 16;
constexpr std::array<int64_t, 6> kParts{1, 2, 4, 8, 16, 32};

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
std::vector<Choice> Algorithms(const ConvolutionCall& call, ConvolutionSite& s, bool steady,
                               bool has_other) {
  const Convolution& c = call.shape;
  std::vector<Choice> found;
  std::vector<Choice> others;
  size_t wanted = std::numeric_limits<size_t>::max();
  const auto add_all = [&](int64_t asked, int64_t parts) {
    SetMath(c, s, asked);
    for (const CudnnPerf& p : Listed(call.kind, s, ImagesOf(c, parts, s), call.handle)) {
      const bool repeats = p.determinism == kCudnnDeterministic;
      if (p.status != 0 || (!repeats && parts > 1)) continue;
      if (repeats) wanted = std::min(wanted, p.memory);
      // An algorithm is listed once for each kind of arithmetic; the descriptor says which is used,
      // and for halves they differ in workspace: copies with channels last are for tensor cores.
      const int64_t math = c.type == kF32 ? asked : p.math_type;
      const bool safe = c.type == kF32 || !Transforms(call.kind, p.algo);
      std::vector<Choice>& list = repeats && safe ? found : others;
      const auto same = [&](const Choice& choice) {
        return choice[0] == p.algo && choice[2] == math;
      };
      if (p.memory <= call.place.bytes && std::none_of(list.begin(), list.end(), same)) {
        list.push_back({p.algo, 0, math, 0, 0, 0, 0, 0, 0, parts});
      }
    }
  };
  for (const int64_t parts : kParts) {
    if (c.x[0] % parts != 0) continue;
    // A gradient in halves that is added up in parts is rounded at each.
    if (call.kind == kFilter && c.type != kF32 && !found.empty()) break;
    if (c.tf32) add_all(1, parts);
    add_all(c.type == kF32 ? 0 : kCudnnTensorMath, parts);
  }
  if (steady && (has_other || !found.empty())) return found;
  std::fprintf(stderr,
               "memc: warning: a convolution's gradient differs in its last bits from run to run: "
               "cuDNN's deterministic algorithms need %zu bytes of workspace, planned are %zu\n",
               wanted, call.place.bytes);
  return others;
}

// memc's own kernels for images with the channels first.
std::vector<Choice> OwnWays(const ConvolutionCall& call) {
  const auto& [context, handle, kind, shape, place, may_fuse, taken] = call;
  std::vector<Choice> ways;
  if (kind != kFilter) ways = WinogradWays(context, kind, shape, place.bytes, taken.bytes > 0);
  const std::vector<Choice> patches = PatchWays(context, kind, shape, place.bytes);
  ways.insert(ways.end(), patches.begin(), patches.end());
  const std::vector<Choice> depthwise = DepthwiseWays(context, kind, shape);
  ways.insert(ways.end(), depthwise.begin(), depthwise.end());
  return ways;
}

}  // namespace

bool MayBeProduct(Kind kind, const Convolution& shape) {
  return IsPointwise(shape) && (kind != kFilter || shape.type == kF32);
}

std::vector<Choice> ConvolutionWays(const ConvolutionCall& call, ConvolutionSite& site,
                                    bool steady) {
  const auto& [context, handle, kind, shape, place, may_fuse, taken] = call;
  std::vector<Choice> all;
  std::vector<Choice> ways;
  if (!shape.channels_last) ways = OwnWays(call);
  std::vector<Choice> products;
  if (MayBeProduct(kind, shape)) {
    products = kind == kFilter && !shape.channels_last
                   ? WaysOfSums(context, shape, place.bytes, site.sums)
                   : WaysOfProduct(site.product, context.Lt(), place.bytes);
  }
  const bool has_other = !ways.empty() || !products.empty();
  for (Choice choice : Algorithms(call, site, steady, has_other)) {
    choice[1] = 1;
    if (may_fuse) all.push_back(choice);
    choice[1] = 0;
    all.push_back(choice);
  }
  for (Choice& choice : products) {
    choice[8] = 1;
    all.push_back(choice);
  }
  all.insert(all.end(), ways.begin(), ways.end());
  if (kind == kForward && !shape.channels_last) {
    const std::vector<Choice> split = SplitWays(context, shape);
    all.insert(all.end(), split.begin(), split.end());
  }
  return all;
}

std::string NoAlgorithm(const ConvolutionCall& call, ConvolutionSite& s) {
  const Convolution& c = call.shape;
  std::ostringstream text;
  text << "the library has no algorithm for this call in its workspace: planned are "
       << call.place.bytes << " bytes for x";
  for (int i = 0; i < c.rank + 2; ++i) text << (i == 0 ? " " : "x") << c.x[i];
  text << " and w";
  for (int i = 0; i < c.rank + 2; ++i) text << (i == 0 ? " " : "x") << c.w[i];
  text << ", it has (number: bytes, status)";
  for (const CudnnPerf& p : Listed(call.kind, s, ImagesOf(c, 1, s), call.handle)) {
    text << ' ' << p.algo << ": " << p.memory << ", " << p.status << ';';
  }
  return text.str() + " give it more (--workspace SIZE), or compile with --kernels generated";
}

}  // namespace memc::cuda
