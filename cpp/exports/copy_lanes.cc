// SPDX-License-Identifier: Apache-2.0
// Copies between spaces of compiled programs, which run beside the kernels.
//
//   memc.copy.start(source, destination, lane) -> ticket   lane: its name
//   memc.copy.done(ticket)
//   memc.copy.drain()   once all copies of the process are over
//   memc.copy.check()   that MEMC_COPIES is as it should be
//
// The environment variable MEMC_COPIES says when they run: thread (the default), at-start, at-done
// or random:SEED.
#include "copies/copy_lanes.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

namespace ffi = tvm::ffi;

using memc::CopyLanes;
using memc::CopyTimes;

constexpr int kLaneShift = 48;

char* Bytes(const ffi::TensorView& tensor) {
  if (tensor.device().device_type != kDLCPU) {
    throw std::invalid_argument("memc.copy.start: expected tensors on the host");
  }
  return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
}

size_t Size(const ffi::TensorView& tensor) {
  const DLDataType type = tensor.dtype();
  return static_cast<size_t>(tensor.numel()) * ((type.bits * type.lanes + 7) / 8);
}

CopyTimes Times() { return CopyTimes::Parse(std::getenv("MEMC_COPIES")); }

int64_t Start(const ffi::TensorView& source, const ffi::TensorView& destination,
              const ffi::String& lane) {
  if (Size(source) != Size(destination)) {
    throw std::invalid_argument("memc.copy.start: expected as many bytes as the source has");
  }
  const auto ticket =
      CopyLanes::OfThisProcess().Start(Bytes(source), Bytes(destination), Size(source),
                                       std::string(lane.data(), lane.size()), Times());
  return static_cast<int64_t>(ticket.lane) << kLaneShift | static_cast<int64_t>(ticket.number);
}

void Done(int64_t ticket) {
  const int64_t number = ticket & ((int64_t{1} << kLaneShift) - 1);
  CopyLanes::OfThisProcess().Wait(
      {static_cast<uint32_t>(ticket >> kLaneShift), static_cast<uint64_t>(number)});
}

void Check() { static_cast<void>(Times()); }

void Drain() { CopyLanes::OfThisProcess().Drain(); }

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("memc.copy.start", Start)
      .def("memc.copy.done", Done)
      .def("memc.copy.drain", Drain)
      .def("memc.copy.check", Check);
}
