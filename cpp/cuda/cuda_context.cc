// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_context.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace memc::cuda {

namespace {

constexpr int kRuns = 5;    // Runs that are timed together, after some that are not.
constexpr int kRounds = 3;  // The least of their times counts: clocks and caches settle slowly.

constexpr const char* kNoAlgorithm = "the library has no algorithm for this call in its workspace";

std::atomic<bool> measuring{true};

// What some device memory holds, kept by the host while calls are tried that change it.
class Kept {
 public:
  Kept(const Taken& taken, Stream stream) : taken_(taken), stream_(stream), bytes_(taken.bytes) {
    if (taken.bytes == 0) return;
    CheckDriver(LoadDriver().read(bytes_.data(), Address(), taken.bytes, stream), "cuMemcpyDtoH");
    CheckDriver(LoadDriver().synchronize(stream), "cuStreamSynchronize");
  }

  void PutBack() const {
    if (taken_.bytes == 0) return;
    CheckDriver(LoadDriver().write(Address(), bytes_.data(), taken_.bytes, stream_),
                "cuMemcpyHtoD");
    CheckDriver(LoadDriver().synchronize(stream_), "cuStreamSynchronize");
  }

 private:
  uint64_t Address() const { return reinterpret_cast<uintptr_t>(taken_.data); }

  Taken taken_;
  Stream stream_;
  std::vector<char> bytes_;
};

bool IsCaptured(Stream stream) {
  int status = 0;
  CheckDriver(LoadDriver().is_capturing(stream, &status), "cuStreamIsCapturing");
  return status != 0;
}

// Milliseconds of some runs, enqueued on `stream`: the least of all rounds, fewer of them for a way
// that is far behind `least`.
float Measure(Context& context, const std::function<int(const Choice&)>& run, const Choice& choice,
              float least, Stream stream) {
  const Driver& driver = LoadDriver();
  if (context.start == nullptr) {  // Both or none: a failure here is tried again at the next call.
    auto start = Made(driver.create_event, CheckDriver, "cuEventCreate", 0U);
    context.end = Made(driver.create_event, CheckDriver, "cuEventCreate", 0U);
    context.start = std::move(start);
  }
  float best = std::numeric_limits<float>::infinity();
  for (int round = 0; round < kRounds && (round == 0 || best < 2 * least); ++round) {
    CheckDriver(driver.record_event(context.start.get(), stream), "cuEventRecord");
    for (int i = 0; i < kRuns; ++i) run(choice);
    CheckDriver(driver.record_event(context.end.get(), stream), "cuEventRecord");
    CheckDriver(driver.wait_event(context.end.get()), "cuEventSynchronize");
    float time = 0;
    CheckDriver(driver.elapsed(&time, context.start.get(), context.end.get()),
                "cuEventElapsedTime");
    best = std::min(best, time);
  }
  return best;
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

CudnnHandle* Context::Cudnn(Stream stream) {
  const auto& library = LoadCudnn();
  if (cudnn == nullptr) CheckCudnn(library.create(&cudnn), "cudnnCreate");
  CheckCudnn(library.set_stream(cudnn, stream), "cudnnSetStream");
  return cudnn;
}

LtHandle* Context::Lt() {
  if (lt == nullptr) CheckLt(LoadCublasLt().create(&lt), "cublasLtCreate");
  return lt;
}

const float* Context::Factors(Stream stream) {
  if (factors == nullptr) {
    std::array<float, 1 + kOnes> values{};
    std::fill(values.begin() + 1, values.end(), 1.0F);
    auto made = std::make_unique<DeviceBytes>(sizeof(values));
    CheckDriver(LoadDriver().write(made->address(), values.data(), sizeof(values), stream),
                "cuMemcpyHtoD");
    CheckDriver(LoadDriver().synchronize(stream), "cuStreamSynchronize");
    factors = std::move(made);
  }
  return reinterpret_cast<const float*>(static_cast<uintptr_t>(factors->address()));
}

Choice Context::Decide(const Key& key, const std::function<int(const Choice&)>& run,
                       const std::function<std::vector<Choice>()>& candidates, Stream stream,
                       const Taken& taken) {
  const auto known = choices.find(key);
  const bool captured = IsCaptured(stream);
  if (captured && taken.data != nullptr) {
    if (known != choices.end()) return known->second;
    const std::vector<Choice> all = candidates();
    if (all.empty()) throw std::invalid_argument(kNoAlgorithm);
    return all.front();
  }
  const Kept kept(taken, stream);
  if (known != choices.end() && run(known->second) == 0) {
    kept.PutBack();
    return known->second;
  }
  const bool measure = measuring && !captured;
  const Choice* best = nullptr;
  float least = std::numeric_limits<float>::infinity();
  const std::vector<Choice> all = candidates();
  for (const Choice& choice : all) {
    if (run(choice) != 0) continue;
    const float time = measure ? Measure(*this, run, choice, least, stream) : 0;
    if (time < least) {
      least = time;
      best = &choice;
    }
    if (!measure) break;
  }
  if (best == nullptr) throw std::invalid_argument(kNoAlgorithm);
  kept.PutBack();
  if (measure) choices[key] = *best;
  return *best;
}

Context& ContextOf(int device) {
  static std::mutex guard;
  // Never destroyed: when a process ends, the libraries may be gone before its statics.
  static auto* const contexts = new std::map<int, std::unique_ptr<Context>>;
  const std::lock_guard<std::mutex> lock(guard);
  std::unique_ptr<Context>& found = (*contexts)[device];
  if (found == nullptr) found = std::make_unique<Context>();
  return *found;
}

std::string ChoicesOf(int device) {
  Context& context = ContextOf(device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  std::ostringstream text;
  for (const auto& [key, choice] : context.choices) {
    for (const int64_t word : key) text << word << ' ';
    for (const int64_t word : choice) text << word << ' ';
    text << '\n';
  }
  return text.str();
}

void Remember(int device, const std::string& text) {
  std::istringstream lines(text);
  std::map<Key, Choice> found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Key key{};
    Choice choice{};
    for (int64_t& word : key) words >> word;
    for (int64_t& word : choice) words >> word;
    if (words.fail() || !(words >> std::ws).eof()) {
      throw std::invalid_argument("not a list of algorithms that this version of memc wrote");
    }
    found.emplace(key, choice);
  }
  Context& context = ContextOf(device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  context.choices.merge(found);
}

void SetMeasure(bool measure) { measuring = measure; }

}  // namespace memc::cuda
