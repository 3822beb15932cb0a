// SPDX-License-Identifier: Apache-2.0
// cuDNN without a device: the installed library chooses engines and plans workspaces for a described
// GPU ("deviceless" since cuDNN 9.8); only what would run is left out.
#include <cudnn.h>
#include <dlfcn.h>

#include <map>
#include <mutex>

#include "device.h"
#include "export.h"
#include "real_cudnn.h"

namespace phantom {

void* RealCudnn(const char* name) {
  static void* const library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) Refuse("libcudnn.so.9", "it cannot be loaded; reinstall nvidia-cudnn");
  void* found = dlsym(library, name);
  if (found == nullptr) Refuse(name, "the installed cuDNN lacks it");
  return found;
}

namespace {

struct Kinds {
  std::mutex mutex;
  std::map<cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t> of;
};

Kinds& Descriptors() {
  static auto* const kinds = new Kinds;
  return *kinds;
}

// The descriptor of the GPU, which stands for a handle.
cudnnBackendDescriptor_t Properties() {
  static const cudnnBackendDescriptor_t made = [] {
    cudnnBackendDescriptor_t descriptor = nullptr;
    const std::string& json = Text("cudnn");
    auto create = MEMC_PHANTOM_REAL(cudnnBackendCreateDescriptor);
    auto set = MEMC_PHANTOM_REAL(cudnnBackendSetAttribute);
    auto finalize = MEMC_PHANTOM_REAL(cudnnBackendFinalize);
    if (create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &descriptor) != CUDNN_STATUS_SUCCESS ||
        set(descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            static_cast<int64_t>(json.size()), json.data()) != CUDNN_STATUS_SUCCESS ||
        finalize(descriptor) != CUDNN_STATUS_SUCCESS) {
      Refuse("cuDNN", "it does not take the GPU's description; expected cuDNN 9.8 or newer");
    }
    return descriptor;
  }();
  return made;
}

void Describe(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name) {
  cudnnBackendDescriptor_t properties = Properties();
  MEMC_PHANTOM_REAL(cudnnBackendSetAttribute)
  (descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT cudnnStatus_t
cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t* made) {
  const cudnnStatus_t status = MEMC_PHANTOM_REAL(cudnnBackendCreateDescriptor)(kind, made);
  if (status == CUDNN_STATUS_SUCCESS) {
    Kinds& kinds = Descriptors();
    const std::lock_guard<std::mutex> lock(kinds.mutex);
    kinds.of[*made] = kind;
  }
  return status;
}

MEMC_PHANTOM_EXPORT cudnnStatus_t
cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  {
    Kinds& kinds = Descriptors();
    const std::lock_guard<std::mutex> lock(kinds.mutex);
    kinds.of.erase(descriptor);
  }
  return MEMC_PHANTOM_REAL(cudnnBackendDestroyDescriptor)(descriptor);
}

MEMC_PHANTOM_EXPORT cudnnStatus_t
cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  if (type == CUDNN_TYPE_HANDLE) return CUDNN_STATUS_SUCCESS;  // A described device is set instead.
  return MEMC_PHANTOM_REAL(cudnnBackendSetAttribute)(descriptor, name, type, count, values);
}

MEMC_PHANTOM_EXPORT cudnnStatus_t
cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t asked, int64_t* count, void* values) {
  return MEMC_PHANTOM_REAL(cudnnBackendGetAttribute)(descriptor, name, type, asked, count, values);
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  cudnnBackendDescriptorType_t kind = CUDNN_BACKEND_POINTWISE_DESCRIPTOR;
  {
    Kinds& kinds = Descriptors();
    const std::lock_guard<std::mutex> lock(kinds.mutex);
    const auto found = kinds.of.find(descriptor);
    if (found != kinds.of.end()) kind = found->second;
  }
  if (kind == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    Describe(descriptor, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  } else if (kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    Describe(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  } else if (kind == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
    Describe(descriptor, CUDNN_ATTR_ENGINE_DEVICEPROP);
  }
  return MEMC_PHANTOM_REAL(cudnnBackendFinalize)(descriptor);
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t,
                                                      cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  CountDnnHandle(1);
  *handle = reinterpret_cast<cudnnHandle_t>(NewHandle());
  return CUDNN_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t) {
  CountDnnHandle(-1);
  return CUDNN_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t, cudaStream_t* stream) {
  *stream = nullptr;
  return CUDNN_STATUS_SUCCESS;
}

// Batch normalization without an activation: no workspace was seen on devices.
MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnActivationDescriptor_t, size_t* bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnActivationDescriptor_t,
    size_t* bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const cudnnActivationDescriptor_t,
    const cudnnTensorDescriptor_t, size_t* bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}
