// SPDX-License-Identifier: Apache-2.0
// What looks at boxes on the CPU, as a packed function.
//
//   memc.cpu.non_max_suppression(boxes, candidates, threshold, result, workspace, center)
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <stdexcept>
#include <string>

#include "exports/cpu_packed.h"
#include "kernels/non_max_suppression.h"

namespace {

namespace ffi = tvm::ffi;
using memc::Elements;

void Suppression(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const std::string symbol = "memc.cpu.non_max_suppression: ";
  const auto boxes = args[0].cast<ffi::TensorView>();
  const auto candidates = args[1].cast<ffi::TensorView>();
  const auto threshold = args[2].cast<ffi::TensorView>();
  const auto result = args[3].cast<ffi::TensorView>();
  const auto workspace = args[4].cast<ffi::TensorView>();
  const auto is = [](const ffi::TensorView& t, int code, int bits, int rank) {
    return t.dtype().code == code && t.dtype().bits == bits && t.ndim() == rank;
  };
  if (!is(boxes, kDLFloat, 32, 3) || !is(candidates, kDLInt, 64, 3) ||
      !is(threshold, kDLFloat, 32, 0) || !is(result, kDLInt, 64, 3) || boxes.size(2) != 4 ||
      boxes.size(0) != candidates.size(0) || result.size(0) != candidates.size(0) ||
      result.size(1) != candidates.size(1)) {
    throw std::invalid_argument(symbol + "the operands do not fit each other");
  }
  const memc::SuppressionShape shape{candidates.size(0), candidates.size(1),
                                     boxes.size(1),      candidates.size(2),
                                     result.size(2),     args[5].cast<int64_t>() != 0};
  if (result.numel() == 0) return;
  const int64_t least = memc::SuppressionRoom(shape.most);
  if (workspace.numel() < least) {
    throw std::invalid_argument(symbol + "expected a workspace of " + std::to_string(least) +
                                " bytes or more, got " + std::to_string(workspace.numel()));
  }
  memc::NonMaxSuppression(shape, Elements<const float>(boxes), Elements<const int64_t>(candidates),
                          *Elements<const float>(threshold), Elements<int64_t>(result),
                          Elements<char>(workspace), workspace.numel());
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def_packed("memc.cpu.non_max_suppression",
                                               memc::Guarded<Suppression>);
}
