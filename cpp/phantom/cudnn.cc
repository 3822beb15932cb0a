// SPDX-License-Identifier: Apache-2.0
// cuDNN without a device: the installed library chooses engines and plans workspaces for a
// described GPU ("deviceless" since cuDNN 9.8); only what would run is left out.
#include <cudnn.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "address_space.h"
#include "convolutions.h"
#include "device.h"
#include "export.h"
#include "reads.h"
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
  std::set<cudnnBackendDescriptor_t> on_tensor_cores;  // plans
};

std::atomic<bool> prefer_largest{false};
std::atomic<float> milliseconds{0};

// Each plan of a convolution is timed right after it has run.
void Time(cudnnBackendDescriptor_t plan) {
  if (!prefer_largest) return;
  int64_t count = 0, bytes = 0;
  MEMC_PHANTOM_REAL(cudnnBackendGetAttribute)
  (plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
  milliseconds = 1e9F / (1e6F + static_cast<float>(bytes + MissingBytes(plan)));
}

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

// What one descriptor has of another: a plan of its configuration, and that of its engine.
cudnnBackendDescriptor_t Part(cudnnBackendDescriptor_t whole, cudnnBackendAttributeName_t name,
                              cudnnBackendDescriptorType_t kind) {
  cudnnBackendDescriptor_t part = nullptr;
  int64_t count = 0;
  MEMC_PHANTOM_REAL(cudnnBackendCreateDescriptor)(kind, &part);
  MEMC_PHANTOM_REAL(cudnnBackendGetAttribute)
  (whole, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &part);
  return part;
}

// Whether a finalized plan's engine says that it uses tensor cores.
bool OnTensorCores(cudnnBackendDescriptor_t plan) {
  cudnnBackendDescriptor_t config =
      Part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  cudnnBackendDescriptor_t engine =
      Part(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t count = 0;
  MEMC_PHANTOM_REAL(cudnnBackendGetAttribute)
  (engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes);
  auto destroy = MEMC_PHANTOM_REAL(cudnnBackendDestroyDescriptor);
  destroy(engine);
  destroy(config);
  return std::find(notes, notes + count, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes + count;
}

void Describe(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name) {
  cudnnBackendDescriptor_t properties = Properties();
  MEMC_PHANTOM_REAL(cudnnBackendSetAttribute)
  (descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
}

}  // namespace

float MillisecondsOfPlan() { return milliseconds; }

}  // namespace phantom

using namespace phantom;

// For the process that runs the script.
MEMC_PHANTOM_EXPORT void memc_phantom_prefer_largest(int yes) { prefer_largest = yes != 0; }

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind,
                                                               cudnnBackendDescriptor_t* made) {
  const cudnnStatus_t status = MEMC_PHANTOM_REAL(cudnnBackendCreateDescriptor)(kind, made);
  if (status == CUDNN_STATUS_SUCCESS) {
    ForgetDescriptor(*made);  // Of one that had the same address.
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
    kinds.on_tensor_cores.erase(descriptor);
  }
  return MEMC_PHANTOM_REAL(cudnnBackendDestroyDescriptor)(descriptor);
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                           cudnnBackendAttributeName_t name,
                                                           cudnnBackendAttributeType_t type,
                                                           int64_t count, const void* values) {
  if (type == CUDNN_TYPE_HANDLE) return CUDNN_STATUS_SUCCESS;  // A described device is set instead.
  FollowSet(descriptor, name, type, count, values);
  return MEMC_PHANTOM_REAL(cudnnBackendSetAttribute)(descriptor, name, type, count, values);
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnBackendGetAttribute(
    cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t type, int64_t asked, int64_t* count, void* values) {
  const cudnnStatus_t status =
      MEMC_PHANTOM_REAL(cudnnBackendGetAttribute)(descriptor, name, type, asked, count, values);
  if (status != CUDNN_STATUS_SUCCESS || asked == 0 || values == nullptr) return status;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && count != nullptr) {
    FollowConfigs(descriptor, std::min(asked, *count), values);
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    *static_cast<int64_t*>(values) += MissingBytes(descriptor);
  }
  return status;
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
  const cudnnStatus_t status = MEMC_PHANTOM_REAL(cudnnBackendFinalize)(descriptor);
  if (kind == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) FollowGraph(descriptor);
  if (kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && status == CUDNN_STATUS_SUCCESS &&
      OnTensorCores(descriptor)) {
    Kinds& kinds = Descriptors();
    const std::lock_guard<std::mutex> lock(kinds.mutex);
    kinds.on_tensor_cores.insert(descriptor);
  }
  return status;
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                                      cudnnBackendDescriptor_t) {
  bool tensor_cores = false;
  {
    Kinds& kinds = Descriptors();
    const std::lock_guard<std::mutex> lock(kinds.mutex);
    tensor_cores = kinds.on_tensor_cores.count(plan) > 0;
  }
  if (tensor_cores) CountTensorCores();
  Time(plan);
  GrowLocalMemory();
  return CUDNN_STATUS_SUCCESS;
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  CountDnnHandle(1);
  ReserveRange(static_cast<size_t>(Number("outsideDnnHandle")));  // Which is kept.
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
