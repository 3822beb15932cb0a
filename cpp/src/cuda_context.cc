// SPDX-License-Identifier: Apache-2.0
#include "memc/cuda_context.h"

#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <stdexcept>

namespace memc::cuda {

namespace {

constexpr int kRuns = 5;  // Timed runs of each way, after one that is not.

std::atomic<bool> measuring{true};

bool IsCaptured(Stream stream) {
  int status = 0;
  CheckDriver(LoadDriver().is_capturing(stream, &status), "cuStreamIsCapturing");
  return status != 0;
}

}  // namespace

void CheckCudnn(int status, const char* what) {
  if (status == 0) return;
  const Cudnn& cudnn = LoadCudnn();
  std::array<char, 512> detail{};
  cudnn.last_error(detail.data(), detail.size());
  std::string text = std::string(what) + ": " + cudnn.error(status);
  if (detail[0] != '\0') text += std::string(" (") + detail.data() + ")";
  throw std::runtime_error(text);
}

void CheckLt(int status, const char* what) {
  if (status == 0) return;
  throw std::runtime_error(std::string(what) + ": " + LoadCublasLt().error(status));
}

void CheckDriver(int status, const char* what) {
  if (status == 0) return;
  const char* name = nullptr;
  LoadDriver().error_name(status, &name);
  throw std::runtime_error(std::string(what) + ": " + (name == nullptr ? "unknown error" : name));
}

Handle Context::Cudnn(Stream stream) {
  const auto& library = LoadCudnn();
  if (cudnn == nullptr) CheckCudnn(library.create(&cudnn), "cudnnCreate");
  CheckCudnn(library.set_stream(cudnn, stream), "cudnnSetStream");
  return cudnn;
}

Handle Context::Lt() {
  if (lt == nullptr) CheckLt(LoadCublasLt().create(&lt), "cublasLtCreate");
  return lt;
}

int Context::Fastest(const std::vector<std::function<int()>>& ways, Stream stream) {
  const Driver& driver = LoadDriver();
  const bool measure = measuring && ways.size() > 1 && !IsCaptured(stream);
  if (measure && start == nullptr) {
    CheckDriver(driver.create_event(&start, 0), "cuEventCreate");
    CheckDriver(driver.create_event(&end, 0), "cuEventCreate");
  }
  int best = -1;
  float least = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < ways.size(); ++i) {
    if (ways[i]() != 0) continue;
    if (!measure) return static_cast<int>(i);
    CheckDriver(driver.record_event(start, stream), "cuEventRecord");
    for (int run = 0; run < kRuns; ++run) ways[i]();
    CheckDriver(driver.record_event(end, stream), "cuEventRecord");
    CheckDriver(driver.wait_event(end), "cuEventSynchronize");
    float time = 0;
    CheckDriver(driver.elapsed(&time, start, end), "cuEventElapsedTime");
    if (time < least) {
      least = time;
      best = static_cast<int>(i);
    }
  }
  return best;
}

Context& ContextOf(int device) {
  static std::mutex guard;
  static std::map<int, std::unique_ptr<Context>> contexts;
  const std::lock_guard<std::mutex> lock(guard);
  std::unique_ptr<Context>& found = contexts[device];
  if (found == nullptr) found = std::make_unique<Context>();
  return *found;
}

void SetMeasure(bool measure) { measuring = measure; }

}  // namespace memc::cuda
