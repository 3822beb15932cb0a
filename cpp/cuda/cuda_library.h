// SPDX-License-Identifier: Apache-2.0
// The functions of cuDNN 9, cuBLASLt and the CUDA driver that memc calls, found at run time: memc
// builds without CUDA, and loads where there is none. Types and values are those of the libraries'
// documented binary interfaces.
#ifndef MEMC_CUDA_LIBRARY_H_
#define MEMC_CUDA_LIBRARY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memc::cuda {

using Stream = void*;  // cudaStream_t, CUstream: the same object in both interfaces.
using Handle = void*;  // A library's object, made and ended by its own functions.

// What the elements of tensors are.
enum Element : int64_t { kF32, kF16, kBf16 };

constexpr size_t SizeOf(Element type) { return type == kF32 ? 4 : 2; }  // Bytes.

// cuDNN

constexpr int kCudnnFloat = 0;  // Also what all convolutions compute in.
constexpr int kCudnnHalf = 2;
constexpr int kCudnnBfloat16 = 9;
constexpr int kCudnnNchw = 0;
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
  int (*create)(Handle*);
  int (*set_stream)(Handle, Stream);
  const char* (*error)(int);
  void (*last_error)(char*, size_t);
  size_t (*version)();
  int (*create_tensor)(Handle*);
  int (*set_tensor)(Handle, int type, int rank, const int* shape, const int* strides);
  int (*create_filter)(Handle*);
  int (*set_filter)(Handle, int type, int format, int rank, const int* shape);
  int (*create_convolution)(Handle*);
  int (*set_convolution)(Handle, int rank, const int* pads, const int* strides,
                         const int* dilations, int mode, int type);
  int (*set_math)(Handle, int math);
  int (*set_groups)(Handle, int groups);
  int (*create_activation)(Handle*);
  int (*set_activation)(Handle, int mode, int nan, double coefficient);

  // Each `get` lists the algorithms in the order that the library guesses for their speed.
  int (*get_forward)(Handle, Handle x_type, Handle w_type, Handle convolution, Handle y_type,
                     int most, int* found, CudnnPerf* perf);
  int (*get_data)(Handle, Handle w_type, Handle y_type, Handle convolution, Handle x_type, int most,
                  int* found, CudnnPerf* perf);
  int (*get_filter)(Handle, Handle x_type, Handle y_type, Handle convolution, Handle w_type,
                    int most, int* found, CudnnPerf* perf);

  int (*forward)(Handle, const void* alpha, Handle x_type, const void* x, Handle w_type,
                 const void* w, Handle convolution, int algo, void* workspace, size_t bytes,
                 const void* beta, Handle y_type, void* y);
  int (*forward_activated)(Handle, const void* alpha, Handle x_type, const void* x, Handle w_type,
                           const void* w, Handle convolution, int algo, void* workspace,
                           size_t bytes, const void* alpha_z, Handle z_type, const void* z,
                           Handle bias_type, const void* bias, Handle activation, Handle y_type,
                           void* y);
  int (*backward_data)(Handle, const void* alpha, Handle w_type, const void* w, Handle y_type,
                       const void* y, Handle convolution, int algo, void* workspace, size_t bytes,
                       const void* beta, Handle x_type, void* x);
  int (*backward_filter)(Handle, const void* alpha, Handle x_type, const void* x, Handle y_type,
                         const void* y, Handle convolution, int algo, void* workspace, size_t bytes,
                         const void* beta, Handle w_type, void* w);
  int (*add)(Handle, const void* alpha, Handle a_type, const void* a, const void* beta,
             Handle c_type, void* c);
  int (*activate)(Handle, Handle activation, const void* alpha, Handle x_type, const void* x,
                  const void* beta, Handle y_type, void* y);
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
  int (*create)(Handle*);
  size_t (*version)();
  const char* (*error)(int);
  int (*create_product)(Handle*, int compute, int scale_type);
  int (*set_product)(Handle, int attribute, const void* value, size_t bytes);
  int (*create_layout)(Handle*, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*set_layout)(Handle, int attribute, const void* value, size_t bytes);
  int (*create_preference)(Handle*);
  int (*set_preference)(Handle, int attribute, const void* value, size_t bytes);
  int (*destroy_preference)(Handle);
  int (*heuristic)(Handle, Handle product, Handle a, Handle b, Handle c, Handle d,
                   Handle preference, int most, LtHeuristic* results, int* found);
  int (*set_config)(LtAlgo*, int attribute, const void* value, size_t bytes);
  int (*check)(Handle, Handle product, Handle a, Handle b, Handle c, Handle d, const LtAlgo* algo,
               LtHeuristic* result);
  int (*matmul)(Handle, Handle product, const void* alpha, const void* a, Handle a_layout,
                const void* b, Handle b_layout, const void* beta, const void* c, Handle c_layout,
                void* d, Handle d_layout, const LtAlgo* algo, void* workspace, size_t bytes,
                Stream stream);
};

// The driver

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kRecordExternal = 1;  // In a capture: the event becomes part of the graph.
constexpr int kCaptureThreadLocal = 1;   // Calls of other threads are none of a capture's business.
constexpr int kClusterDimension = 4;     // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
constexpr int kMultiprocessors = 16;     // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kSharedLimit = 97;         // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
constexpr int kMostShared = 8;           // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kClusterLaunch = 120;      // CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: 0 before sm_90.
constexpr int kNoSuchKernel = 500;       // CUDA_ERROR_NOT_FOUND

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
  int (*create_event)(Handle*, unsigned flags);
  int (*destroy_event)(Handle);
  int (*record_event)(Handle, Stream);
  int (*record_event_with_flags)(Handle, Stream, unsigned flags);
  int (*wait_event)(Handle);
  int (*elapsed)(float* milliseconds, Handle start, Handle end);
  int (*is_capturing)(Stream, int* status);  // 0: no.
  int (*synchronize)(Stream);
  int (*allocate)(uint64_t* address, size_t bytes);
  int (*read)(void* host, uint64_t address, size_t bytes, Stream);
  int (*write)(uint64_t address, const void* host, size_t bytes, Stream);
  int (*error_name)(int, const char**);
  int (*device)(int* found, int number);
  int (*attribute)(int* value, int attribute, int device);
  int (*load_library)(Handle*, const void* code, int* options, void** values, unsigned count,
                      int* library_options, void** library_values, unsigned library_count);
  int (*library_kernel)(Handle*, Handle library, const char* name);
  int (*set_kernel)(int attribute, int value, Handle kernel, int device);
  int (*launch_kernel)(const LaunchConfig*, Handle kernel, void** arguments, void** extra);
  int (*create_stream)(Stream*, unsigned flags);
  int (*begin_capture)(Stream, int mode);
  int (*end_capture)(Stream, Handle* graph);
  int (*instantiate)(Handle* executable, Handle graph, unsigned long long flags);
  int (*launch)(Handle executable, Stream);
  int (*destroy_graph)(Handle);
  int (*destroy_executable)(Handle);
};

// The runtime, of which each library in a process may have one of its own, with its own last error

constexpr int kCaptureRelaxed = 2;  // cudaStreamCaptureModeRelaxed

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

#endif  // MEMC_CUDA_LIBRARY_H_
