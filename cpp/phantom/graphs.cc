// SPDX-License-Identifier: Apache-2.0
// CUDA graphs without a device: work that is captured is no other than work that is launched, none.
// One capture at a time is under way; what may not be called meanwhile fails as on a device.
#include <cuda_runtime_api.h>

#include <atomic>

#include "device.h"
#include "export.h"

namespace phantom {

namespace {

std::atomic<bool> capturing{false};
std::atomic<cudaStream_t> captured{nullptr};
std::atomic<unsigned long long> captures{0};
std::atomic<bool> broken{false};  // By a call that a capture does not allow.

bool IsCaptured(cudaStream_t stream) { return capturing && captured == stream; }

template <typename Handle>
cudaError_t New(Handle* made) {
  *made = reinterpret_cast<Handle>(NewHandle());
  return cudaSuccess;
}

cudaError_t Forbidden() {
  if (!capturing) return cudaSuccess;
  broken = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (capturing.exchange(true)) return cudaErrorIllegalState;
  captured = stream;
  broken = false;
  ++captures;
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!IsCaptured(stream)) return cudaErrorIllegalState;
  capturing = false;
  *graph = nullptr;
  return broken ? cudaErrorStreamCaptureInvalidated : New(graph);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                      cudaStreamCaptureStatus* status) {
  *status = IsCaptured(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                         cudaStreamCaptureStatus* status,
                                                         unsigned long long* id, cudaGraph_t*,
                                                         const cudaGraphNode_t**,
                                                         const cudaGraphEdgeData**, size_t* edges) {
  if (id != nullptr) *id = IsCaptured(stream) ? captures.load() : 0;
  if (edges != nullptr) *edges = 0;
  return cudaStreamIsCapturing(stream, status);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count) {
  *count = 1;  // As if something was launched.
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t,
                                                              unsigned long long) {
  return New(made);
}
MEMC_PHANTOM_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
MEMC_PHANTOM_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
MEMC_PHANTOM_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
MEMC_PHANTOM_EXPORT cudaError_t cudaDeviceSynchronize() { return Forbidden(); }
