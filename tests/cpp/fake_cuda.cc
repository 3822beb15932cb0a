// SPDX-License-Identifier: Apache-2.0
// The few entry points of cuDNN, cuBLASLt and the CUDA driver that memc calls, on host memory and
// by the plainest loops, so that tests can check descriptors, layouts and errors without a GPU.
// FAKE_CUDA_FAILS names an entry point that returns an error, or NAME:N one that does so at its Nth
// call since fake_count_anew(). Calls that compute are counted in `calls`, objects that are not
// destroyed in `fake_objects`.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace {

constexpr int kNotSupported = 3000;
constexpr int kFails = 4000;

bool capturing = false;

int made_calls = 0;  // Of the entry point that FAKE_CUDA_FAILS names with a number.

bool Fails(const char* name) {
  const char* chosen = std::getenv("FAKE_CUDA_FAILS");
  if (chosen == nullptr) return false;
  const char* number = std::strchr(chosen, ':');
  if (number == nullptr) return std::strcmp(chosen, name) == 0;
  const auto length = static_cast<size_t>(number - chosen);
  if (std::strlen(name) != length || std::strncmp(chosen, name, length) != 0) return false;
  return ++made_calls == std::atoi(number + 1);
}

int objects = 0;

// What an entry point that makes an object does, and one that destroys it.
template <typename T, typename... Values>
int Make(const char* name, void** to, Values&&... values) {
  if (Fails(name)) return kFails;
  *to = new T{std::forward<Values>(values)...};
  ++objects;
  return 0;
}

template <typename T>
int End(void* object) {
  delete static_cast<T*>(object);
  --objects;
  return 0;
}

struct Tensor {
  std::vector<int> shape;
  std::vector<int> strides;
  int type = 0;
};

constexpr int kBf16 = 1000;  // A code of our own for the two libraries' ones.

// Element i of f32, f16 (2 in both libraries) or bf16.
float Get(const void* data, int type, size_t i) {
  if (type == 0) return static_cast<const float*>(data)[i];
  if (type == 2) return static_cast<float>(static_cast<const _Float16*>(data)[i]);
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(data)[i]) << 16;
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}

void Set(void* data, int type, size_t i, float value) {
  if (type == 0) {
    static_cast<float*>(data)[i] = value;
  } else if (type == 2) {
    static_cast<_Float16*>(data)[i] = static_cast<_Float16>(value);
  } else {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    static_cast<uint16_t*>(data)[i] =
        static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
}

struct Convolution {
  std::vector<int> pads, strides, dilations;
  int math = 0;
  int groups = 1;
};

struct Layout {
  int type = 0;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t stride = 0;
  int32_t batch = 1;
  int64_t batch_stride = 0;
};

struct Product {
  int compute = 0;
  int32_t transpose_a = 0;
  int32_t transpose_b = 0;
  int32_t epilogue = 1;
  const void* bias = nullptr;
  int32_t on_device = 0;
};

template <typename T>
T& As(void* handle) {
  return *static_cast<T*>(handle);
}

int Offset(const Tensor& t, const std::vector<int>& at) {
  int offset = 0;
  for (size_t i = 0; i < at.size(); ++i) offset += at[i] * t.strides[i];
  return offset;
}

// Calls visit(index of x, of w, of y) for every product of a convolution.
template <typename Visit>
void Products(const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c,
              const Visit& visit) {
  const size_t axes = c.pads.size();
  std::vector<int> at_y(axes + 2, 0);
  std::vector<int> at_w(axes + 2, 0);
  std::vector<int> at_x(axes + 2, 0);
  const int per_group = y.shape[1] / c.groups;
  const auto next = [](std::vector<int>& at, const std::vector<int>& shape, size_t from) {
    for (size_t i = at.size(); i-- > from;) {
      if (++at[i] < shape[i]) return true;
      at[i] = 0;
    }
    return false;
  };
  do {
    do {
      at_w[0] = at_y[1];
      at_x[0] = at_y[0];
      at_x[1] = at_y[1] / per_group * w.shape[1] + at_w[1];
      bool inside = true;
      for (size_t i = 0; i < axes; ++i) {
        const int p = at_y[i + 2] * c.strides[i] - c.pads[i] + at_w[i + 2] * c.dilations[i];
        inside = inside && p >= 0 && p < x.shape[i + 2];
        at_x[i + 2] = p;
      }
      if (inside) visit(Offset(x, at_x), Offset(w, at_w), Offset(y, at_y));
    } while (next(at_w, w.shape, 1));
  } while (next(at_y, y.shape, 0));
}

size_t Elements(const Tensor& t) {
  size_t n = 1;
  for (const int d : t.shape) n *= static_cast<size_t>(d);
  return n;
}

std::vector<float> Values(const void* data, const Tensor& t) {
  std::vector<float> found(Elements(t));
  for (size_t i = 0; i < found.size(); ++i) found[i] = Get(data, t.type, i);
  return found;
}

void Put(void* data, const Tensor& t, const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) Set(data, t.type, i, values[i]);
}

struct Perf {
  int algo, status;
  float time;
  size_t memory;
  int determinism, math_type, reserved[3];
};

// Algorithm 0 is not deterministic, 1 needs 64 bytes of workspace, 2 none, 3 is not supported. With
// FAKE_CUDNN_STEADY_BYTES, 2 needs so many bytes, and 0 can run, too; with FAKE_CUDNN_IMAGE_BYTES,
// only 1 is supported, and needs so many for each image.
int List(const Tensor& x, int most, int* count, Perf* perf) {
  if (const char* each = std::getenv("FAKE_CUDNN_IMAGE_BYTES")) {
    perf[0] = {1, 0, 1, std::strtoul(each, nullptr, 10) * x.shape[0], 1, 3, {}};
    return *count = 1, 0;
  }
  const char* steady = std::getenv("FAKE_CUDNN_STEADY_BYTES");
  const Perf all[] = {
      {0, 0, 1, 0, 0, 3, {}},
      {1, 0, 2, 64, 1, 3, {}},
      {2, 0, 3, steady == nullptr ? 0 : std::strtoul(steady, nullptr, 10), 1, 3, {}},
      {3, kNotSupported, -1, 0, 1, 3, {}}};
  *count = most < 4 ? most : 4;
  for (int i = 0; i < *count; ++i) perf[i] = all[i];
  return 0;
}

// What a call of an algorithm with this workspace returns.
int Check(const char* name, const Convolution& c, int algo, void* workspace, size_t bytes) {
  if (Fails(name)) return kFails;
  const bool any = std::getenv("FAKE_CUDNN_STEADY_BYTES") != nullptr;
  if ((c.math != 3 && c.math != 0 && c.math != 1) || (algo != 1 && algo != 2 && !any))
    return kFails;
  if (algo == 1 && (bytes < 64 || workspace == nullptr)) return kFails;
  if (algo == 1) std::memset(workspace, 0xFF, 64);
  return 0;
}

std::vector<float> Forward(const void* x, const Tensor& xt, const void* w, const Tensor& wt,
                           const Convolution& c, const Tensor& yt) {
  const std::vector<float> image = Values(x, xt), weights = Values(w, wt);
  std::vector<double> sums(Elements(yt), 0.0);
  Products(xt, wt, yt, c,
           [&](int i, int j, int k) { sums[k] += static_cast<double>(image[i]) * weights[j]; });
  return {sums.begin(), sums.end()};
}

// c += a, which has extents of 1 where it is spread out.
void Add(const std::vector<float>& a, const Tensor& at, std::vector<float>& c, const Tensor& ct) {
  for (size_t i = 0; i < Elements(ct); ++i) {
    size_t rest = i;
    int offset = 0;
    for (size_t axis = ct.shape.size(); axis-- > 0;) {
      const int index = static_cast<int>(rest % ct.shape[axis]);
      rest /= ct.shape[axis];
      if (at.shape[axis] != 1) offset += index * at.strides[axis];
    }
    c[i] += a[offset];
  }
}

}  // namespace

extern "C" {

int calls = 0;
int fake_objects() { return objects; }
void fake_count_anew() { made_calls = 0; }
int used_math = 0;     // Bits of those of gradients of weights.
int used_compute = 0;  // Of the last product.

int cudnnCreate(void** h) { return Fails("cudnnCreate") ? kFails : (*h = new int(0), 0); }
int cudnnSetStream(void*, void*) { return 0; }
const char* cudnnGetErrorString(int) { return "FAKE_CUDNN_ERROR"; }
void cudnnGetLastErrorString(char* text, size_t size) { std::strncpy(text, "no reason", size); }
size_t cudnnGetVersion() { return 90000; }
int cudnnCreateTensorDescriptor(void** h) { return Make<Tensor>("cudnnCreateTensorDescriptor", h); }
int cudnnDestroyTensorDescriptor(void* h) { return End<Tensor>(h); }
int cudnnSetTensorNdDescriptor(void* h, int type, int rank, const int* shape, const int* strides) {
  As<Tensor>(h) = {{shape, shape + rank}, {strides, strides + rank}, type == 9 ? kBf16 : type};
  return rank < 4 || Fails("cudnnSetTensorNdDescriptor") ? kFails : 0;
}
int cudnnCreateFilterDescriptor(void** h) { return Make<Tensor>("cudnnCreateFilterDescriptor", h); }
int cudnnDestroyFilterDescriptor(void* h) { return End<Tensor>(h); }
int cudnnSetFilterNdDescriptor(void* h, int type, int, int rank, const int* shape) {
  std::vector<int> strides(rank, 1);
  for (int i = rank - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
  As<Tensor>(h) = {{shape, shape + rank}, strides, type == 9 ? kBf16 : type};
  return Fails("cudnnSetFilterNdDescriptor") ? kFails : 0;
}
int cudnnCreateConvolutionDescriptor(void** h) {
  return Make<Convolution>("cudnnCreateConvolutionDescriptor", h);
}
int cudnnDestroyConvolutionDescriptor(void* h) { return End<Convolution>(h); }
int cudnnSetConvolutionNdDescriptor(void* h, int rank, const int* pads, const int* strides,
                                    const int* dilations, int, int) {
  auto& c = As<Convolution>(h);
  c.pads.assign(pads, pads + rank);
  c.strides.assign(strides, strides + rank);
  c.dilations.assign(dilations, dilations + rank);
  return Fails("cudnnSetConvolutionNdDescriptor") ? kFails : 0;
}
int cudnnSetConvolutionMathType(void* h, int math) {
  As<Convolution>(h).math = math;
  return Fails("cudnnSetConvolutionMathType") ? kFails : 0;
}
int cudnnSetConvolutionGroupCount(void* h, int n) {
  As<Convolution>(h).groups = n;
  return Fails("cudnnSetConvolutionGroupCount") ? kFails : 0;
}
int cudnnCreateActivationDescriptor(void** h) {
  return Make<int>("cudnnCreateActivationDescriptor", h);
}
int cudnnDestroyActivationDescriptor(void* h) { return End<int>(h); }
int cudnnSetActivationDescriptor(void*, int mode, int, double) {
  return mode == 1 && !Fails("cudnnSetActivationDescriptor") ? 0 : kFails;
}

int cudnnGetConvolutionForwardAlgorithm_v7(void*, void* x, void*, void*, void*, int most,
                                           int* count, Perf* perf) {
  return List(As<Tensor>(x), most, count, perf);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, void*, void*, void*, void* x, int most,
                                                int* count, Perf* perf) {
  return List(As<Tensor>(x), most, count, perf);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, void* x, void*, void*, void*, int most,
                                                  int* count, Perf* perf) {
  return List(As<Tensor>(x), most, count, perf);
}

int cudnnConvolutionForward(void*, const void*, void* xt, const void* x, void* wt, const void* w,
                            void* c, int algo, void* workspace, size_t bytes, const void* beta,
                            void* yt, void* y) {
  ++calls;
  const int status = Check("cudnnConvolutionForward", As<Convolution>(c), algo, workspace, bytes);
  if (status != 0) return status;
  const auto& to = As<Tensor>(yt);
  auto result = Forward(x, As<Tensor>(xt), w, As<Tensor>(wt), As<Convolution>(c), to);
  if (*static_cast<const float*>(beta) != 0) Add(Values(y, to), to, result, to);
  return Put(y, to, result), 0;
}

int cudnnConvolutionBiasActivationForward(void*, const void*, void* xt, const void* x, void* wt,
                                          const void* w, void* c, int algo, void* workspace,
                                          size_t bytes, const void* alpha_z, void* zt,
                                          const void* z, void* bt, const void* bias, void*,
                                          void* yt, void* y) {
  ++calls;
  const int status =
      Check("cudnnConvolutionBiasActivationForward", As<Convolution>(c), algo, workspace, bytes);
  if (status != 0) return status;
  const auto& to = As<Tensor>(yt);
  auto result = Forward(x, As<Tensor>(xt), w, As<Tensor>(wt), As<Convolution>(c), to);
  Add(Values(bias, As<Tensor>(bt)), As<Tensor>(bt), result, to);
  if (*static_cast<const float*>(alpha_z) != 0)
    Add(Values(z, As<Tensor>(zt)), As<Tensor>(zt), result, to);
  for (float& value : result) value = std::fmax(value, 0.0F);
  return Put(y, to, result), 0;
}

int cudnnConvolutionBackwardData(void*, const void*, void* wt, const void* w, void* yt,
                                 const void* y, void* c, int algo, void* workspace, size_t bytes,
                                 const void*, void* xt, void* x) {
  ++calls;
  const int status =
      Check("cudnnConvolutionBackwardData", As<Convolution>(c), algo, workspace, bytes);
  if (status != 0) return status;
  const auto &to = As<Tensor>(xt), &from = As<Tensor>(yt), &of_w = As<Tensor>(wt);
  const std::vector<float> g = Values(y, from), weights = Values(w, of_w);
  std::vector<float> result(Elements(to), 0.0F);
  Products(to, of_w, from, As<Convolution>(c),
           [&](int i, int j, int k) { result[i] += g[k] * weights[j]; });
  return Put(x, to, result), 0;
}

int cudnnConvolutionBackwardFilter(void*, const void*, void* xt, const void* x, void* yt,
                                   const void* y, void* c, int algo, void* workspace, size_t bytes,
                                   const void* beta, void* wt, void* w) {
  ++calls;
  used_math |= 1 << As<Convolution>(c).math;
  const int status =
      Check("cudnnConvolutionBackwardFilter", As<Convolution>(c), algo, workspace, bytes);
  if (status != 0) return status;
  const auto &to = As<Tensor>(wt), &from = As<Tensor>(yt), &of_x = As<Tensor>(xt);
  const std::vector<float> g = Values(y, from), image = Values(x, of_x);
  std::vector<float> result(Elements(to), 0.0F);
  if (*static_cast<const float*>(beta) != 0) result = Values(w, to);
  Products(of_x, to, from, As<Convolution>(c),
           [&](int i, int j, int k) { result[j] += g[k] * image[i]; });
  return Put(w, to, result), 0;
}

int cudnnAddTensor(void*, const void*, void* at, const void* a, const void*, void* ct, void* c) {
  ++calls;
  auto result = Values(c, As<Tensor>(ct));
  Add(Values(a, As<Tensor>(at)), As<Tensor>(at), result, As<Tensor>(ct));
  return Put(c, As<Tensor>(ct), result), 0;
}
int cudnnActivationForward(void*, void*, const void*, void* xt, const void* x, const void*, void*,
                           void* y) {
  ++calls;
  auto result = Values(x, As<Tensor>(xt));
  for (float& value : result) value = std::fmax(value, 0.0F);
  return Put(y, As<Tensor>(xt), result), 0;
}

int cublasLtCreate(void** h) { return *h = new int(0), 0; }
size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(int) { return "FAKE_CUBLAS_ERROR"; }
int cublasLtMatmulDescCreate(void** h, int compute, int type) {
  if ((compute != 68 && compute != 77) || type != 0) return kFails;
  return Make<Product>("cublasLtMatmulDescCreate", h, compute);
}
int cublasLtMatmulDescDestroy(void* h) { return End<Product>(h); }
int cublasLtMatmulDescSetAttribute(void* h, int attribute, const void* value, size_t size) {
  auto& p = As<Product>(h);
  if (Fails("cublasLtMatmulDescSetAttribute")) return kFails;
  if (attribute == 8) return std::memcpy(&p.bias, value, size), 0;
  int32_t* fields[] = {&p.on_device, &p.transpose_a, &p.transpose_b, nullptr, nullptr, &p.epilogue};
  if (attribute < 2 || attribute > 7 || fields[attribute - 2] == nullptr || size != 4)
    return kFails;
  return std::memcpy(fields[attribute - 2], value, size), 0;
}
int cublasLtMatrixLayoutCreate(void** h, int type, uint64_t rows, uint64_t columns,
                               int64_t stride) {
  return Make<Layout>("cublasLtMatrixLayoutCreate", h, type == 14 ? kBf16 : type, rows, columns,
                      stride, 1, 0);
}
int cublasLtMatrixLayoutDestroy(void* h) { return End<Layout>(h); }
int cublasLtMatrixLayoutSetAttribute(void* h, int attribute, const void* value, size_t size) {
  if (Fails("cublasLtMatrixLayoutSetAttribute")) return kFails;
  if (attribute == 5) return std::memcpy(&As<Layout>(h).batch, value, size), 0;
  return std::memcpy(&As<Layout>(h).batch_stride, value, size), attribute == 6 ? 0 : kFails;
}
int cublasLtMatmulPreferenceCreate(void** h) {
  return Make<uint64_t>("cublasLtMatmulPreferenceCreate", h);
}
int cublasLtMatmulPreferenceSetAttribute(void* h, int attribute, const void* value, size_t size) {
  if (Fails("cublasLtMatmulPreferenceSetAttribute")) return kFails;
  return std::memcpy(h, value, size), attribute == 1 && size == 8 ? 0 : kFails;
}
int cublasLtMatmulPreferenceDestroy(void* h) { return End<uint64_t>(h); }

struct Heuristic {
  uint64_t algo[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void* preference,
                                   int most, Heuristic* found, int* count) {
  if (Fails("cublasLtMatmulAlgoGetHeuristic")) return kFails;
  *count = 0;
  for (uint64_t bytes : {uint64_t{128}, uint64_t{0}}) {
    if (bytes > *static_cast<uint64_t*>(preference) || *count == most) continue;
    found[*count] = {{bytes}, bytes, 0, 1.0F, {}};
    ++*count;
  }
  return 0;
}

int cublasLtMatmulAlgoConfigSetAttribute(uint64_t* algo, int attribute, const void* value, size_t) {
  algo[attribute - 1] = *static_cast<const uint32_t*>(value);
  return attribute == 2 || attribute == 3 ? 0 : kFails;
}
int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const uint64_t* algo,
                            Heuristic* result) {
  *result = {{}, algo[0] + 64 * algo[1], 0, 1.0F, {}};
  return algo[2] == 2 ? 0 : kFails;
}

// With FAKE_LT_SPLIT, only algorithms that split the depth into so many parts can run.
int cublasLtMatmul(void*, void* product, const void* alpha, const void* a, void* at, const void* b,
                   void* bt, const void* beta, const void* c, void*, void* d, void* dt,
                   const uint64_t* algo, void* workspace, size_t bytes, void*) {
  ++calls;
  const char* split = std::getenv("FAKE_LT_SPLIT");
  if (split != nullptr && std::strtoul(split, nullptr, 10) != algo[1]) return kFails;
  if (Fails("cublasLtMatmul") || algo[0] + 64 * algo[1] > bytes) return kFails;
  std::memset(workspace, 0xFF, algo[0] + 64 * algo[1]);
  const auto& p = As<Product>(product);
  used_compute = p.compute;
  const auto &la = As<Layout>(at), &lb = As<Layout>(bt), &ld = As<Layout>(dt);
  const uint64_t depth = p.transpose_a != 0 ? la.rows : la.columns;
  if ((p.transpose_b != 0 ? lb.columns : lb.rows) != depth) return kFails;
  for (int32_t n = 0; n < ld.batch; ++n) {
    const int64_t left = n * la.batch_stride;
    const int64_t right = n * lb.batch_stride;
    const int64_t out = n * ld.batch_stride;
    const float by = *static_cast<const float*>(alpha);
    const float of_added = *static_cast<const float*>(beta);
    for (uint64_t j = 0; j < ld.columns; ++j) {
      for (uint64_t i = 0; i < ld.rows; ++i) {
        double sum = 0;
        for (uint64_t k = 0; k < depth; ++k) {
          const auto of_a = p.transpose_a != 0 ? k + i * la.stride : i + k * la.stride;
          const auto of_b = p.transpose_b != 0 ? j + k * lb.stride : k + j * lb.stride;
          sum += static_cast<double>(Get(a, la.type, left + of_a)) * Get(b, lb.type, right + of_b);
        }
        const size_t place = out + i + j * ld.stride;
        sum = by * sum + ((p.epilogue & 4) != 0 ? Get(p.bias, ld.type, i) : 0);
        if (of_added != 0) sum += of_added * static_cast<double>(Get(c, ld.type, place));
        Set(d, ld.type, place, static_cast<float>((p.epilogue & 2) != 0 ? std::fmax(sum, 0) : sum));
      }
    }
  }
  return 0;
}

int cuEventCreate(void** h, unsigned) { return Make<int>("cuEventCreate", h); }
int cuEventDestroy_v2(void* h) { return End<int>(h); }
int cuEventRecord(void*, void*) { return 0; }
// Events of a graph, and no others, are recorded as external ones.
int cuEventRecordWithFlags(void*, void*, unsigned flags) {
  if (Fails("cuEventRecordWithFlags")) return kFails;
  return flags == (capturing ? 1U : 0U) ? 0 : kFails;
}
int cuEventSynchronize(void*) { return 0; }
// Each way seems slower than the one before it.
int cuEventElapsedTime(float* ms, void*, void*) {
  static float time = 0;
  return *ms = ++time, 0;
}
int cuStreamSynchronize(void*) { return 0; }
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (Fails("cuMemAlloc_v2")) return kFails;
  ++objects;
  return *address = reinterpret_cast<uintptr_t>(std::malloc(bytes)), 0;
}
int cuMemFree_v2(uint64_t address) {
  --objects;
  return std::free(reinterpret_cast<void*>(static_cast<uintptr_t>(address))), 0;
}
int cuMemcpyDtoHAsync_v2(void* host, uint64_t address, size_t bytes, void*) {
  return std::memcpy(host, reinterpret_cast<const void*>(static_cast<uintptr_t>(address)), bytes),
         0;
}
int cuMemcpyHtoDAsync_v2(uint64_t address, const void* host, size_t bytes, void*) {
  if (Fails("cuMemcpyHtoDAsync_v2")) return kFails;
  return std::memcpy(reinterpret_cast<void*>(static_cast<uintptr_t>(address)), host, bytes), 0;
}
int cuStreamIsCapturing(void*, int* status) { return *status = capturing ? 1 : 0, 0; }
int cuStreamCreate(void** h, unsigned) { return *h = new int(0), 0; }
int cuStreamBeginCapture_v2(void*, int) { return capturing = true, 0; }
int cuStreamEndCapture(void*, void** graph) {
  capturing = false;
  return Make<int>("cuStreamEndCapture", graph);
}
int cuGraphInstantiateWithFlags(void** h, void*, unsigned long long) {
  return Make<int>("cuGraphInstantiateWithFlags", h);
}
int cuGraphLaunch(void*, void*) { return ++calls, Fails("cuGraphLaunch") ? kFails : 0; }
int cuGraphDestroy(void* h) { return End<int>(h); }
int cuGraphExecDestroy(void* h) { return End<int>(h); }
int cuGetErrorName(int, const char** name) { return *name = "FAKE_CUDA_ERROR", 0; }

// The runtime: memory up to a limit, the last error, the current device, and captures, in which
// only a thread in relaxed mode (2) may allocate.
int fake_live = 0;
int fake_device = 0;
int fake_mode = 0;
static size_t limit = SIZE_MAX;
static size_t taken = 0;
static int last_error = 0;
static bool others_capture = false;
static std::map<void*, size_t> pieces;

void fake_limit(size_t bytes) { limit = bytes; }
void fake_capture(int) { others_capture = true; }
int cudaGetDevice(int* device) { return *device = fake_device, 0; }
int cudaSetDevice(int device) { return fake_device = device, 0; }
int cudaMalloc(void** data, size_t bytes) {
  if (fake_device != 0) return last_error = 101;
  if (others_capture && fake_mode != 2) return last_error = 900;
  if (taken + bytes > limit) return last_error = 2;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  taken += pieces[*data] = bytes;
  ++fake_live;
  return 0;
}
int cudaFree(void* data) {
  taken -= pieces[data];
  pieces.erase(data);
  --fake_live;
  std::free(data);
  return 0;
}
int cudaGetLastError() {
  const int error = last_error;
  last_error = 0;
  return error;
}
const char* cudaGetErrorString(int status) {
  return status == 2 ? "out of memory" : "another error";
}
int cudaThreadExchangeStreamCaptureMode(int* mode) { return std::swap(*mode, fake_mode), 0; }

}  // extern "C"
