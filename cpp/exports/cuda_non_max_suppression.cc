// SPDX-License-Identifier: Apache-2.0
// What looks at boxes on CUDA, as a packed function, by memc's own kernels; memc.cuda.add_kernels
// (cuda_library_kernels.cc) must have brought them.
//
//   memc.cuda.non_max_suppression(boxes, candidates, threshold, result, workspace, center)
#include "cuda/cuda_non_max_suppression.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include "exports/cuda_packed.h"

namespace {

namespace ffi = tvm::ffi;
namespace cuda = memc::cuda;
using cuda::Require;

void Suppression(ffi::PackedArgs args) {
  Require(args.size() == 6, "expected operands, a result, a workspace and a scalar");
  const auto boxes = args[0].cast<ffi::TensorView>();
  const auto candidates = args[1].cast<ffi::TensorView>();
  const auto threshold = args[2].cast<ffi::TensorView>();
  const auto result = args[3].cast<ffi::TensorView>();
  const auto workspace = args[4].cast<ffi::TensorView>();
  const auto is = [](const ffi::TensorView& t, int code, int bits, int rank) {
    return t.dtype().code == code && t.dtype().bits == bits && t.ndim() == rank;
  };
  Require(is(boxes, kDLFloat, 32, 3) && is(candidates, kDLInt, 64, 3) &&
              is(threshold, kDLFloat, 32, 0) && is(result, kDLInt, 64, 3) && boxes.size(2) == 4 &&
              boxes.size(0) == candidates.size(0) && result.size(0) == candidates.size(0) &&
              result.size(1) == candidates.size(1),
          "the operands do not fit each other");
  const cuda::BoxCandidates shape{candidates.size(0), candidates.size(1),
                                  boxes.size(1),      candidates.size(2),
                                  result.size(2),     args[5].cast<int64_t>() != 0};
  cuda::Place place = cuda::PlaceOf(result);
  place.workspace = cuda::DataOf(workspace);
  place.bytes = static_cast<size_t>(workspace.numel());
  cuda::SuppressBoxes(shape, place, static_cast<const float*>(cuda::DataOf(boxes)),
                      static_cast<const int64_t*>(cuda::DataOf(candidates)),
                      static_cast<const float*>(cuda::DataOf(threshold)),
                      static_cast<int64_t*>(cuda::DataOf(result)));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::Function::SetGlobal("memc.cuda.non_max_suppression",
                           cuda::Named<Suppression>("memc.cuda.non_max_suppression"), true);
}
