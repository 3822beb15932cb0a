// SPDX-License-Identifier: Apache-2.0
// What calls of the CUDA libraries share: handles, checks, and the choice among several ways to
// compute the same.
#ifndef MEMC_CUDA_CONTEXT_H_
#define MEMC_CUDA_CONTEXT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/cuda_api.h"
#include "cuda/cuda_handles.h"

namespace memc::cuda {

// Throw std::runtime_error with the library's own words unless `status` is 0. `what` names the
// function.
void CheckCudnn(int status, const char* what);
void CheckLt(int status, const char* what);
void CheckDriver(int status, const char* what);

// A call site: the kind of call and all that the choice of an algorithm depends on, then zeros.
using Key = std::array<int64_t, 32>;

enum Kind : int64_t { kForward, kData, kFilter, kProduct, kAttention };

// The algorithm of a call site: cuBLASLt's own eight words, or cuDNN's number, whether what
// follows is part of its kernel, and whether it may use TF32, or for memc's own kernels the tile
// and the blocks that share it; then what computes it (0: the library of the call, 1: products by
// cuBLASLt in place of a convolution, 2 to 5: memc's kernels of cuda_split_product.h,
// cuda_winograd.h, cuda_patches.h and cuda_depthwise.h), and into how many parts the images of a
// convolution are cut (for gradients of weights by products: how many sums there are before they
// are summed up).
using Choice = std::array<int64_t, 10>;

constexpr int64_t kOnes = 256;

// What a call site of cuBLASLt keeps from its first call on.
struct ProductSite {
  Owned<LtProduct> product;
  Owned<LtLayout> a;
  Owned<LtLayout> b;
  Owned<LtLayout> c;
  int64_t results = 0;  // Elements of all matrices.
  int64_t depth = 0;
  Choice algo{};
};

// Images of a convolution, all or a part of them.
struct Images {
  Owned<CudnnTensor> x;
  Owned<CudnnTensor> y;
};

// A gradient of weights by products: several sums over images, each of some images one after the
// other, and what sums them up.
struct PartialSums {
  ProductSite images;
  ProductSite total;
};

// The same for cuDNN.
struct ConvolutionSite {
  std::map<int64_t, Images> images;  // By the number of parts.
  Owned<CudnnFilter> w;
  Owned<CudnnTensor> bias;
  Owned<CudnnConvolution> convolution;
  Owned<CudnnActivation> activation;
  ProductSite product;                  // Of a convolution that is one.
  std::map<int64_t, PartialSums> sums;  // By their number.
  Choice algo{};
};

class FusedAttention;  // cuda_fused_attention.h

// The same for attention: the choice is memc's own kernel, or cuDNN's.
struct AttentionSite {
  std::shared_ptr<FusedAttention> fused;  // Null where cuDNN has none.
  Choice algo{};
};

// Where a library call runs, and the memory that it may use.
struct Place {
  int device = 0;
  Stream stream = nullptr;
  void* workspace = nullptr;
  size_t bytes = 0;
};

// Memory that a call reads and then writes, which its result takes over; none: null.
struct Taken {
  void* data = nullptr;
  size_t bytes = 0;
};

// One of memc's own kernels, and the most bytes of shared memory that launches may give it.
struct OwnKernel {
  Kernel* kernel = nullptr;
  unsigned shared_bytes = 0;
};

// The handles of one device. A cuDNN handle serves one thread at a time: hold `mutex` while the
// call is made.
struct Context {
  std::mutex mutex;
  CudnnHandle* cudnn = nullptr;
  LtHandle* lt = nullptr;
  Owned<Event> start;  // Events that take times.
  Owned<Event> end;
  std::mutex capturing;                  // Held during a capture.
  Stream capture = nullptr;              // What captures run on.
  std::unique_ptr<DeviceBytes> factors;  // See Factors.
  std::map<size_t, Image*> own_images;   // Of memc's own kernels, by their hash (cuda_launch.h).
  std::map<std::string, OwnKernel> own_kernels;
  int number = 0;             // The driver's, of the device.
  int multiprocessors = 1;    // Known, as what follows, once there are own images.
  int shared_limit = 0;       // Bytes of shared memory that a block may be given.
  bool has_clusters = false;  // Whether several blocks may share a tile.
  bool has_tf32 = false;      // Whether tensor cores multiply in TF32.
  std::map<Key, ProductSite> products;
  std::map<Key, ConvolutionSite> convolutions;
  std::map<Key, AttentionSite> attentions;
  std::map<Key, Choice> choices;  // Those of the sites so far, and what is known from before.

  // Makes what is not there yet. With `mutex` held.
  CudnnHandle* Cudnn(Stream stream);
  LtHandle* Lt();
  // 0, then kOnes times 1, in device memory.
  const float* Factors(Stream stream);

  // The choice for a new call site: the one that is known for it if that can run, else the fastest
  // of `candidates`, else, unless ways are measured, the first of them that can run. `run` enqueues
  // the call with a choice and returns its status, 0 if it can; the chosen one has been run at
  // least once. What was in `taken` before is there again afterwards; where that cannot be kept, in
  // a capture, nothing is run. Throws std::invalid_argument if none can. With `mutex` held.
  Choice Decide(const Key& key, const std::function<int(const Choice&)>& run,
                const std::function<std::vector<Choice>()>& candidates, Stream stream,
                const Taken& taken);
};

// The context of a device, made at the first call; lives as long as the process.
Context& ContextOf(int device);

// What a function enqueued, as one CUDA graph that can be launched again and again.
class Graph {
 public:
  // Captures what `enqueue` puts on the stream that it is given. What it calls must have run
  // before: to load code and measure algorithms is not possible in a capture. Throws
  // std::runtime_error, and passes on what `enqueue` throws.
  Graph(int device, const std::function<void(Stream)>& enqueue);

  void Launch(Stream stream) const;

 private:
  Owned<ExecutableGraph> executable_;
};

// The choices of a device as text, a line for each call site, and back again: sites that were not
// called yet take theirs from it if they can. Throws std::invalid_argument for other text. They
// mean something only to the same versions of the libraries on the same kind of device.
std::string ChoicesOf(int device);
void Remember(int device, const std::string& text);

// Whether call sites measure their ways at the first call. True at the start.
void SetMeasure(bool measure);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_CONTEXT_H_
