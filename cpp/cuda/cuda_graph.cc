// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_context.h"

namespace memc::cuda {

namespace {

// The stream that captures of a device use, made at the first. With the context's mutex held.
Stream CaptureStream(Context& context) {
  if (context.capture == nullptr) {
    CheckDriver(LoadDriver().create_stream(&context.capture, kStreamNonBlocking), "cuStreamCreate");
  }
  return context.capture;
}

}  // namespace

Graph::Graph(int device, const std::function<void(Stream)>& enqueue) {
  const Driver& driver = LoadDriver();
  Context& context = ContextOf(device);
  const std::lock_guard<std::mutex> one_at_a_time(context.capturing);
  Stream stream = nullptr;
  {
    const std::lock_guard<std::mutex> lock(context.mutex);
    stream = CaptureStream(context);
  }
  CapturedGraph* captured = nullptr;
  CheckDriver(driver.begin_capture(stream, kCaptureThreadLocal), "cuStreamBeginCapture");
  try {
    enqueue(stream);
  } catch (...) {
    driver.end_capture(stream, &captured);
    const Owned<CapturedGraph> owned(captured);
    throw;
  }
  CheckDriver(driver.end_capture(stream, &captured), "cuStreamEndCapture");
  const Owned<CapturedGraph> owned(captured);
  executable_ = Made(driver.instantiate, CheckDriver, "cuGraphInstantiate", captured, 0ULL);
}

void Graph::Launch(Stream stream) const {
  CheckDriver(LoadDriver().launch(executable_.get(), stream), "cuGraphLaunch");
}

}  // namespace memc::cuda
