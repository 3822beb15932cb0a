// SPDX-License-Identifier: Apache-2.0
// The CPU kernels as packed functions symbol(operands..., result, workspace?, scalars...), which
// register themselves when the library is loaded. The first scalar is the number of operands.
//
//   memc.cpu.set_blas(path)
//   memc.cpu.matmul(a, b, bias?, add?, c, operands, transpose_a, transpose_b, has_bias, low, high)
//   memc.cpu.packed_matmul(the same, with b in column panels)
//   memc.cpu.conv2d(x, w, bias?, add?, y, workspace?, operands, group, stride_h, stride_w, pad_top,
//                   pad_left, dilation_h, dilation_w, has_bias, low, high)
//   memc.cpu.packed_conv2d(the same, with w in row panels)
//   memc.cpu.depthwise_conv2d(x, w, bias?, y, the scalars of conv2d)
//   memc.cpu.conv2d_grad_weight(x, g, w, workspace?, the first 8 scalars of conv2d)
//   memc.cpu.conv2d_transpose(g, w, bias?, x, workspace?, the first 8 scalars of conv2d)
#include "kernels/cpu_kernels.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "exports/cpu_packed.h"
#include "kernels/blas.h"

namespace {

namespace ffi = tvm::ffi;

using memc::Elements;

struct Arguments {
  std::vector<ffi::TensorView> tensors;
  std::vector<double> scalars;
  int64_t operands;  // How many of the tensors are operands; the result comes next.

  float* Data(size_t index) const { return Elements<float>(tensors.at(index)); }
  float* Result() const { return Data(static_cast<size_t>(operands)); }
  int64_t Integer(size_t index) const { return static_cast<int64_t>(scalars.at(index)); }
  const float* Bias() const { return operands == 3 ? Data(2) : nullptr; }
  bool HasWorkspace() const { return static_cast<int64_t>(tensors.size()) > operands + 1; }
  float* Workspace() const { return HasWorkspace() ? Data(operands + 1) : nullptr; }
  int64_t WorkspaceBytes() const { return HasWorkspace() ? tensors[operands + 1].numel() : 0; }
};

void RequireFloat(const ffi::TensorView& tensor, const char* symbol) {
  const DLDataType type = tensor.dtype();
  if (type.code != kDLFloat || type.bits != 32 || type.lanes != 1 ||
      tensor.device().device_type != kDLCPU) {
    throw std::invalid_argument(std::string(symbol) + ": expected f32 tensors on the host");
  }
}

Arguments Parse(ffi::PackedArgs args, const char* symbol, size_t scalars) {
  Arguments parsed;
  const auto count = static_cast<size_t>(args.size());
  if (count < scalars + 3) {
    throw std::invalid_argument(std::string(symbol) + ": too few arguments");
  }
  for (size_t i = 0; i < count; ++i) {
    if (i + scalars < count) {
      parsed.tensors.push_back(args[static_cast<int>(i)].cast<ffi::TensorView>());
    } else {
      parsed.scalars.push_back(args[static_cast<int>(i)].cast<double>());
    }
  }
  parsed.operands = parsed.Integer(0);
  if (parsed.operands < 2 || parsed.operands > 4 ||
      parsed.operands >= static_cast<int64_t>(parsed.tensors.size())) {
    throw std::invalid_argument(std::string(symbol) + ": expected 2 to 4 operands and a result");
  }
  for (int64_t i = 0; i <= parsed.operands; ++i) RequireFloat(parsed.tensors[i], symbol);
  return parsed;
}

// The first element of each product's operand when its leading axes broadcast to the result's.
std::vector<int64_t> Starts(const ffi::TensorView& operand, const ffi::TensorView& result) {
  const int lead = result.ndim() - 2;
  const int own = operand.ndim() - 2;
  std::vector<int64_t> stride(lead, 0);
  int64_t step = operand.size(own) * operand.size(own + 1);
  for (int axis = own - 1; axis >= 0; --axis) {
    if (operand.size(axis) != 1) stride[lead - own + axis] = step;
    step *= operand.size(axis);
  }
  std::vector<int64_t> starts{0};
  for (int axis = 0; axis < lead; ++axis) {
    std::vector<int64_t> next;
    next.reserve(starts.size() * result.size(axis));
    for (const int64_t start : starts) {
      for (int64_t i = 0; i < result.size(axis); ++i) next.push_back(start + i * stride[axis]);
    }
    starts = std::move(next);
  }
  return starts;
}

// What a kernel adds to its sums: a bias, an addend of the result's shape, both or neither.
struct Addends {
  const float* bias;
  const float* add;
};

// Of operands 2 and on.
Addends FindAddends(const Arguments& parsed, bool has_bias, int64_t bias, const char* symbol) {
  const int64_t count = parsed.operands - 2 - (has_bias ? 1 : 0);
  if (count < 0 || count > 1) {
    throw std::invalid_argument(std::string(symbol) + ": expected at most a bias and an addend");
  }
  const std::vector<ffi::TensorView>& tensors = parsed.tensors;
  if ((has_bias && tensors[2].numel() != bias) ||
      (count == 1 && tensors[parsed.operands - 1].numel() != tensors[parsed.operands].numel())) {
    throw std::invalid_argument(std::string(symbol) + ": the shapes do not fit each other");
  }
  return {has_bias ? parsed.Data(2) : nullptr,
          count == 1 ? parsed.Data(parsed.operands - 1) : nullptr};
}

struct Product {
  memc::MatmulShape shape;
  memc::MatmulOperands operands;
};

Product ParseProduct(ffi::PackedArgs args, const char* symbol) {
  const Arguments parsed = Parse(args, symbol, 6);
  const ffi::TensorView& a = parsed.tensors[0];
  const ffi::TensorView& b = parsed.tensors[1];
  const ffi::TensorView& c = parsed.tensors[parsed.operands];
  memc::MatmulShape shape;
  shape.transpose_a = parsed.scalars[1] != 0;
  shape.transpose_b = parsed.scalars[2] != 0;
  shape.limits = {static_cast<float>(parsed.scalars[4]), static_cast<float>(parsed.scalars[5])};
  shape.m = c.size(-2);
  shape.n = c.size(-1);
  shape.k = a.size(shape.transpose_a ? -2 : -1);
  if (b.size(shape.transpose_b ? -1 : -2) != shape.k ||
      a.size(shape.transpose_a ? -1 : -2) != shape.m ||
      b.size(shape.transpose_b ? -2 : -1) != shape.n) {
    throw std::invalid_argument(std::string(symbol) +
                                ": the operands' shapes do not fit the result's");
  }
  shape.a_at = Starts(a, c);
  shape.b_at = Starts(b, c);
  if (b.ndim() == 2 && !shape.transpose_a &&
      a.numel() == c.numel() / std::max<int64_t>(shape.n, 1) * shape.k) {
    // One matrix for all: the batch is more rows of a single product.
    shape.m *= static_cast<int64_t>(shape.a_at.size());
    shape.a_at = {0};
    shape.b_at = {0};
  }
  const Addends addends = FindAddends(parsed, parsed.scalars[3] != 0, shape.n, symbol);
  return {shape, {parsed.Data(0), parsed.Data(1), addends.bias, addends.add, parsed.Result()}};
}

void Matmul(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Product product = ParseProduct(args, "memc.cpu.matmul");
  memc::Matmul(product.shape, product.operands);
}

void PackedMatmul(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Product product = ParseProduct(args, "memc.cpu.packed_matmul");
  if (product.shape.a_at.size() != 1 || product.shape.transpose_a || product.shape.n % 16 != 0) {
    throw std::invalid_argument(
        "memc.cpu.packed_matmul: expected one product of a multiple of 16 columns");
  }
  memc::PackedMatmul(product.shape, product.operands);
}

// The convolution of x with w that makes y, which tensors each kernel has elsewhere.
memc::Conv2dShape ConvShape(const Arguments& parsed, const ffi::TensorView& x,
                            const ffi::TensorView& w, const ffi::TensorView& y, int64_t bias,
                            const char* symbol) {
  const int rank = x.ndim();
  if ((rank != 3 && rank != 4) || w.ndim() != rank || y.ndim() != rank) {
    throw std::invalid_argument(std::string(symbol) + ": expected tensors of rank 3 or 4");
  }
  // One spatial axis is an image of height 1.
  const auto height = [&](const ffi::TensorView& t) { return rank == 3 ? 1 : t.size(2); };
  const auto s = [&](size_t index) { return parsed.Integer(index); };
  memc::Conv2dShape shape{x.size(0), s(1),       x.size(1), w.size(0),  height(x),     x.size(-1),
                          height(y), y.size(-1), height(w), w.size(-1), s(2),          s(3),
                          s(4),      s(5),       s(6),      s(7),       memc::Limits{}};
  if (shape.group < 1 || shape.in_channels != w.size(1) * shape.group ||
      shape.out_channels % shape.group != 0 || y.size(0) != shape.batch ||
      y.size(1) != shape.out_channels || shape.stride_h < 1 || shape.stride_w < 1 ||
      (bias > 0 && parsed.tensors[2].numel() != bias)) {
    throw std::invalid_argument(std::string(symbol) + ": the shapes do not fit each other");
  }
  return shape;
}

struct Forward {
  Arguments parsed;
  memc::Conv2dShape shape;
  memc::ConvOperands operands;
};

Forward ParseForward(ffi::PackedArgs args, const char* symbol) {
  Forward f{Parse(args, symbol, 11), {}, {}};
  const Arguments& p = f.parsed;
  const ffi::TensorView& w = p.tensors[1];
  f.shape = ConvShape(p, p.tensors[0], w, p.tensors[p.operands], 0, symbol);
  f.shape.limits = {static_cast<float>(p.scalars[9]), static_cast<float>(p.scalars[10])};
  const Addends addends = FindAddends(p, p.scalars[8] != 0, w.size(0), symbol);
  f.operands = {p.Data(0), p.Data(1), addends.bias, addends.add, p.Result()};
  return f;
}

void Conv2d(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Forward f = ParseForward(args, "memc.cpu.conv2d");
  memc::Conv2d(f.shape, f.operands, f.parsed.Workspace(), f.parsed.WorkspaceBytes());
}

void PackedConv2d(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Forward f = ParseForward(args, "memc.cpu.packed_conv2d");
  memc::PackedConv2d(f.shape, f.operands);
}

void Conv2dGradWeight(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const char* symbol = "memc.cpu.conv2d_grad_weight";
  const Arguments parsed = Parse(args, symbol, 8);
  const memc::Conv2dShape shape =
      ConvShape(parsed, parsed.tensors[0], parsed.tensors[2], parsed.tensors[1], 0, symbol);
  memc::Conv2dGradWeight(shape, parsed.Data(0), parsed.Data(1), parsed.Result(), parsed.Workspace(),
                         parsed.WorkspaceBytes());
}

void Conv2dTranspose(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const char* symbol = "memc.cpu.conv2d_transpose";
  const Arguments parsed = Parse(args, symbol, 8);
  const ffi::TensorView& x = parsed.tensors[parsed.operands];
  const memc::Conv2dShape shape = ConvShape(parsed, x, parsed.tensors[1], parsed.tensors[0],
                                            parsed.operands == 3 ? x.size(1) : 0, symbol);
  memc::Conv2dGradData(shape, parsed.Data(0), parsed.Data(1), parsed.Bias(), parsed.Result(),
                       parsed.Workspace(), parsed.WorkspaceBytes());
}

void DepthwiseConv2d(ffi::PackedArgs args, ffi::Any* /*result*/) {
  const Forward f = ParseForward(args, "memc.cpu.depthwise_conv2d");
  if (f.shape.GroupIn() != 1 || f.operands.add != nullptr) {
    throw std::invalid_argument(
        "memc.cpu.depthwise_conv2d: expected one input channel per group, and no addend");
  }
  memc::DepthwiseConv2d(f.shape, f.operands);
}

void SetBlas(ffi::PackedArgs args, ffi::Any* /*result*/) {
  memc::LoadBlas(std::string(args[0].cast<ffi::String>()));
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def_packed("memc.cpu.set_blas", memc::Guarded<SetBlas>)
      .def_packed("memc.cpu.matmul", memc::Guarded<Matmul>)
      .def_packed("memc.cpu.packed_matmul", memc::Guarded<PackedMatmul>)
      .def_packed("memc.cpu.conv2d", memc::Guarded<Conv2d>)
      .def_packed("memc.cpu.packed_conv2d", memc::Guarded<PackedConv2d>)
      .def_packed("memc.cpu.depthwise_conv2d", memc::Guarded<DepthwiseConv2d>)
      .def_packed("memc.cpu.conv2d_grad_weight", memc::Guarded<Conv2dGradWeight>)
      .def_packed("memc.cpu.conv2d_transpose", memc::Guarded<Conv2dTranspose>);
}
