// SPDX-License-Identifier: Apache-2.0
// An instrument of TVM's virtual machine that takes the time of each kernel call.
//
//   memc.profile.recorder(device) -> [instrument, times]
//
// `device`: -1 for the host, else the index of a CUDA device, whose current stream the calls use.
// `instrument` is what the virtual machine's set_instrument takes. times() gives, for each call
// that came back, but for those of the machine's own builtins: symbol, beginning, end (seconds
// since the first beginning).
#include "exports/call_times.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <memory>
#include <string>
#include <string_view>

#include "cuda/cuda_context.h"

namespace memc {

void EventClock::Mark() {
  const cuda::Driver& driver = cuda::LoadDriver();
  const auto stream = static_cast<cuda::Stream>(TVMFFIEnvGetStream(kDLCUDA, device_));
  int capturing = 0;
  cuda::CheckDriver(driver.is_capturing(stream, &capturing), "cuStreamIsCapturing");
  events_.push_back(cuda::Made(driver.create_event, cuda::CheckDriver, "cuEventCreate", 0U));
  const unsigned flags = capturing != 0 ? cuda::kRecordExternal : 0;
  cuda::CheckDriver(driver.record_event_with_flags(events_.back().get(), stream, flags),
                    "cuEventRecordWithFlags");
}

double EventClock::Seconds(size_t index) const {
  const cuda::Driver& driver = cuda::LoadDriver();
  float milliseconds = 0;
  cuda::CheckDriver(driver.wait_event(events_.at(index).get()), "cuEventSynchronize");
  cuda::CheckDriver(driver.elapsed(&milliseconds, events_.front().get(), events_.at(index).get()),
                    "cuEventElapsedTime");
  return milliseconds / 1e3;
}

namespace {

namespace ffi = tvm::ffi;

struct Recorder {
  std::unique_ptr<Clock> clock;
  std::vector<std::string> symbols;
};

bool IsBuiltin(std::string_view symbol) {
  return symbol.rfind("vm.builtin.", 0) == 0 || symbol.rfind("runtime.", 0) == 0;
}

ffi::Array<ffi::Any> Times(const Recorder& recorder) {
  ffi::Array<ffi::Any> found;
  for (size_t i = 0; i < recorder.clock->Marks() / 2; ++i) {
    found.push_back(ffi::String(recorder.symbols[i]));
    found.push_back(recorder.clock->Seconds(2 * i));
    found.push_back(recorder.clock->Seconds(2 * i + 1));
  }
  return found;
}

ffi::Array<ffi::Function> MakeRecorder(int device) {
  const auto recorder = std::make_shared<Recorder>();
  if (device < 0) {
    recorder->clock = std::make_unique<HostClock>();
  } else {
    recorder->clock = std::make_unique<EventClock>(device);
  }
  // Arguments: function, symbol, whether it is yet to be called, result, the call's arguments.
  const auto instrument = ffi::Function::FromPacked([recorder](ffi::PackedArgs args, ffi::Any*) {
    const auto symbol = args[1].cast<ffi::String>();
    if (IsBuiltin(std::string_view(symbol.data(), symbol.size()))) return;
    if (args[2].cast<bool>()) recorder->symbols.emplace_back(symbol);
    recorder->clock->Mark();
  });
  return {instrument, ffi::Function::FromTyped([recorder]() { return Times(*recorder); })};
}

}  // namespace

}  // namespace memc

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::Function::SetGlobal("memc.profile.recorder",
                                tvm::ffi::Function::FromTyped(memc::MakeRecorder), true);
}
