// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUDA libraries as packed functions symbol(operands..., result, workspace?,
// scalars...), which register themselves when this library is loaded; cuDNN and cuBLASLt are loaded
// by the first call that needs them. The first scalar is the number of operands; `bias`,
// `residual` and `scale` are positions among them, -1 for none; `relu` and `tf32` are 0 or 1. All
// tensors are f32, but for factors, and what is computed from them, of f16, or of bf16 given as
// u16. `window` is the number of spatial axes, then their strides, pads and dilations.
//
//   memc.cuda.set_libraries(cudnn, cublaslt, driver)   paths, empty for the system's search
//   memc.cuda.load()                                   loads all three, or says what is missing
//   memc.cuda.add_kernels(device, cubin)               memc's own (cuda_launch.h)
//   memc.cuda.set_measure(flag)                        whether algorithms are chosen by their time
//   memc.cuda.version() -> str                         of cuDNN and cuBLASLt
//   memc.cuda.choices(device) -> str                   the algorithms of the call sites so far
//   memc.cuda.remember(device, choices)                takes them from there
//   memc.cuda.capture(device, function) -> function   what `function` enqueues, to be launched at
//   once
//
//   memc.cuda.matmul(a, b, others..., c, workspace?, operands, bias, relu, transpose_a,
//                    transpose_b, residual, scale, tf32, products?), the first two operands of
//                    each product
//   memc.cuda.conv(x, w, others..., y, workspace?, operands, bias, residual, relu, tf32,
//                  group, window...)
//   memc.cuda.conv_transpose(g, w, bias?, x, workspace?, the scalars of conv)
//   memc.cuda.conv_grad_weight(x, g, w, workspace?, the scalars of conv)
//
// The last three end in _channels_last for x [N, spatial..., C], w [M, kernel..., C / group] and
// y [N, spatial..., M].
//
// memc.cuda.attention, which no library computes, is in cuda_attention.cc.
#include "cuda/cuda_library_kernels.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_launch.h"
#include "exports/cuda_packed.h"

namespace {

namespace ffi = tvm::ffi;
namespace cuda = memc::cuda;
using cuda::Named;
using cuda::Require;

// The tensors of a call, operands first, and its scalars.
struct Arguments {
  std::vector<ffi::TensorView> tensors;
  std::vector<int64_t> scalars;
  int64_t operands = 0;

  explicit Arguments(ffi::PackedArgs args) {
    for (int i = 0; i < args.size(); ++i) {
      if (const auto tensor = args[i].try_cast<ffi::TensorView>()) {
        tensors.push_back(*tensor);
      } else {
        scalars.push_back(args[i].cast<int64_t>());
      }
    }
    Require(!scalars.empty(), "expected the number of operands");
    operands = scalars[0];
    const auto count = static_cast<int64_t>(tensors.size());
    Require(operands >= 2 && (count == operands + 1 || count == operands + 2),
            "expected operands, a result and at most a workspace");
    Require(TypeOf(0) == TypeOf(1), "expected two factors of one type");
    Require(TypeOf(operands) == cuda::kF32 || TypeOf(operands) == TypeOf(0),
            "expected a result of f32 or of the factors' type");
  }

  // Throws for tensors of other elements. Those of bf16 come as their bits, u16.
  cuda::Element TypeOf(int64_t index) const {
    const DLDataType type = tensors.at(index).dtype();
    Require(type.lanes == 1, "expected scalars as elements");
    if (type.code == kDLFloat && type.bits == 32) return cuda::kF32;
    if (type.code == kDLFloat && type.bits == 16) return cuda::kF16;
    Require((type.code == kDLUInt || type.code == kDLBfloat) && type.bits == 16,
            "expected tensors of f32, f16 or bf16");
    return cuda::kBf16;
  }

  const ffi::TensorView& Result() const { return tensors[operands]; }

  void* Data(int64_t index) const {
    if (index < 0) return nullptr;
    return cuda::DataOf(tensors.at(index));
  }

  // An operand of a type, whose position is scalar `index`; null for none.
  void* Optional(size_t index, cuda::Element type) const {
    const int64_t position = scalars.at(index);
    Require(position < operands, "expected the position of an operand");
    Require(position < 0 || TypeOf(position) == type, "a term is of another type than the result");
    return Data(position);
  }

  // Where the call runs, with its workspace.
  cuda::Place Place() const {
    cuda::Place place = cuda::PlaceOf(Result());
    if (static_cast<int64_t>(tensors.size()) == operands + 2) {
      place.workspace = Data(operands + 1);
      place.bytes = static_cast<size_t>(tensors.back().numel());
    }
    return place;
  }
};

// Elements from one matrix of an operand to the next, for a result of `batch` matrices; 0 if the
// operand has one for all of them.
int64_t BatchStride(const ffi::TensorView& operand, int64_t batch) {
  const int64_t matrix = operand.size(-2) * operand.size(-1);
  const int64_t own = operand.numel() / std::max<int64_t>(matrix, 1);
  Require(own == 1 || own == batch, "leading axes of a product that broadcast in part");
  return own == 1 ? 0 : matrix;
}

// What makes c of a and b.
cuda::Product ProductOf(const Arguments& args, const ffi::TensorView& a, const ffi::TensorView& b,
                        const ffi::TensorView& c) {
  cuda::Product p;
  p.relu = args.scalars[2] != 0;
  p.transpose_a = args.scalars[3] != 0;
  p.transpose_b = args.scalars[4] != 0;
  p.tf32 = args.scalars[7] != 0;
  p.factors = args.TypeOf(0);
  p.result = args.TypeOf(args.operands);
  p.m = c.size(-2);
  p.n = c.size(-1);
  p.k = a.size(p.transpose_a ? -2 : -1);
  Require(b.size(p.transpose_b ? -1 : -2) == p.k && a.size(p.transpose_a ? -1 : -2) == p.m &&
              b.size(p.transpose_b ? -2 : -1) == p.n,
          "the operands' shapes do not fit the result's");
  p.batch = c.numel() / std::max<int64_t>(p.m * p.n, 1);
  p.stride_a = BatchStride(a, p.batch);
  p.stride_b = BatchStride(b, p.batch);
  if (p.batch > 1 && p.stride_b == 0 && p.stride_a != 0 && !p.transpose_a) {
    // One matrix for all: the batch is more rows of a single product.
    p.m *= p.batch;
    p.batch = 1;
  }
  if (p.batch == 1) p.stride_a = p.stride_b = 0;
  return p;
}

void Matmul(ffi::PackedArgs packed) {
  const Arguments args(packed);
  Require(args.scalars.size() == 8 || args.scalars.size() == 9, "expected 8 or 9 scalars");
  const ffi::TensorView& c = args.Result();
  const int64_t products = args.scalars.size() == 9 ? args.scalars[8] : 1;
  Require(products >= 1 && 2 * products <= args.operands, "expected two operands of each product");
  // The sum so far is in the result, to which each product but the first is added.
  for (int64_t i = 0; i < products; ++i) {
    cuda::Product p = ProductOf(args, args.tensors[2 * i], args.tensors[2 * i + 1], c);
    cuda::Terms terms;
    terms.residual = i == 0 ? args.Optional(5, p.result) : args.Data(args.operands);
    terms.scale = static_cast<const float*>(args.Optional(6, cuda::kF32));
    if (i + 1 == products) {
      terms.bias = args.Optional(1, p.result);
    } else {
      p.relu = false;
    }
    cuda::Matmul(p, args.Place(), args.Data(2 * i), args.Data(2 * i + 1), terms,
                 args.Data(args.operands));
  }
}

constexpr int64_t kWindow = 7;  // Where the strides of a convolution are among its scalars.

// The convolution of x with w that makes y, whichever of them a kernel computes.
cuda::Convolution Shape(const Arguments& args, const ffi::TensorView& x, const ffi::TensorView& w,
                        const ffi::TensorView& y, bool channels_last) {
  const std::vector<int64_t>& s = args.scalars;
  Require(s.size() > kWindow, "expected a window");
  const int64_t axes = s[kWindow - 1];
  Require(axes >= 1 && axes <= 3 && static_cast<int64_t>(s.size()) == kWindow + 3 * axes &&
              x.ndim() == axes + 2 && w.ndim() == axes + 2 && y.ndim() == axes + 2,
          "expected tensors with 1, 2 or 3 spatial axes");
  const auto small = [](int64_t n) {
    Require(n >= 0 && n <= std::numeric_limits<int>::max(), "an extent exceeds 2^31 - 1");
    return static_cast<int>(n);
  };
  cuda::Convolution c;
  c.rank = static_cast<int>(std::max<int64_t>(axes, 2));
  c.relu = s[3] != 0;
  c.tf32 = s[4] != 0;
  c.type = args.TypeOf(0);
  Require(args.TypeOf(args.operands) == c.type, "expected a result of the factors' type");
  c.group = small(s[5]);
  c.channels_last = channels_last;
  // A single spatial axis is an image of height 1.
  const int64_t lead = c.rank - axes;
  for (int i = 0; i < c.rank; ++i) {
    const bool made = i < lead;
    c.strides[i] = made ? 1 : small(s[kWindow + i - lead]);
    c.pads[i] = made ? 0 : small(s[kWindow + axes + i - lead]);
    c.dilations[i] = made ? 1 : small(s[kWindow + 2 * axes + i - lead]);
    const auto axis = static_cast<int>(i + (channels_last ? 1 : 2) - lead);
    c.x[i + 2] = made ? 1 : small(x.size(axis));
    c.w[i + 2] = made ? 1 : small(w.size(axis));
    c.y[i + 2] = made ? 1 : small(y.size(axis));
  }
  for (int i = 0; i < 2; ++i) {
    const int axis = i == 1 && channels_last ? -1 : i;
    c.x[i] = small(x.size(axis));
    c.w[i] = small(w.size(axis));
    c.y[i] = small(y.size(axis));
  }
  Require(c.group >= 1 && c.x[1] == c.w[1] * c.group && c.y[0] == c.x[0] && c.y[1] == c.w[0],
          "the shapes do not fit each other");
  return c;
}

template <bool kChannelsLast>
void Conv(ffi::PackedArgs packed) {
  const Arguments args(packed);
  const cuda::Convolution c =
      Shape(args, args.tensors[0], args.tensors[1], args.Result(), kChannelsLast);
  cuda::Convolve(c, args.Place(), args.Data(0), args.Data(1), args.Optional(1, c.type),
                 args.Optional(2, c.type), args.Data(args.operands));
}

template <bool kChannelsLast>
void ConvTranspose(ffi::PackedArgs packed) {
  const Arguments args(packed);
  const cuda::Convolution c =
      Shape(args, args.Result(), args.tensors[1], args.tensors[0], kChannelsLast);
  cuda::ConvolveData(c, args.Place(), args.Data(0), args.Data(1), args.Optional(1, c.type),
                     args.Data(args.operands));
}

template <bool kChannelsLast>
void ConvGradWeight(ffi::PackedArgs packed) {
  const Arguments args(packed);
  const cuda::Convolution c =
      Shape(args, args.tensors[0], args.Result(), args.tensors[1], kChannelsLast);
  cuda::ConvolveFilter(c, args.Place(), args.Data(0), args.Data(1), args.Data(args.operands));
}

void SetLibraries(const ffi::String& cudnn, const ffi::String& cublaslt,
                  const ffi::String& driver) {
  cuda::SetLibraryPaths(cudnn, cublaslt, driver);
}

// TVM's current stream of a device for as long as this lives.
class CurrentStream {
 public:
  CurrentStream(int device, cuda::Stream stream) : device_(device) {
    TVMFFIEnvSetStream(kDLCUDA, device, stream, &before_);
  }
  ~CurrentStream() { TVMFFIEnvSetStream(kDLCUDA, device_, before_, nullptr); }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

 private:
  int device_;
  TVMFFIStreamHandle before_ = nullptr;
};

ffi::Function Capture(int device, const ffi::Function& function) {
  const auto graph = std::make_shared<cuda::Graph>(device, [&](cuda::Stream stream) {
    const CurrentStream current(device, stream);
    function();
  });
  return ffi::Function::FromTyped([graph, device]() {
    graph->Launch(static_cast<cuda::Stream>(TVMFFIEnvGetStream(kDLCUDA, device)));
  });
}

ffi::String Version() {
  return "cuDNN " + std::to_string(cuda::LoadCudnn().version()) + ", cuBLASLt " +
         std::to_string(cuda::LoadCublasLt().version());
}

ffi::String Choices(int device) { return cuda::ChoicesOf(device); }

void Remember(int device, const ffi::String& text) { cuda::Remember(device, text); }

void AddKernels(int device, const ffi::Bytes& cubin) {
  cuda::AddKernels(device, std::string(cubin.data(), cubin.size()));
}

void Load(ffi::PackedArgs /*args*/) {
  cuda::LoadDriver();
  cuda::LoadCublasLt();
  cuda::LoadCudnn();
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  const auto add = [](const char* symbol, const ffi::Function& function) {
    ffi::Function::SetGlobal(symbol, function, true);
  };
  add("memc.cuda.set_libraries", ffi::Function::FromTyped(SetLibraries));
  add("memc.cuda.add_kernels", ffi::Function::FromTyped(AddKernels));
  add("memc.cuda.set_measure", ffi::Function::FromTyped(cuda::SetMeasure));
  add("memc.cuda.version", ffi::Function::FromTyped(Version));
  add("memc.cuda.choices", ffi::Function::FromTyped(Choices));
  add("memc.cuda.remember", ffi::Function::FromTyped(Remember));
  add("memc.cuda.capture", ffi::Function::FromTyped(Capture));
  add("memc.cuda.load", Named<Load>("memc.cuda.load"));
  add("memc.cuda.matmul", Named<Matmul>("memc.cuda.matmul"));
  const std::string last = "_channels_last";
  const auto add_both = [&](const std::string& symbol, const auto& named, const auto& named_last) {
    add(symbol.c_str(), named(symbol));
    add((symbol + last).c_str(), named_last(symbol + last));
  };
  add_both("memc.cuda.conv", Named<Conv<false>>, Named<Conv<true>>);
  add_both("memc.cuda.conv_transpose", Named<ConvTranspose<false>>, Named<ConvTranspose<true>>);
  add_both("memc.cuda.conv_grad_weight", Named<ConvGradWeight<false>>, Named<ConvGradWeight<true>>);
}
