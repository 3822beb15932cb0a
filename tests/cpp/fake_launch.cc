// SPDX-License-Identifier: Apache-2.0
// The CUDA driver's launches of memc's own kernels, whose source is compiled for the host with this.
#define CUDA_KERNELS_HOST "cuda_on_host.h"
#include "split_product.cu"

#include <dlfcn.h>

#include <cstdlib>

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

}  // namespace

extern "C" {

int launches = 0;

int cuLibraryLoadData(void** h, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  return *h = new int(0), *static_cast<const char*>(code) == 'c' ? 0 : kFails;
}

int cuLibraryGetKernel(void** kernel, void*, const char* name) {
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&cuLibraryGetKernel), &here);
  void* library = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *kernel = dlsym(library, name);
  return *kernel == nullptr ? kFails : 0;
}

int cuLaunchKernelEx(const Config* config, void* kernel, void** arguments, void**) {
  const char* fails = std::getenv("FAKE_CUDA_FAILS");
  if (fails != nullptr && std::strcmp(fails, "cuLaunchKernelEx") == 0) return kFails;
  ++launches;
  const auto run = reinterpret_cast<void (*)(Params)>(kernel);
  const Params& params = *static_cast<const Params*>(arguments[0]);
  unsigned blocks = 1;
  for (unsigned i = 0; i < config->count; ++i) {
    const Attribute& a = config->attributes[i];
    if (a.id != 4 || a.extents[1] != 1 || a.extents[2] != 1) return kFails;
    blocks = a.extents[0];
  }
  if (config->grid[0] % blocks != 0 || config->grid[2] != 1 || config->block[1] != 1) return kFails;
  host::Run(config->grid[0], config->grid[1], config->block[0], blocks, [&] { run(params); });
  return 0;
}

}  // extern "C"
