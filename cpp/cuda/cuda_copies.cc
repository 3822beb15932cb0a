// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_copies.h"

#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "cuda/cuda_context.h"

namespace memc::cuda {

namespace {

// The context of a device that the CUDA runtime uses; kept until the process ends.
DriverContext* PrimaryContext(int number) {
  static std::mutex guard;
  static auto* const found = new std::map<int, DriverContext*>;
  const std::lock_guard<std::mutex> lock(guard);
  const auto known = found->find(number);
  if (known != found->end()) return known->second;
  const Driver& driver = LoadDriver();
  int device = 0;
  DriverContext* context = nullptr;
  CheckDriver(driver.device(&device, number), "cuDeviceGet");
  CheckDriver(driver.retain_context(&context, device), "cuDevicePrimaryCtxRetain");
  return (*found)[number] = context;
}

// A context is the calling thread's for as long as this lives, and then the one that was, if any:
// a thread whose first call this is has none.
class Bound {
 public:
  explicit Bound(DriverContext* context) : context_(context) {
    LoadDriver().current_context(&before_);
    if (before_ != context_) CheckDriver(LoadDriver().set_context(context_), "cuCtxSetCurrent");
  }
  ~Bound() {
    if (before_ != context_ && before_ != nullptr) LoadDriver().set_context(before_);
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

 private:
  DriverContext* context_;
  DriverContext* before_ = nullptr;
};

// The calling thread's calls are allowed while streams are captured: for as long as this lives.
class DuringCaptures {
 public:
  DuringCaptures() { LoadDriver().exchange_capture_mode(&mode_); }
  ~DuringCaptures() { LoadDriver().exchange_capture_mode(&mode_); }
  DuringCaptures(const DuringCaptures&) = delete;
  DuringCaptures& operator=(const DuringCaptures&) = delete;

 private:
  int mode_ = kCaptureRelaxed;
};

}  // namespace

HostCopies::HostCopies(int device, size_t bytes, size_t lanes, size_t slots)
    : device_(device), context_(PrimaryContext(device)) {
  const Bound bound(context_);
  const DuringCaptures allowed;
  const Driver& driver = LoadDriver();
  const auto event = [&driver]() {
    return Made(driver.create_event, CheckDriver, "cuEventCreate", kNoTiming);
  };
  slab_ = std::make_unique<PinnedBytes>(bytes);
  for (size_t n = 0; n < lanes; ++n) {
    Lane& lane = lanes_.emplace_back();
    lane.stream = Made(driver.create_stream, CheckDriver, "cuStreamCreate", kStreamNonBlocking);
    lane.fork = event();
  }
  for (size_t n = 0; n < slots; ++n) slots_.emplace_back().over = event();
  used_ = event();
}

// What may still use the slab: a run that was launched, copies after an error, and graphs of the
// caller. Errors mean that the device is lost, or the driver gone already.
HostCopies::~HostCopies() {
  try {
    const Bound bound(context_);
    const DuringCaptures allowed;
    const Driver& driver = LoadDriver();
    if (ran_) driver.wait_event(used_.get());
    for (const Lane& lane : lanes_) {
      if (!IsCaptured(lane.stream.get())) driver.synchronize(lane.stream.get());
    }
    if (recorded_) driver.synchronize_context();
    slots_.clear();
    lanes_.clear();
    used_.reset();
    slab_.reset();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

void HostCopies::Start(const HostCopy& copy, Stream kernels) {
  if (copy.slot >= slots_.size() || copy.lane >= lanes_.size()) {
    throw std::invalid_argument("expected a lane and a slot among those that were made");
  }
  if (copy.host_offset > slab_->bytes() || copy.bytes > slab_->bytes() - copy.host_offset) {
    throw std::invalid_argument("expected bytes within the slab of " +
                                std::to_string(slab_->bytes()));
  }
  Slot& slot = slots_[copy.slot];
  Lane& lane = lanes_[copy.lane];
  slot.lane = copy.lane;
  slot.number = 0;  // There is nothing to wait for.
  if (copy.bytes == 0) return;
  slot.number = ++lane.started;
  if (copy.when == When::kAtDone) {
    lane.waiting.push_back(copy);
    return;
  }
  EnqueueWaiting(&lane, slot.number, kernels);
  Enqueue(copy, kernels);
  if (copy.when == When::kAtStart) Done(copy.slot, kernels);
}

void HostCopies::Done(size_t index, Stream kernels) {
  if (index >= slots_.size()) throw std::invalid_argument("expected a slot that was made");
  const Slot& slot = slots_[index];
  Lane& lane = lanes_.at(slot.lane);
  if (slot.number <= lane.joined) return;  // A wait for a later copy of the lane covers it.
  const Bound bound(context_);
  EnqueueWaiting(&lane, slot.number, kernels);
  CheckDriver(LoadDriver().wait(kernels, slot.over.get(), 0), "cuStreamWaitEvent");
  lane.joined = slot.number;
}

void HostCopies::Drain(Stream kernels) {
  const Bound bound(context_);
  const Driver& driver = LoadDriver();
  const bool captured = IsCaptured(kernels);
  for (Lane& lane : lanes_) {
    Stream stream = lane.stream.get();
    lane.waiting.clear();
    lane.joined = lane.started;
    if (IsCaptured(stream)) {
      // Where the capture has failed these fail, too, and its end frees the streams.
      if (captured && driver.record_event(lane.fork.get(), stream) == 0) {
        driver.wait(kernels, lane.fork.get(), 0);
      }
    } else {
      driver.synchronize(stream);
    }
  }
  if (!captured) driver.synchronize(kernels);
}

void HostCopies::Ran(Stream kernels) {
  const Bound bound(context_);
  CheckDriver(LoadDriver().record_event(used_.get(), kernels), "cuEventRecord");
  ran_ = true;
}

void HostCopies::Enqueue(const HostCopy& copy, Stream kernels) {
  const Bound bound(context_);
  const Driver& driver = LoadDriver();
  Lane& lane = lanes_[copy.lane];
  Stream stream = lane.stream.get();
  char* host = slab_->data() + copy.host_offset;
  if (!copy.forked || copy.when != When::kBeside) {
    CheckDriver(driver.record_event(lane.fork.get(), kernels), "cuEventRecord");
    CheckDriver(driver.wait(stream, lane.fork.get(), 0), "cuStreamWaitEvent");
  }
  if (copy.out) {
    CheckDriver(driver.read(host, copy.device_address, copy.bytes, stream), "cuMemcpyDtoHAsync");
  } else {
    CheckDriver(driver.write(copy.device_address, host, copy.bytes, stream), "cuMemcpyHtoDAsync");
  }
  CheckDriver(driver.record_event(slots_[copy.slot].over.get(), stream), "cuEventRecord");
}

// The copies of a lane run in the sequence of their starts: those before one that is enqueued are,
// too.
void HostCopies::EnqueueWaiting(Lane* lane, uint64_t number, Stream kernels) {
  while (!lane->waiting.empty() && slots_[lane->waiting.front().slot].number <= number) {
    const HostCopy copy = lane->waiting.front();
    lane->waiting.pop_front();
    Enqueue(copy, kernels);
  }
}

bool HostCopies::IsCaptured(Stream stream) {
  int status = 0;
  return LoadDriver().is_capturing(stream, &status) == 0 && status != 0;
}

}  // namespace memc::cuda
