// SPDX-License-Identifier: Apache-2.0
// The CUDA driver's launches of memc's own kernels, whose source is compiled for the host with
// this.
#define CUDA_KERNELS_HOST "cuda_on_host.h"
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "attention.cu"
#include "attention_training.cuh"
#include "depthwise.cu"
#include "patch_product.cu"
#include "patch_sums.cu"
#include "scans.cu"
#include "scatters.cu"
#include "sorts.cu"
#include "split_product.cu"
#include "suppression.cu"
#include "tensor_product.cu"
#include "winograd.cu"
#include "winograd_volume.cu"

#define ATTENTION_WIDTHS(Type, name)                  \
  ATTENTION_TRAINING(Type, name, 64)                  \
  ATTENTION_TRAINING(Type, name, 96)                  \
  ATTENTION_TRAINING(Type, name, 128)                 \
  ATTENTION_TRAINING(Type, name, 256)                 \
  ATTENTION_TRAINING(Masked<Type>, masked_##name, 64) \
  ATTENTION_TRAINING(Masked<Type>, masked_##name, 256)

ATTENTION_WIDTHS(F32, f32)
ATTENTION_WIDTHS(Tf32, tf32)
ATTENTION_WIDTHS(F16, f16)
ATTENTION_WIDTHS(Bf16, bf16)

namespace {

struct Attribute {
  int id, reserved;
  unsigned extents[3], rest[13];
};

struct Config {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  Attribute* attributes;
  unsigned count;
};

constexpr int kFails = 4000;

template <typename Given>
void Run(const Config& config, int blocks, void* kernel, const void* given) {
  const Given& params = *static_cast<const Given*>(given);
  const auto call = reinterpret_cast<void (*)(Given)>(kernel);
  host::Run(config.grid[0], config.grid[1], config.block[0], blocks, [&] { call(params); });
}

int SharedLimit() {
  const char* limit = std::getenv("FAKE_CUDA_SHARED");
  return limit != nullptr ? std::atoi(limit) : 99 << 10;
}

using Runner = void (*)(const Config&, int, void*, const void*);

// How to run the kernels that were asked for, by what they are given.
std::map<void*, Runner> runners;

// What a launch may give them of shared memory beyond 48 KiB.
std::map<void*, unsigned> given_bytes;

Runner RunnerOf(const char* name) {
  if (std::strstr(name, "_attention_") != nullptr) return Run<TrainingAttention>;
  if (std::strncmp(name, "attention", 9) == 0) return Run<Attention>;
  if (std::strncmp(name, "sort_", 5) == 0) return Run<Sort>;
  if (std::strncmp(name, "scan_", 5) == 0) return Run<Scan>;
  if (std::strncmp(name, "scatter_", 8) == 0) return Run<Scatter>;
  if (std::strncmp(name, "depthwise_", 10) == 0) return Run<Depthwise>;
  if (std::strncmp(name, "tensor_", 7) == 0) return Run<PatchProduct>;
  if (std::strncmp(name, "patch_totals", 12) == 0) return Run<PatchTotals>;
  if (std::strncmp(name, "patch_", 6) == 0) return Run<PatchProduct>;
  if (std::strncmp(name, "winograd_3_volume", 17) == 0) return Run<WinogradVolume>;
  if (std::strncmp(name, "suppress_", 9) == 0) return Run<Suppression>;
  return std::strncmp(name, "winograd", 8) == 0 ? Run<Winograd> : Run<Params>;
}

}  // namespace

extern "C" {

int launches = 0;

int cuDeviceGet(int* found, int number) { return *found = number + 7, 0; }

// With FAKE_CUDA_ALONE, blocks are no clusters, as on devices before sm_90. There are three
// multiprocessors.
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (attribute == 97) {  // Bytes of shared memory.
    *value = SharedLimit();
    return device == 7 ? 0 : kFails;
  }
  const bool alone = std::getenv("FAKE_CUDA_ALONE") != nullptr;
  *value = attribute == 16 ? 3 : attribute == 75 ? (alone ? 8 : 9) : alone ? 0 : 1;
  return (attribute == 16 || attribute == 75 || attribute == 120) && device == 7 ? 0 : kFails;
}

// A block may have 99 KiB of shared memory, as on most devices, or with FAKE_CUDA_SHARED so many
// bytes, but more than 48 KiB only by this.
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  if (attribute != 8 || device != 7 || value > SharedLimit()) return kFails;
  given_bytes[kernel] = static_cast<unsigned>(value);
  return 0;
}

// An image is "cubin", which has all kernels, or "cubin:" and what the names begin with of those
// that it has.
int cuLibraryLoadData(void** h, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  const std::string image(static_cast<const char*>(code));
  if (image.rfind("cubin", 0) != 0) return kFails;
  return *h = new std::string(image.size() > 6 ? image.substr(6) : ""), 0;
}

int cuLibraryGetKernel(void** kernel, void* image, const char* name) {
  const std::string& has = *static_cast<const std::string*>(image);
  *kernel = nullptr;
  if (std::strncmp(name, has.c_str(), has.size()) != 0) return kFails;
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&cuLibraryGetKernel), &here);
  void* library = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *kernel = dlsym(library, name);
  if (*kernel == nullptr) return kFails;
  runners[*kernel] = RunnerOf(name);
  return 0;
}

int cuLaunchKernelEx(const Config* config, void* kernel, void** arguments, void**) {
  const char* fails = std::getenv("FAKE_CUDA_FAILS");
  if (fails != nullptr && std::strcmp(fails, "cuLaunchKernelEx") == 0) return kFails;
  ++launches;
  unsigned blocks = 1;
  for (unsigned i = 0; i < config->count; ++i) {
    const Attribute& a = config->attributes[i];
    if (std::getenv("FAKE_CUDA_ALONE") != nullptr || a.id != 4 || a.extents[1] != 1 ||
        a.extents[2] != 1)
      return kFails;
    blocks = a.extents[0];
  }
  if (config->grid[0] % blocks != 0 || config->grid[2] != 1 || config->block[1] != 1) return kFails;
  if (config->shared_bytes > std::max(48u << 10, given_bytes[kernel])) return kFails;
  host::cluster.given_bytes = config->shared_bytes;
  runners.at(kernel)(*config, blocks, kernel, arguments[0]);
  return 0;
}

}  // extern "C"
