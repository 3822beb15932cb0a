// SPDX-License-Identifier: Apache-2.0
// What gpu_attention.py calls: memc's launches of attention in training, without TVM, and the sums
// of g times the result that the gradients are given, which a training step fuses by itself.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <exception>
#include <string>

#include "cuda/cuda_attention_training.h"
#include "cuda/cuda_launch.h"

namespace {

template <typename T>
__global__ void Shares(const T* g, const T* result, float* share, int64_t rows, int columns) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  if (row >= rows) return;
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += 32) {
    sum += static_cast<float>(g[row * columns + i]) * static_cast<float>(result[row * columns + i]);
  }
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, mask);
  if (threadIdx.x == 0) share[row] = sum;
}

template <typename T>
void MakeShares(const memc::cuda::TrainingData& d, const void* result, int64_t rows, int columns,
                cudaStream_t stream) {
  Shares<<<static_cast<unsigned>((rows + 7) / 8), dim3(32, 8), 0, stream>>>(
      static_cast<const T*>(d.g), static_cast<const T*>(result), const_cast<float*>(d.share), rows,
      columns);
}

thread_local std::string message;

template <typename Body>
const char* Guarded(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
  return nullptr;
}

}  // namespace

extern "C" const char* AddCubin(const char* data, size_t bytes) {
  return Guarded([&] { memc::cuda::AddKernels(0, std::string(data, bytes)); });
}

extern "C" const char* Forward(const memc::cuda::TrainingShape* s,
                               const memc::cuda::TrainingData* d, void* stream) {
  return Guarded([&] {
    memc::cuda::Place place;
    place.stream = static_cast<memc::cuda::Stream>(stream);
    memc::cuda::AttendTraining(*s, place, *d);
  });
}

extern "C" const char* Backward(const memc::cuda::TrainingShape* s,
                                const memc::cuda::TrainingData* d, const void* result,
                                void* stream) {
  return Guarded([&] {
    const int64_t rows = s->outer * s->inner * s->queries;
    const auto columns = static_cast<int>(s->width);
    const auto own = static_cast<cudaStream_t>(stream);
    if (s->type == memc::cuda::kF32) MakeShares<float>(*d, result, rows, columns, own);
    if (s->type == memc::cuda::kF16) MakeShares<__half>(*d, result, rows, columns, own);
    if (s->type == memc::cuda::kBf16) MakeShares<__nv_bfloat16>(*d, result, rows, columns, own);
    memc::cuda::Place place;
    place.stream = static_cast<memc::cuda::Stream>(stream);
    memc::cuda::AttendGrad(*s, place, *d);
  });
}
