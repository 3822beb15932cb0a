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
#include <mutex>
#include <string>
#include <vector>

#include "memc/cuda_library.h"

namespace memc::cuda {

// Throw std::runtime_error with the library's own words unless `status` is 0. `what` names the
// function.
void CheckCudnn(int status, const char* what);
void CheckLt(int status, const char* what);
void CheckDriver(int status, const char* what);

// A call site: what is called and all that the choice of an algorithm depends on, then zeros.
using Key = std::array<int64_t, 32>;

// What a call site of cuBLASLt keeps from its first call on.
struct ProductSite {
  Handle product = nullptr;
  Handle a = nullptr;
  Handle b = nullptr;
  Handle c = nullptr;
  LtAlgo algo{};
};

// The same for cuDNN.
struct ConvolutionSite {
  Handle x = nullptr;
  Handle w = nullptr;
  Handle y = nullptr;
  Handle bias = nullptr;
  Handle convolution = nullptr;
  Handle activation = nullptr;
  int algo = -1;
  bool fused = false;  // Bias and activation in the convolution's own kernel.
};

// Where a library call runs, and the memory that it may use.
struct Place {
  int device = 0;
  Stream stream = nullptr;
  void* workspace = nullptr;
  size_t bytes = 0;
};

// The handles of one device. A cuDNN handle serves one thread at a time: hold `mutex` while the
// call is made.
struct Context {
  std::mutex mutex;
  Handle cudnn = nullptr;
  Handle lt = nullptr;
  Handle start = nullptr;  // Events that take times.
  Handle end = nullptr;
  std::mutex capturing;      // Held during a capture.
  Stream capture = nullptr;  // What captures run on.
  std::map<Key, ProductSite> products;
  std::map<Key, ConvolutionSite> convolutions;

  // Makes what is not there yet. With `mutex` held.
  Handle Cudnn(Stream stream);
  Handle Lt();

  // The index of the fastest of `ways`, each of which enqueues the same computation and returns
  // its status, 0 if it can. Without `measure`, or while `stream` is captured into a graph, the
  // first that can; it has been run then. Returns -1 if none can. With `mutex` held.
  int Fastest(const std::vector<std::function<int()>>& ways, Stream stream);
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
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void Launch(Stream stream) const;

 private:
  Handle executable_ = nullptr;
};

// Whether call sites measure their ways at the first call. True at the start.
void SetMeasure(bool measure);

}  // namespace memc::cuda

#endif  // MEMC_CUDA_CONTEXT_H_
