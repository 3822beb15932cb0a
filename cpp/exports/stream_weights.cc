// SPDX-License-Identifier: Apache-2.0
// The doors to streamed weights for Python. Arrays are one-dimensional contiguous i64 host tensors.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "exports/ffi_arrays.h"
#include "exports/lane_numbers.h"
#include "exports/recompute_columns.h"
#include "solvers/offload/stream_search.h"

namespace {

namespace ffi = tvm::ffi;
using memc::Numbers;
using memc::Tensors;

// `columns`: items, numbers, live bytes, sizes, first and index of uses, and the lanes with the
// host budget; the watch.
memc::StreamProblem MakeProblem(const Tensors& columns) {
  if (columns.size() != 8) throw std::invalid_argument("expected 8 columns");
  memc::StreamProblem problem;
  for (const int64_t kind : Numbers(columns[0], -1, "items")) {
    if (kind < 0 || kind > static_cast<int64_t>(memc::StreamItem::kInDone)) {
      throw std::invalid_argument("no item " + std::to_string(kind));
    }
    problem.items.push_back(static_cast<memc::StreamItem>(kind));
  }
  problem.numbers = Numbers(columns[1], problem.length(), "numbers");
  problem.live = Numbers(columns[2], problem.length(), "live bytes");
  problem.sizes = Numbers(columns[3], -1, "sizes");
  problem.uses = memc::MakeRows(columns[4], columns[5], problem.weights(), "use");
  std::vector<int64_t> sizes = problem.sizes;
  for (int64_t item = 0; item < problem.length(); ++item) {
    const memc::StreamItem kind = problem.items[item];
    if (kind == memc::StreamItem::kOutStart || kind == memc::StreamItem::kInStart) {
      sizes.push_back(problem.numbers[item]);
    }
  }
  const std::vector<int64_t> numbers = Numbers(columns[6], memc::kLaneNumbers, "lanes");
  problem.lanes = memc::MakeLanes(numbers, sizes);
  if (numbers.back() >= 0) problem.host_budget = numbers.back();
  problem.watch = memc::MakeWatch(columns[7]);
  return problem;
}

// Peak, makespan and bytes, then weight, start, wait, first and last use of each window. As bytes
// of i64: an array of numbers would be an object for each.
ffi::Bytes Flat(const memc::StreamPlan& plan) {
  std::vector<int64_t> found{plan.peak, plan.makespan, plan.bytes};
  for (const memc::Window& window : plan.windows) {
    found.insert(found.end(),
                 {window.weight, window.start, window.wait, window.first, window.last});
  }
  return ffi::Bytes(reinterpret_cast<const char*>(found.data()), found.size() * sizeof(found[0]));
}

ffi::Array<ffi::Bytes> StreamLadder(Tensors columns) {
  return memc::Translate([&] {
    ffi::Array<ffi::Bytes> found;
    for (const memc::StreamPlan& plan : memc::StreamLadder(MakeProblem(columns))) {
      found.push_back(Flat(plan));
    }
    return found;
  });
}

int64_t LeastStreamed(Tensors columns) {
  return memc::Translate([&] { return memc::LeastStreamed(MakeProblem(columns)); });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_stream_ladder, StreamLadder);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_least_streamed, LeastStreamed);
