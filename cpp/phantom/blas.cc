// SPDX-License-Identifier: Apache-2.0
// cuBLAS and cuBLASLt: handles, and an algorithm for every product. PyTorch allots workspaces by
// handle and stream itself, so each handle is a new one. What multiplies does nothing.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstring>

#include "address_space.h"
#include "device.h"
#include "export.h"

namespace phantom {

namespace {

template <typename Object>
cublasStatus_t New(Object* made) {
  *made = reinterpret_cast<Object>(NewHandle());
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  CountBlasHandle(1);
  ReserveRange(static_cast<size_t>(Number("outsideBlasHandle")));  // Which is kept.
  return New(handle);
}
MEMC_PHANTOM_EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t) {
  CountBlasHandle(-1);
  return CUBLAS_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  *mode = CUBLAS_DEFAULT_MATH;
  return CUBLAS_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t,
                                                           cublasPointerMode_t* mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
MEMC_PHANTOM_EXPORT size_t cublasLtGetCudartVersion() { return 13000; }
MEMC_PHANTOM_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return New(handle); }
MEMC_PHANTOM_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made,
                                                            cublasComputeType_t, cudaDataType_t) {
  return New(made);
}
MEMC_PHANTOM_EXPORT cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return New(made);
}
MEMC_PHANTOM_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made,
                                                              cudaDataType, uint64_t, uint64_t,
                                                              int64_t) {
  return New(made);
}
// One algorithm, which is content with whatever workspace it is given.
MEMC_PHANTOM_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int asked,
    cublasLtMatmulHeuristicResult_t found[], int* count) {
  *count = asked > 0 ? 1 : 0;
  if (asked > 0) std::memset(found, 0, sizeof *found);
  return CUBLAS_STATUS_SUCCESS;
}
