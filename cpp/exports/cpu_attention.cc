// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU, as packed functions.
//
//   memc.cpu.attention(q, k, v, mask?, seed?, result, log_sum?, scalars...)
//   memc.cpu.attention_grad(q, k, v, mask?, seed?, log_sum, share, g, of_q, of_k, of_v, scalars...)
//   memc.cpu.attention_mask_grad(q, k, v, mask, seed?, log_sum, share, g, of_mask, scalars...)
//
// Tensors are of one type, f32, f16 or bf16, but log_sum and share, which are f32, the mask, which
// may be bool or f32, and the seed, i64[]. Scalars: how many of the tensors are operands; whether
// there is a mask; the axis of positions (the last one are columns, and the others tell heads
// apart); the scale; whether there is a diagonal; that; the window, or 0; the cap, or 0; whether
// rows that see no key are 0; and of dropout the words below which an element is dropped, 0 if
// there is none, what the others are multiplied by, and the stream.
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

constexpr int kScalars = 12;

void Require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

struct Call {
  std::vector<ffi::TensorView> tensors;
  std::vector<ffi::AnyView> scalars;
  int64_t operands, axis;
  bool has_mask;

  template <typename T>
  T Scalar(size_t i) const {
    return scalars.at(i).cast<T>();
  }
  void* Data(int64_t i) const { return memc::Elements<void>(tensors.at(i)); }
  float* Floats(int64_t i) const { return memc::Elements<float>(tensors.at(i)); }
};

// A call with `operands` operands beside mask and seed, and from `least` to `most` results.
Call Parse(ffi::PackedArgs args, int64_t operands, int64_t least, int64_t most) {
  Call call;
  const int count = args.size() - kScalars;
  Require(count >= 0, "too few arguments");
  for (int i = 0; i < count; ++i) call.tensors.push_back(args[i].cast<ffi::TensorView>());
  for (int i = count; i < args.size(); ++i) call.scalars.push_back(args[i]);
  call.operands = call.Scalar<int64_t>(0);
  call.has_mask = call.Scalar<int64_t>(1) != 0;
  call.axis = call.Scalar<int64_t>(2);
  const int64_t more = (call.has_mask ? 1 : 0) + (call.Scalar<int64_t>(9) > 0 ? 1 : 0);
  Require(call.operands == operands + more, "another number of operands");
  Require(count >= call.operands + least && count <= call.operands + most,
          "another number of tensors");
  Require(call.tensors[0].ndim() >= 2 && call.axis >= 0 && call.axis < call.tensors[0].ndim() - 1,
          "expected an axis before the last one");
  return call;
}

// Those of bf16 may come as their bits, u16.
memc::FloatKind KindOf(const ffi::TensorView& t) {
  const DLDataType type = t.dtype();
  Require(type.lanes == 1, "expected scalars as elements");
  if (type.code == kDLFloat && type.bits == 32) return memc::FloatKind::kF32;
  if (type.code == kDLFloat && type.bits == 16) return memc::FloatKind::kF16;
  Require((type.code == kDLUInt || type.code == kDLBfloat) && type.bits == 16,
          "expected tensors of f32, f16 or bf16");
  return memc::FloatKind::kBf16;
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
  if (mask.dtype().bits == 8) {
    found.seen = memc::Elements<uint8_t>(mask);
  } else {
    found.kind = KindOf(mask);
    found.added = memc::Elements<void>(mask);
  }
  return found;
}

// What the scalars say, and the seed of a dropout.
void TakeForm(const Call& call, memc::AttentionShape& s) {
  s.scale = static_cast<float>(call.Scalar<double>(3));
  s.diagonal = call.Scalar<int64_t>(4) != 0 ? call.Scalar<int64_t>(5) : s.keys;
  s.window = call.Scalar<int64_t>(6);
  s.cap = static_cast<float>(call.Scalar<double>(7));
  s.is_zero_blind = call.Scalar<int64_t>(8) != 0;
  s.dropout.threshold = static_cast<uint64_t>(call.Scalar<int64_t>(9));
  s.dropout.kept = static_cast<float>(call.Scalar<double>(10));
  s.dropout.stream = static_cast<uint32_t>(call.Scalar<int64_t>(11));
  if (!s.dropout.IsGiven()) return;
  const ffi::TensorView& seed = call.tensors[call.has_mask ? 4 : 3];
  Require(seed.dtype().code == kDLInt && seed.dtype().bits == 64 && seed.numel() == 1,
          "expected a seed of i64");
  s.dropout.seed = static_cast<uint64_t>(*memc::Elements<int64_t>(seed));
}

// Of tensors q, k, v and maybe a mask, a result, and one of numbers for rows unless that is null.
memc::AttentionShape ShapeOf(const Call& call, const ffi::TensorView& result,
                             const ffi::TensorView* numbers) {
  const ffi::TensorView &q = call.tensors[0], &k = call.tensors[1], &v = call.tensors[2];
  const auto row = static_cast<int>(call.axis);
  Require(k.ndim() == q.ndim() && v.ndim() == q.ndim() && result.ndim() == q.ndim() &&
              (numbers == nullptr || numbers->ndim() == q.ndim() - 1),
          "expected tensors of one rank");
  Require(k.size(-1) == q.size(-1) && v.size(row) == k.size(row) && v.size(-1) == result.size(-1) &&
              result.size(row) == q.size(row),
          "the operands' shapes do not fit the result's");
  Require(q.size(-1) <= memc::kMostHeadColumns && v.size(-1) <= memc::kMostHeadColumns,
          "heads of more than 256 columns");
  const std::vector<int> axes = HeadAxes(q, call.axis);
  memc::AttentionShape s;
  s.kind = KindOf(q);
  Require(KindOf(k) == s.kind && KindOf(v) == s.kind && KindOf(result) == s.kind,
          "expected tensors of one type");
  s.queries = q.size(row);
  s.keys = k.size(row);
  s.depth = q.size(-1);
  s.width = v.size(-1);
  TakeForm(call, s);
  s.q = RowsOf(q, axes, call.axis);
  s.k = RowsOf(k, axes, call.axis);
  s.v = RowsOf(v, axes, call.axis);
  s.result = RowsOf(result, axes, call.axis);
  if (numbers != nullptr) s.numbers = RowsOf(*numbers, axes, call.axis);
  s.key_of = KeysOf(q, k, axes);
  if (call.has_mask) s.mask = MaskOf(call.tensors[3], q, k, axes, call.axis);
  return s;
}

void Attention(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Call call = Parse(args, 3, 1, 2);
  const int64_t n = call.operands;
  const bool has_numbers = static_cast<int64_t>(call.tensors.size()) > n + 1;
  const memc::AttentionShape shape =
      ShapeOf(call, call.tensors[n], has_numbers ? &call.tensors[n + 1] : nullptr);
  memc::Attend(shape, call.Data(0), call.Data(1), call.Data(2), call.Data(n),
               has_numbers ? call.Floats(n + 1) : nullptr);
}

// The operands of a call for gradients.
memc::AttentionGradOperands GradOperandsOf(const Call& call) {
  const int64_t n = call.operands;
  memc::AttentionGradOperands o{};
  o.q = call.Data(0);
  o.k = call.Data(1);
  o.v = call.Data(2);
  o.log_sum = call.Floats(n - 3);
  o.share = call.Floats(n - 2);
  o.g = call.Data(n - 1);
  return o;
}

void AttentionGrad(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Call call = Parse(args, 6, 3, 3);
  const int64_t n = call.operands;
  const memc::AttentionShape shape = ShapeOf(call, call.tensors[n - 1], &call.tensors[n - 2]);
  memc::AttentionGradOperands o = GradOperandsOf(call);
  o.of_q = call.Data(n);
  o.of_k = call.Data(n + 1);
  o.of_v = call.Data(n + 2);
  memc::AttendGrad(shape, o);
}

void AttentionMaskGrad(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Call call = Parse(args, 6, 1, 1);
  const int64_t n = call.operands;
  const memc::AttentionShape shape = ShapeOf(call, call.tensors[n - 1], &call.tensors[n - 2]);
  Require(shape.mask.added != nullptr && KindOf(call.tensors[n]) == shape.mask.kind,
          "expected a mask of floats, and a gradient of its type");
  memc::AttendMaskGrad(shape, GradOperandsOf(call), call.Data(n));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def_packed("memc.cpu.attention", memc::Guarded<Attention>)
      .def_packed("memc.cpu.attention_grad", memc::Guarded<AttentionGrad>)
      .def_packed("memc.cpu.attention_mask_grad", memc::Guarded<AttentionMaskGrad>);
}
