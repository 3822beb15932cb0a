// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_launch.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace memc::cuda {

namespace {

constexpr unsigned kUsualShared = 48 << 10;  // What any launch may give.

// A kernel by its name, from the first image that has it, to be launched with so many bytes of
// shared memory, and the driver's status. Kernels of one name are the same: it has a version.
int Find(Context& context, const std::string& name, unsigned shared_bytes, Kernel** kernel) {
  OwnKernel& found = context.own_kernels[name];
  int status = found.kernel == nullptr ? kNoSuchKernel : 0;
  for (const auto& [hash, image] : context.own_images) {
    if (status == 0) break;
    status = LoadDriver().library_kernel(&found.kernel, image, name.c_str());
    if (status != 0) found.kernel = nullptr;
  }
  if (status == 0 && shared_bytes > std::max(kUsualShared, found.shared_bytes)) {
    status = LoadDriver().set_kernel(kMostShared, static_cast<int>(shared_bytes), found.kernel,
                                     context.number);
    if (status == 0) found.shared_bytes = shared_bytes;
  }
  *kernel = found.kernel;
  return status;
}

}  // namespace

// n / by = n * factor >> shift for all n below 2^31: factor = ceil(2^shift / by) with
// shift = 31 + ceil(log2 by) is too large by less than 2^(shift - 31) / by.
Divisor DivisorOf(int by) {
  Divisor d;
  d.by = by;
  int bits = 0;
  while (int64_t{1} << bits < by) ++bits;
  d.shift = 31 + bits;
  d.factor = static_cast<uint32_t>(((uint64_t{1} << d.shift) + by - 1) / by);
  return d;
}

void AddKernels(int device, const std::string& cubin) {
  Context& context = ContextOf(device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const size_t hash = std::hash<std::string>{}(cubin);
  if (context.own_images.count(hash) != 0) return;
  CheckDriver(LoadDriver().device(&context.number, device), "cuDeviceGet");
  const auto attribute = [&](int which) {
    int value = 0;
    CheckDriver(LoadDriver().attribute(&value, which, context.number), "cuDeviceGetAttribute");
    return value;
  };
  context.has_clusters = attribute(kClusterLaunch) != 0;
  context.has_tf32 = attribute(kComputeMajor) >= 8;
  context.shared_limit = attribute(kSharedLimit);
  context.multiprocessors = attribute(kMultiprocessors);
  Image* image = nullptr;
  CheckDriver(
      LoadDriver().load_library(&image, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      "cuLibraryLoadData");
  context.own_images.emplace(hash, image);
}

int LaunchKernel(Context& context, const std::string& name, const Blocks& blocks, Stream stream,
                 void* params) {
  Kernel* kernel = nullptr;
  const int status = Find(context, name, blocks.shared_bytes, &kernel);
  if (status != 0) return status;
  LaunchAttribute cluster{};
  cluster.id = kClusterDimension;
  cluster.extents = {static_cast<unsigned>(blocks.splits), 1, 1};
  LaunchConfig config{};
  config.grid = {static_cast<unsigned>(blocks.tiles * blocks.splits),
                 static_cast<unsigned>(blocks.batch), 1};
  config.block = {static_cast<unsigned>(blocks.threads), 1, 1};
  config.shared_bytes = blocks.shared_bytes;
  config.stream = stream;
  config.attributes = &cluster;
  config.attribute_count = blocks.splits > 1 ? 1 : 0;
  return LoadDriver().launch_kernel(&config, kernel, &params, nullptr);
}

}  // namespace memc::cuda
