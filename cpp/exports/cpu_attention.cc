// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU, as packed functions.
//
//   memc.cpu.attention(q, k, v, mask?, result, log_sum, scalars...)
//   memc.cpu.attention_grad(q, k, v, mask?, log_sum, share, g, of_q, of_k, of_v, scalars...)
//
// All tensors are f32, but the mask may be bool. Scalars: how many of the tensors are operands; the
// axis of positions (the last one are columns, and the others tell heads apart); the scale; whether
// there is a diagonal; and that.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "exports/cpu_packed.h"
#include "kernels/attention.h"

namespace {

namespace ffi = tvm::ffi;

constexpr int kScalars = 5;

void Require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

struct Call {
  std::vector<ffi::TensorView> tensors;
  int64_t operands, axis;
  double scale;
  bool has_diagonal;
  int64_t diagonal;

  float* Data(int64_t i) const { return memc::Elements<float>(tensors.at(i)); }
};

Call Parse(ffi::PackedArgs args, int64_t operands, int64_t results) {
  Call call;
  const int count = args.size() - kScalars;
  Require(count >= 0, "too few arguments");
  for (int i = 0; i < count; ++i) call.tensors.push_back(args[i].cast<ffi::TensorView>());
  call.operands = args[count].cast<int64_t>();
  call.axis = args[count + 1].cast<int64_t>();
  call.scale = args[count + 2].cast<double>();
  call.has_diagonal = args[count + 3].cast<int64_t>() != 0;
  call.diagonal = args[count + 4].cast<int64_t>();
  Require(call.operands == operands || call.operands == operands + 1, "another number of operands");
  Require(count == call.operands + results, "another number of tensors");
  Require(call.tensors[0].ndim() >= 2 && call.axis >= 0 && call.axis < call.tensors[0].ndim() - 1,
          "expected an axis before the last one");
  return call;
}

// Elements between neighbours of an axis of a tensor without gaps.
int64_t Step(const ffi::TensorView& t, int axis) {
  int64_t step = 1;
  for (int d = axis + 1; d < t.ndim(); ++d) step *= t.size(d);
  return step;
}

// The axes that tell heads apart.
std::vector<int> HeadAxes(const ffi::TensorView& q, int64_t axis) {
  std::vector<int> axes;
  for (int d = 0; d + 1 < q.ndim(); ++d) {
    if (d != axis) axes.push_back(d);
  }
  return axes;
}

// For each combination of `extents`, the last of which varies fastest, the sum of step times index,
// where an index counts for `shares` neighbours at once.
std::vector<int64_t> Places(const std::vector<int64_t>& extents, const std::vector<int64_t>& steps,
                            const std::vector<int64_t>& shares) {
  std::vector<int64_t> places{0};
  for (size_t d = 0; d < extents.size(); ++d) {
    std::vector<int64_t> next;
    next.reserve(places.size() * extents[d]);
    for (const int64_t place : places) {
      for (int64_t i = 0; i < extents[d]; ++i) next.push_back(place + i / shares[d] * steps[d]);
    }
    places = std::move(next);
  }
  return places;
}

// Heads and rows of a tensor, which may lack the last axis.
memc::HeadRows RowsOf(const ffi::TensorView& t, const std::vector<int>& axes, int64_t axis) {
  std::vector<int64_t> extents, steps;
  for (const int d : axes) {
    extents.push_back(t.size(d));
    steps.push_back(Step(t, d));
  }
  return {Places(extents, steps, std::vector<int64_t>(axes.size(), 1)),
          Step(t, static_cast<int>(axis))};
}

// For each head of q, the number of k's head that it reads.
std::vector<int64_t> KeysOf(const ffi::TensorView& q, const ffi::TensorView& k,
                            const std::vector<int>& axes) {
  std::vector<int64_t> extents, steps(axes.size()), shares;
  int64_t step = 1;
  for (size_t d = axes.size(); d-- > 0;) {
    steps[d] = step;
    step *= k.size(axes[d]);
  }
  for (const int d : axes) {
    Require(k.size(d) > 0 && q.size(d) % k.size(d) == 0, "heads of q that are no multiple of k's");
    extents.push_back(q.size(d));
    shares.push_back(q.size(d) / k.size(d));
  }
  return Places(extents, steps, shares);
}

memc::AttentionMask MaskOf(const ffi::TensorView& mask, const ffi::TensorView& q,
                           const ffi::TensorView& k, const std::vector<int>& axes, int64_t axis) {
  std::vector<int64_t> whole;  // The scores' shape.
  for (const int d : axes) whole.push_back(q.size(d));
  whole.push_back(q.size(static_cast<int>(axis)));
  whole.push_back(k.size(static_cast<int>(axis)));
  const auto rank = static_cast<int>(whole.size());
  Require(mask.ndim() <= rank, "a mask of more axes than the scores");
  std::vector<int64_t> steps(whole.size(), 0);
  for (int d = 1; d <= mask.ndim(); ++d) {
    const int64_t extent = mask.size(-d);
    Require(extent == 1 || extent == whole[rank - d], "the mask does not fit the scores");
    if (extent != 1) steps[rank - d] = Step(mask, mask.ndim() - d);
  }
  memc::AttentionMask found;
  found.column = steps.back();
  found.row = steps[rank - 2];
  whole.resize(axes.size());
  steps.resize(axes.size());
  found.at = Places(whole, steps, std::vector<int64_t>(axes.size(), 1));
  if (mask.dtype().code == kDLFloat) {
    found.added = memc::Elements<float>(mask);
  } else {
    Require(mask.dtype().bits == 8, "expected a mask of f32 or bool");
    found.seen = memc::Elements<uint8_t>(mask);
  }
  return found;
}

// Of tensors q, k, v and maybe a mask, a result, and one of numbers for rows.
memc::AttentionShape ShapeOf(const Call& call, bool has_mask, const ffi::TensorView& result,
                             const ffi::TensorView& numbers) {
  const ffi::TensorView &q = call.tensors[0], &k = call.tensors[1], &v = call.tensors[2];
  const auto row = static_cast<int>(call.axis);
  Require(k.ndim() == q.ndim() && v.ndim() == q.ndim() && result.ndim() == q.ndim() &&
              numbers.ndim() == q.ndim() - 1,
          "expected tensors of one rank");
  Require(k.size(-1) == q.size(-1) && v.size(row) == k.size(row) && v.size(-1) == result.size(-1) &&
              result.size(row) == q.size(row),
          "the operands' shapes do not fit the result's");
  Require(q.size(-1) <= memc::kMostHeadColumns && v.size(-1) <= memc::kMostHeadColumns,
          "heads of more than 256 columns");
  const std::vector<int> axes = HeadAxes(q, call.axis);
  memc::AttentionShape s;
  s.queries = q.size(row);
  s.keys = k.size(row);
  s.depth = q.size(-1);
  s.width = v.size(-1);
  s.scale = static_cast<float>(call.scale);
  s.diagonal = call.has_diagonal ? call.diagonal : s.keys;
  s.q = RowsOf(q, axes, call.axis);
  s.k = RowsOf(k, axes, call.axis);
  s.v = RowsOf(v, axes, call.axis);
  s.result = RowsOf(result, axes, call.axis);
  s.numbers = RowsOf(numbers, axes, call.axis);
  s.key_of = KeysOf(q, k, axes);
  if (has_mask) s.mask = MaskOf(call.tensors[3], q, k, axes, call.axis);
  return s;
}

void Attention(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Call call = Parse(args, 3, 2);
  const int64_t n = call.operands;
  const memc::AttentionShape shape = ShapeOf(call, n == 4, call.tensors[n], call.tensors[n + 1]);
  memc::Attend(shape, call.Data(0), call.Data(1), call.Data(2), call.Data(n), call.Data(n + 1));
}

void AttentionGrad(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Call call = Parse(args, 6, 3);
  const int64_t n = call.operands;
  const memc::AttentionShape shape =
      ShapeOf(call, n == 7, call.tensors[n - 1], call.tensors[n - 2]);
  memc::AttendGrad(shape,
                   {call.Data(0), call.Data(1), call.Data(2), call.Data(n - 3), call.Data(n - 2),
                    call.Data(n - 1), call.Data(n), call.Data(n + 1), call.Data(n + 2)});
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def_packed("memc.cpu.attention", memc::Guarded<Attention>)
      .def_packed("memc.cpu.attention_grad", memc::Guarded<AttentionGrad>);
}
