// SPDX-License-Identifier: Apache-2.0
// cuBLASLt of fake_cuda.h.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "fake_cuda.h"

namespace {

using namespace fake;

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

}  // namespace

extern "C" {

int used_compute = 0;

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

// The library proposes an algorithm that needs no bytes, and one that needs FAKE_LT_PROPOSED.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void* preference,
                                   int most, Heuristic* found, int* count) {
  if (Fails("cublasLtMatmulAlgoGetHeuristic")) return kFails;
  *count = 0;
  const char* proposed = std::getenv("FAKE_LT_PROPOSED");
  const uint64_t own = proposed != nullptr ? std::strtoul(proposed, nullptr, 10) : 128;
  for (uint64_t bytes : {own, uint64_t{0}}) {
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
  return algo[1] == 0 || algo[2] == 2 ? 0 : kFails;
}

// With FAKE_LT_SPLIT, only algorithms that split the depth into so many parts can run; with
// FAKE_LT_LEAST, only those that need so many bytes.
int cublasLtMatmul(void*, void* product, const void* alpha, const void* a, void* at, const void* b,
                   void* bt, const void* beta, const void* c, void*, void* d, void* dt,
                   const uint64_t* algo, void* workspace, size_t bytes, void*) {
  ++calls;
  const char* split = std::getenv("FAKE_LT_SPLIT");
  if (split != nullptr && std::strtoul(split, nullptr, 10) != algo[1]) return kFails;
  if (Fails("cublasLtMatmul") || algo[0] + 64 * algo[1] > bytes) return kFails;
  const char* least = std::getenv("FAKE_LT_LEAST");
  if (least != nullptr && std::strtoul(least, nullptr, 10) != algo[0]) return kFails;
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

}  // extern "C"
