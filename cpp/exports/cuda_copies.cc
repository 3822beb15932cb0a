// SPDX-License-Identifier: Apache-2.0
// Copies of compiled programs between a CUDA device and its host, which run beside the kernels. A
// slab is what a program's space on the host is: pinned memory, lanes and events.
//
//   memc.copy.cuda.open(device, bytes, lanes, slots) -> slab
//   memc.copy.cuda.bytes(slab) -> Tensor      its memory as u8[bytes] on the host
//   memc.copy.cuda.start(slab, tensor, offset, out, lane, slot)
//                                             out: 1 from the tensor into the slab, 0 back; and 2
//                                             more where no kernel, and no wait, has come since the
//                                             start before it in its lane
//   memc.copy.cuda.done(slab, slot)
//   memc.copy.cuda.apart(slab, flag)          whether no kernel may run beside a copy
//   memc.copy.cuda.drain(slab)                after an error in a run
//   memc.copy.cuda.ran(slab)                  after a run
//   memc.copy.cuda.recorded(slab)             after one that is a part of a caller's graph
//   memc.copy.cuda.free() -> int              bytes of the host's memory that can be taken
//
// Kernels and copies are enqueued for TVM's current stream of the device. The environment variable
// MEMC_COPIES says when copies run, as in copy_lanes.cc.
#include "cuda/cuda_copies.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/memory.h>
#include <tvm/ffi/object.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

#include "copies/copy_lanes.h"
#include "exports/cuda_packed.h"

namespace memc::cuda {

namespace {

namespace ffi = tvm::ffi;

class SlabObj : public ffi::Object {
 public:
  SlabObj(int device, size_t bytes, size_t lanes, size_t slots)
      : copies(device, bytes, lanes, slots) {}

  HostCopies copies;
  bool apart = false;
  uint64_t started = 0;  // Copies, by which random times are drawn.

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("memc.HostSlab", SlabObj, ffi::Object);
};

class Slab : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Slab, ffi::ObjectRef, SlabObj);
};

// Tensors over the slab keep it.
class OverSlab {
 public:
  explicit OverSlab(Slab slab) : slab_(std::move(slab)) {}
  void AllocData(DLTensor* tensor) { tensor->data = slab_->copies.slab().data(); }
  void FreeData(DLTensor* /*tensor*/) {}

 private:
  Slab slab_;
};

Stream StreamOf(const Slab& slab) {
  return static_cast<Stream>(TVMFFIEnvGetStream(kDLCUDA, slab->copies.device()));
}

When TimeOf(SlabObj* slab) {
  if (slab->apart) return When::kAtStart;
  const CopyTimes times = CopyTimes::Parse(std::getenv("MEMC_COPIES"));
  switch (times.kind) {
    case CopyTimes::Kind::kThread:
      return When::kBeside;
    case CopyTimes::Kind::kAtStart:
      return When::kAtStart;
    case CopyTimes::Kind::kAtDone:
      return When::kAtDone;
    case CopyTimes::Kind::kRandom:
      break;
  }
  std::mt19937_64 random(times.seed * 1'000'003 + slab->started);
  constexpr When kTimes[] = {When::kBeside, When::kAtStart, When::kAtDone};
  return kTimes[random() % 3];
}

size_t Size(int64_t number, const char* what) {
  if (number < 0) throw std::invalid_argument(std::string(what) + ": expected at least 0");
  return static_cast<size_t>(number);
}

void Open(ffi::PackedArgs args, ffi::Any* result) {
  *result = Slab(ffi::make_object<SlabObj>(
      args[0].cast<int>(), Size(args[1].cast<int64_t>(), "bytes"),
      Size(args[2].cast<int64_t>(), "lanes"), Size(args[3].cast<int64_t>(), "slots")));
}

ffi::Tensor Bytes(const Slab& slab) {
  const auto bytes = static_cast<int64_t>(slab->copies.slab().bytes());
  return ffi::Tensor::FromNDAlloc(OverSlab(slab), ffi::Shape({bytes}), DLDataType{kDLUInt, 8, 1},
                                  DLDevice{kDLCPU, 0});
}

void Start(ffi::PackedArgs args) {
  const auto slab = args[0].cast<Slab>();
  const auto tensor = args[1].cast<ffi::TensorView>();
  HostCopy copy;
  copy.device_address = reinterpret_cast<uintptr_t>(DataOf(tensor));
  copy.bytes = ffi::GetDataSize(static_cast<size_t>(tensor.numel()), tensor.dtype());
  copy.host_offset = Size(args[2].cast<int64_t>(), "offset");
  const auto way = args[3].cast<int64_t>();
  copy.out = (way & 1) != 0;
  copy.forked = (way & 2) != 0;
  copy.lane = Size(args[4].cast<int64_t>(), "lane");
  copy.slot = Size(args[5].cast<int64_t>(), "slot");
  copy.when = TimeOf(slab.get());
  ++slab.get()->started;
  slab.get()->copies.Start(copy, StreamOf(slab));
}

void Done(ffi::PackedArgs args) {
  const auto slab = args[0].cast<Slab>();
  slab->copies.Done(Size(args[1].cast<int64_t>(), "slot"), StreamOf(slab));
}

void Drain(const Slab& slab) { slab->copies.Drain(StreamOf(slab)); }

void Ran(const Slab& slab) { slab->copies.Ran(StreamOf(slab)); }

void Recorded(const Slab& slab) { slab->copies.Recorded(); }

void Apart(const Slab& slab, bool flag) { slab->apart = flag; }

int64_t Free() {
  return static_cast<int64_t>(
      std::min<size_t>(FreeHostBytes(), std::numeric_limits<int64_t>::max()));
}

}  // namespace

}  // namespace memc::cuda

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace ffi = tvm::ffi;
  namespace cuda = memc::cuda;
  const auto add = [](const char* symbol, const ffi::Function& function) {
    ffi::Function::SetGlobal(symbol, function, true);
  };
  add("memc.copy.cuda.open", ffi::Function::FromPacked(cuda::Open));
  add("memc.copy.cuda.bytes", ffi::Function::FromTyped(cuda::Bytes));
  add("memc.copy.cuda.start", cuda::Named<cuda::Start>("memc.copy.cuda.start"));
  add("memc.copy.cuda.done", cuda::Named<cuda::Done>("memc.copy.cuda.done"));
  add("memc.copy.cuda.apart", ffi::Function::FromTyped(cuda::Apart));
  add("memc.copy.cuda.drain", ffi::Function::FromTyped(cuda::Drain));
  add("memc.copy.cuda.ran", ffi::Function::FromTyped(cuda::Ran));
  add("memc.copy.cuda.recorded", ffi::Function::FromTyped(cuda::Recorded));
  add("memc.copy.cuda.free", ffi::Function::FromTyped(cuda::Free));
}
