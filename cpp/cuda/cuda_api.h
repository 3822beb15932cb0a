// SPDX-License-Identifier: Apache-2.0
// The functions of cuDNN 9, cuBLASLt and the CUDA driver that memc calls, found at run time: memc
// builds without CUDA, and loads where there is none. Types and values are those of the libraries'
// documented binary interfaces.
#ifndef MEMC_CUDA_API_H_
#define MEMC_CUDA_API_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memc::cuda {

// The libraries' objects, made and destroyed by their own functions: each kind has a type of its
// own, so that one in place of another does not compile. Owners are in cuda_handles.h.
struct CudnnHandle;       // cudnnHandle_t
struct CudnnTensor;       // cudnnTensorDescriptor_t
struct CudnnFilter;       // cudnnFilterDescriptor_t
struct CudnnConvolution;  // cudnnConvolutionDescriptor_t
struct CudnnActivation;   // cudnnActivationDescriptor_t
struct CudnnDescriptor;   // What a cudnnBackendDescriptor_t is.
struct LtHandle;          // cublasLtHandle_t
struct LtProduct;         // cublasLtMatmulDesc_t
struct LtLayout;          // cublasLtMatrixLayout_t
struct LtPreference;      // cublasLtMatmulPreference_t
struct Event;             // CUevent
struct CapturedGraph;     // CUgraph
struct ExecutableGraph;   // CUgraphExec
struct Image;             // CUlibrary
struct Kernel;            // CUkernel
struct DriverContext;     // CUcontext
struct StreamObject;
using Stream = StreamObject*;  // cudaStream_t, CUstream: the same object in both interfaces.

// What the elements of tensors are.
enum Element : int64_t { kF32, kF16, kBf16 };

constexpr size_t SizeOf(Element type) { return type == kF32 ? 4 : 2; }  // Bytes.

// cuDNN

constexpr int kCudnnFloat = 0;  // Also what all convolutions compute in.
constexpr int kCudnnHalf = 2;
constexpr int kCudnnInt32 = 4;
constexpr int kCudnnBfloat16 = 9;
constexpr int kCudnnBoolean = 11;
constexpr int kCudnnNchw = 0;
constexpr int kCudnnNhwc = 1;
constexpr int kCudnnCrossCorrelation = 1;
constexpr int kCudnnDefaultMath = 0;  // f32 products in TF32 where that is faster.
constexpr int kCudnnTensorMath = 1;   // Products of halves by tensor cores.
constexpr int kCudnnFmaMath = 3;      // f32 products in f32.
constexpr int kCudnnDeterministic = 1;
constexpr int kCudnnRelu = 1;
constexpr int kCudnnPropagateNan = 1;

// cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t, which have one layout.
struct CudnnPerf {
  int algo;
  int status;
  float time;  // Milliseconds.
  size_t memory;
  int determinism;
  int math_type;
  int reserved[3];
};

struct Cudnn {
  int (*create)(CudnnHandle**);
  int (*set_stream)(CudnnHandle*, Stream);
  const char* (*error)(int);
  void (*last_error)(char*, size_t);
  size_t (*version)();
  int (*create_tensor)(CudnnTensor**);
  int (*destroy_tensor)(CudnnTensor*);
  int (*set_tensor)(CudnnTensor*, int type, int rank, const int* shape, const int* strides);
  int (*create_filter)(CudnnFilter**);
  int (*destroy_filter)(CudnnFilter*);
  int (*set_filter)(CudnnFilter*, int type, int format, int rank, const int* shape);
  int (*create_convolution)(CudnnConvolution**);
  int (*destroy_convolution)(CudnnConvolution*);
  int (*set_convolution)(CudnnConvolution*, int rank, const int* pads, const int* strides,
                         const int* dilations, int mode, int type);
  int (*set_math)(CudnnConvolution*, int math);
  int (*set_groups)(CudnnConvolution*, int groups);
  int (*create_activation)(CudnnActivation**);
  int (*destroy_activation)(CudnnActivation*);
  int (*set_activation)(CudnnActivation*, int mode, int nan, double coefficient);

  // Each `get` lists the algorithms in the order that the library guesses for their speed.
  int (*get_forward)(CudnnHandle*, CudnnTensor* x_type, CudnnFilter* w_type,
                     CudnnConvolution* convolution, CudnnTensor* y_type, int most, int* found,
                     CudnnPerf* perf);
  int (*get_data)(CudnnHandle*, CudnnFilter* w_type, CudnnTensor* y_type,
                  CudnnConvolution* convolution, CudnnTensor* x_type, int most, int* found,
                  CudnnPerf* perf);
  int (*get_filter)(CudnnHandle*, CudnnTensor* x_type, CudnnTensor* y_type,
                    CudnnConvolution* convolution, CudnnFilter* w_type, int most, int* found,
                    CudnnPerf* perf);

  int (*forward)(CudnnHandle*, const void* alpha, CudnnTensor* x_type, const void* x,
                 CudnnFilter* w_type, const void* w, CudnnConvolution* convolution, int algo,
                 void* workspace, size_t bytes, const void* beta, CudnnTensor* y_type, void* y);
  int (*forward_activated)(CudnnHandle*, const void* alpha, CudnnTensor* x_type, const void* x,
                           CudnnFilter* w_type, const void* w, CudnnConvolution* convolution,
                           int algo, void* workspace, size_t bytes, const void* alpha_z,
                           CudnnTensor* z_type, const void* z, CudnnTensor* bias_type,
                           const void* bias, CudnnActivation* activation, CudnnTensor* y_type,
                           void* y);
  int (*backward_data)(CudnnHandle*, const void* alpha, CudnnFilter* w_type, const void* w,
                       CudnnTensor* y_type, const void* y, CudnnConvolution* convolution, int algo,
                       void* workspace, size_t bytes, const void* beta, CudnnTensor* x_type,
                       void* x);
  int (*backward_filter)(CudnnHandle*, const void* alpha, CudnnTensor* x_type, const void* x,
                         CudnnTensor* y_type, const void* y, CudnnConvolution* convolution,
                         int algo, void* workspace, size_t bytes, const void* beta,
                         CudnnFilter* w_type, void* w);
  int (*add)(CudnnHandle*, const void* alpha, CudnnTensor* a_type, const void* a, const void* beta,
             CudnnTensor* c_type, void* c);
  int (*activate)(CudnnHandle*, CudnnActivation* activation, const void* alpha, CudnnTensor* x_type,
                  const void* x, const void* beta, CudnnTensor* y_type, void* y);

  // Of graphs (cudnn_graph.h).
  int (*create_descriptor)(int kind, CudnnDescriptor**);
  int (*destroy_descriptor)(CudnnDescriptor*);
  int (*set_attribute)(CudnnDescriptor*, int name, int type, int64_t count, const void* values);
  int (*get_attribute)(CudnnDescriptor*, int name, int type, int64_t most, int64_t* count,
                       void* values);
  int (*finalize)(CudnnDescriptor*);
  int (*execute)(CudnnHandle*, CudnnDescriptor* plan, CudnnDescriptor* pack);
};

// cuBLASLt

constexpr int kLtFloat = 0;         // CUDA_R_32F
constexpr int kLtHalf = 2;          // CUDA_R_16F
constexpr int kLtBfloat16 = 14;     // CUDA_R_16BF
constexpr int kLtCompute = 68;      // CUBLAS_COMPUTE_32F: products in f32.
constexpr int kLtComputeTf32 = 77;  // CUBLAS_COMPUTE_32F_FAST_TF32
constexpr int kLtPointerMode = 2;   // CUBLASLT_MATMUL_DESC_*
constexpr int kLtTransposeA = 3;
constexpr int kLtTransposeB = 4;
constexpr int kLtEpilogue = 7;
constexpr int kLtBias = 8;
constexpr int kLtBatchCount = 5;  // CUBLASLT_MATRIX_LAYOUT_*
constexpr int kLtBatchStride = 6;
constexpr int kLtMostWorkspace = 1;  // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int kLtOnDevice = 1;       // CUBLASLT_POINTER_MODE_DEVICE: where alpha and beta lie.
constexpr int kLtEpilogueNone = 1;   // CUBLASLT_EPILOGUE_*, to be added up but for the first.
constexpr int kLtEpilogueRelu = 2;
constexpr int kLtEpilogueBias = 4;

constexpr int kLtSplit = 2;             // CUBLASLT_ALGO_CONFIG_*: parts of the depth, 1 for none,
constexpr int kLtReduction = 3;         // and how their products are added up:
constexpr uint32_t kLtInWorkspace = 2;  // CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, in a fixed order.

struct LtAlgo {
  uint64_t data[8];
};

struct LtHeuristic {
  LtAlgo algo;
  size_t workspace;  // Bytes.
  int status;
  float waves;
  int reserved[4];
};

struct CublasLt {
  int (*create)(LtHandle**);
  size_t (*version)();
  const char* (*error)(int);
  int (*create_product)(LtProduct**, int compute, int scale_type);
  int (*destroy_product)(LtProduct*);
  int (*set_product)(LtProduct*, int attribute, const void* value, size_t bytes);
  int (*create_layout)(LtLayout**, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*destroy_layout)(LtLayout*);
  int (*set_layout)(LtLayout*, int attribute, const void* value, size_t bytes);
  int (*create_preference)(LtPreference**);
  int (*set_preference)(LtPreference*, int attribute, const void* value, size_t bytes);
  int (*destroy_preference)(LtPreference*);
  int (*heuristic)(LtHandle*, LtProduct* product, LtLayout* a, LtLayout* b, LtLayout* c,
                   LtLayout* d, LtPreference* preference, int most, LtHeuristic* results,
                   int* found);
  int (*set_config)(LtAlgo*, int attribute, const void* value, size_t bytes);
  int (*check)(LtHandle*, LtProduct* product, LtLayout* a, LtLayout* b, LtLayout* c, LtLayout* d,
               const LtAlgo* algo, LtHeuristic* result);
  int (*matmul)(LtHandle*, LtProduct* product, const void* alpha, const void* a, LtLayout* a_layout,
                const void* b, LtLayout* b_layout, const void* beta, const void* c,
                LtLayout* c_layout, void* d, LtLayout* d_layout, const LtAlgo* algo,
                void* workspace, size_t bytes, Stream stream);
};

// The driver

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kRecordExternal = 1;  // In a capture: the event becomes part of the graph.
constexpr int kCaptureThreadLocal = 1;   // Calls of other threads are none of a capture's business.
constexpr int kCaptureRelaxed = 2;  // Nor are those of a thread in this mode; of the runtime, too.
constexpr unsigned kNoTiming = 2;   // CU_EVENT_DISABLE_TIMING
constexpr unsigned kHostPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTALLOC_PORTABLE
constexpr int kClusterDimension = 4;   // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
constexpr int kMultiprocessors = 16;   // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kComputeMajor = 75;      // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kSharedLimit = 97;       // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
constexpr int kMostShared = 8;         // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kClusterLaunch = 120;    // CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: 0 before sm_90.
constexpr int kNoSuchKernel = 500;     // CUDA_ERROR_NOT_FOUND

// CUlaunchAttribute, of which memc gives blocks of a cluster alone.
struct LaunchAttribute {
  int id;
  int reserved;
  std::array<unsigned, 3> extents;
  std::array<unsigned, 13> rest;
};

// CUlaunchConfig
struct LaunchConfig {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Driver {
  int (*create_event)(Event**, unsigned flags);
  int (*destroy_event)(Event*);
  int (*record_event)(Event*, Stream);
  int (*record_event_with_flags)(Event*, Stream, unsigned flags);
  int (*wait_event)(Event*);
  int (*elapsed)(float* milliseconds, Event* start, Event* end);
  int (*is_capturing)(Stream, int* status);  // 0: no.
  int (*synchronize)(Stream);
  int (*allocate)(uint64_t* address, size_t bytes);
  int (*free)(uint64_t address);
  int (*read)(void* host, uint64_t address, size_t bytes, Stream);
  int (*write)(uint64_t address, const void* host, size_t bytes, Stream);
  int (*error_name)(int, const char**);
  int (*device)(int* found, int number);
  int (*attribute)(int* value, int attribute, int device);
  int (*load_library)(Image**, const void* code, int* options, void** values, unsigned count,
                      int* library_options, void** library_values, unsigned library_count);
  int (*library_kernel)(Kernel**, Image* library, const char* name);
  int (*set_kernel)(int attribute, int value, Kernel* kernel, int device);
  int (*launch_kernel)(const LaunchConfig*, Kernel* kernel, void** arguments, void** extra);
  int (*create_stream)(Stream*, unsigned flags);
  int (*destroy_stream)(Stream);
  int (*wait)(Stream, Event*, unsigned flags);  // What is enqueued from now on, for the event.
  int (*host_register)(void* data, size_t bytes, unsigned flags);
  int (*host_unregister)(void* data);
  int (*host_allocate)(void** data, size_t bytes, unsigned flags);
  int (*host_free)(void* data);
  int (*retain_context)(DriverContext**, int device);  // The one that the runtime uses, too.
  int (*current_context)(DriverContext**);
  int (*set_context)(DriverContext*);
  int (*synchronize_context)();
  int (*exchange_capture_mode)(int* mode);  // Of the calling thread.
  int (*begin_capture)(Stream, int mode);
  int (*end_capture)(Stream, CapturedGraph** graph);
  int (*instantiate)(ExecutableGraph** executable, CapturedGraph* graph, unsigned long long flags);
  int (*launch)(ExecutableGraph* executable, Stream);
  int (*destroy_graph)(CapturedGraph*);
  int (*destroy_executable)(ExecutableGraph*);
};

// The runtime, of which each library in a process may have one of its own, with its own last error

struct Runtime {
  int (*get_device)(int* device);
  int (*set_device)(int device);
  int (*malloc)(void** data, size_t bytes);
  int (*free)(void* data);
  int (*last_error)();
  const char* (*error_string)(int);
  int (*exchange_capture_mode)(int* mode);  // Of the calling thread.
};

// Where to look for the libraries; empty for the system's own search. To be called before they are
// first used: later calls change nothing.
void SetLibraryPaths(const std::string& cudnn, const std::string& cublaslt,
                     const std::string& driver);
void SetRuntimePath(const std::string& path);

// The loaded libraries. Throw std::runtime_error, which says what to install, where there is none.
const Cudnn& LoadCudnn();
const CublasLt& LoadCublasLt();
const Driver& LoadDriver();
const Runtime& LoadRuntime();

}  // namespace memc::cuda

#endif  // MEMC_CUDA_API_H_
