// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_api.h"

#include <dlfcn.h>

#include <initializer_list>
#include <mutex>
#include <stdexcept>

namespace memc::cuda {

namespace {

std::mutex guard;
std::string cudnn_path;
std::string cublaslt_path;
std::string driver_path;
std::string runtime_path;

// Opens the first that loads of `given`, if there is one, or of `names`.
void* Open(const std::string& given, std::initializer_list<const char*> names,
           const std::string& hint) {
  std::string why;
  const auto attempt = [&](const char* name) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr && why.empty()) why = dlerror();
    return library;
  };
  if (!given.empty()) {
    if (void* library = attempt(given.c_str())) return library;
  } else {
    for (const char* name : names) {
      if (void* library = attempt(name)) return library;
    }
  }
  throw std::runtime_error("cannot load " + why + "; " + hint);
}

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    throw std::runtime_error(std::string("a library is too old or too new for memc: it lacks ") +
                             name);
  }
  function = reinterpret_cast<Function>(symbol);
}

void* OpenCublasLt() {
  return Open(cublaslt_path, {"libcublasLt.so.13", "libcublasLt.so.12"},
              "install the wheel nvidia-cublas, or compile with --kernels generated");
}

Cudnn FindCudnn() {
  // cuDNN looks for cuBLASLt by name, and finds the one that is there already.
  OpenCublasLt();
  void* lib = Open(cudnn_path, {"libcudnn.so.9"},
                   "install the wheel nvidia-cudnn-cu13, or compile with --kernels generated");
  Cudnn c{};
  Find(lib, "cudnnCreate", c.create);
  Find(lib, "cudnnSetStream", c.set_stream);
  Find(lib, "cudnnGetErrorString", c.error);
  Find(lib, "cudnnGetLastErrorString", c.last_error);
  Find(lib, "cudnnGetVersion", c.version);
  Find(lib, "cudnnCreateTensorDescriptor", c.create_tensor);
  Find(lib, "cudnnDestroyTensorDescriptor", c.destroy_tensor);
  Find(lib, "cudnnSetTensorNdDescriptor", c.set_tensor);
  Find(lib, "cudnnCreateFilterDescriptor", c.create_filter);
  Find(lib, "cudnnDestroyFilterDescriptor", c.destroy_filter);
  Find(lib, "cudnnSetFilterNdDescriptor", c.set_filter);
  Find(lib, "cudnnCreateConvolutionDescriptor", c.create_convolution);
  Find(lib, "cudnnDestroyConvolutionDescriptor", c.destroy_convolution);
  Find(lib, "cudnnSetConvolutionNdDescriptor", c.set_convolution);
  Find(lib, "cudnnSetConvolutionMathType", c.set_math);
  Find(lib, "cudnnSetConvolutionGroupCount", c.set_groups);
  Find(lib, "cudnnCreateActivationDescriptor", c.create_activation);
  Find(lib, "cudnnDestroyActivationDescriptor", c.destroy_activation);
  Find(lib, "cudnnSetActivationDescriptor", c.set_activation);
  Find(lib, "cudnnGetConvolutionForwardAlgorithm_v7", c.get_forward);
  Find(lib, "cudnnGetConvolutionBackwardDataAlgorithm_v7", c.get_data);
  Find(lib, "cudnnGetConvolutionBackwardFilterAlgorithm_v7", c.get_filter);
  Find(lib, "cudnnConvolutionForward", c.forward);
  Find(lib, "cudnnConvolutionBiasActivationForward", c.forward_activated);
  Find(lib, "cudnnConvolutionBackwardData", c.backward_data);
  Find(lib, "cudnnConvolutionBackwardFilter", c.backward_filter);
  Find(lib, "cudnnAddTensor", c.add);
  Find(lib, "cudnnActivationForward", c.activate);
  Find(lib, "cudnnBackendCreateDescriptor", c.create_descriptor);
  Find(lib, "cudnnBackendDestroyDescriptor", c.destroy_descriptor);
  Find(lib, "cudnnBackendSetAttribute", c.set_attribute);
  Find(lib, "cudnnBackendGetAttribute", c.get_attribute);
  Find(lib, "cudnnBackendFinalize", c.finalize);
  Find(lib, "cudnnBackendExecute", c.execute);
  return c;
}

CublasLt FindCublasLt() {
  void* lib = OpenCublasLt();
  CublasLt c{};
  Find(lib, "cublasLtCreate", c.create);
  Find(lib, "cublasLtGetVersion", c.version);
  Find(lib, "cublasLtGetStatusString", c.error);
  Find(lib, "cublasLtMatmulDescCreate", c.create_product);
  Find(lib, "cublasLtMatmulDescDestroy", c.destroy_product);
  Find(lib, "cublasLtMatmulDescSetAttribute", c.set_product);
  Find(lib, "cublasLtMatrixLayoutCreate", c.create_layout);
  Find(lib, "cublasLtMatrixLayoutDestroy", c.destroy_layout);
  Find(lib, "cublasLtMatrixLayoutSetAttribute", c.set_layout);
  Find(lib, "cublasLtMatmulPreferenceCreate", c.create_preference);
  Find(lib, "cublasLtMatmulPreferenceSetAttribute", c.set_preference);
  Find(lib, "cublasLtMatmulPreferenceDestroy", c.destroy_preference);
  Find(lib, "cublasLtMatmulAlgoGetHeuristic", c.heuristic);
  Find(lib, "cublasLtMatmulAlgoConfigSetAttribute", c.set_config);
  Find(lib, "cublasLtMatmulAlgoCheck", c.check);
  Find(lib, "cublasLtMatmul", c.matmul);
  return c;
}

Driver FindDriver() {
  void* lib = Open(driver_path, {"libcuda.so.1"}, "install an NVIDIA driver");
  Driver d{};
  Find(lib, "cuEventCreate", d.create_event);
  Find(lib, "cuEventDestroy_v2", d.destroy_event);
  Find(lib, "cuEventRecord", d.record_event);
  Find(lib, "cuEventRecordWithFlags", d.record_event_with_flags);
  Find(lib, "cuEventSynchronize", d.wait_event);
  Find(lib, "cuEventElapsedTime", d.elapsed);
  Find(lib, "cuStreamIsCapturing", d.is_capturing);
  Find(lib, "cuStreamSynchronize", d.synchronize);
  Find(lib, "cuMemAlloc_v2", d.allocate);
  Find(lib, "cuMemFree_v2", d.free);
  Find(lib, "cuMemcpyDtoHAsync_v2", d.read);
  Find(lib, "cuMemcpyHtoDAsync_v2", d.write);
  Find(lib, "cuGetErrorName", d.error_name);
  Find(lib, "cuDeviceGet", d.device);
  Find(lib, "cuDeviceGetAttribute", d.attribute);
  Find(lib, "cuLibraryLoadData", d.load_library);
  Find(lib, "cuLibraryGetKernel", d.library_kernel);
  Find(lib, "cuKernelSetAttribute", d.set_kernel);
  Find(lib, "cuLaunchKernelEx", d.launch_kernel);
  Find(lib, "cuStreamCreate", d.create_stream);
  Find(lib, "cuStreamDestroy_v2", d.destroy_stream);
  Find(lib, "cuStreamWaitEvent", d.wait);
  Find(lib, "cuMemHostRegister_v2", d.host_register);
  Find(lib, "cuMemHostUnregister", d.host_unregister);
  Find(lib, "cuMemHostAlloc", d.host_allocate);
  Find(lib, "cuMemFreeHost", d.host_free);
  Find(lib, "cuDevicePrimaryCtxRetain", d.retain_context);
  Find(lib, "cuCtxGetCurrent", d.current_context);
  Find(lib, "cuCtxSetCurrent", d.set_context);
  Find(lib, "cuCtxSynchronize", d.synchronize_context);
  Find(lib, "cuThreadExchangeStreamCaptureMode", d.exchange_capture_mode);
  Find(lib, "cuStreamBeginCapture_v2", d.begin_capture);
  Find(lib, "cuStreamEndCapture", d.end_capture);
  Find(lib, "cuGraphInstantiateWithFlags", d.instantiate);
  Find(lib, "cuGraphLaunch", d.launch);
  Find(lib, "cuGraphDestroy", d.destroy_graph);
  Find(lib, "cuGraphExecDestroy", d.destroy_executable);
  return d;
}

Runtime FindRuntime() {
  void* lib = Open(runtime_path, {"libcudart.so.13", "libcudart.so.12"},
                   "install the wheel nvidia-cuda-runtime");
  Runtime r{};
  Find(lib, "cudaGetDevice", r.get_device);
  Find(lib, "cudaSetDevice", r.set_device);
  Find(lib, "cudaMalloc", r.malloc);
  Find(lib, "cudaFree", r.free);
  Find(lib, "cudaGetLastError", r.last_error);
  Find(lib, "cudaGetErrorString", r.error_string);
  Find(lib, "cudaThreadExchangeStreamCaptureMode", r.exchange_capture_mode);
  return r;
}

}  // namespace

void SetLibraryPaths(const std::string& cudnn, const std::string& cublaslt,
                     const std::string& driver) {
  const std::lock_guard<std::mutex> lock(guard);
  cudnn_path = cudnn;
  cublaslt_path = cublaslt;
  driver_path = driver;
}

void SetRuntimePath(const std::string& path) {
  const std::lock_guard<std::mutex> lock(guard);
  runtime_path = path;
}

// A library that fails to load is tried again at the next call: statics are set on success only.

const Cudnn& LoadCudnn() {
  const std::lock_guard<std::mutex> lock(guard);
  static const Cudnn loaded = FindCudnn();
  return loaded;
}

const CublasLt& LoadCublasLt() {
  const std::lock_guard<std::mutex> lock(guard);
  static const CublasLt loaded = FindCublasLt();
  return loaded;
}

const Driver& LoadDriver() {
  const std::lock_guard<std::mutex> lock(guard);
  static const Driver loaded = FindDriver();
  return loaded;
}

const Runtime& LoadRuntime() {
  const std::lock_guard<std::mutex> lock(guard);
  static const Runtime loaded = FindRuntime();
  return loaded;
}

}  // namespace memc::cuda
