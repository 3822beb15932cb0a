// SPDX-License-Identifier: Apache-2.0
// NVML, of which scripts and PyTorch ask how many devices there are and what is used of them.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"
#include "export.h"

namespace phantom {

namespace {

struct MemoryInfo {  // nvmlMemory_t
  unsigned long long total, free, used;
};

MemoryInfo Memory() {
  const auto total = static_cast<unsigned long long>(Number("totalGlobalMem"));
  const unsigned long long used = Used() + Outside();
  return {total, used < total ? total - used : 0, used};
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT int nvmlInit_v2() { return 0; }
MEMC_PHANTOM_EXPORT int nvmlInit() { return 0; }
MEMC_PHANTOM_EXPORT int nvmlInitWithFlags(unsigned) { return 0; }
MEMC_PHANTOM_EXPORT int nvmlShutdown() { return 0; }
MEMC_PHANTOM_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Number("count"));
  return 0;
}
MEMC_PHANTOM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  *handle = reinterpret_cast<void*>(uintptr_t{64} * (index + 1));
  return 0;
}
// The bus of the number NN is 0000:NN:00.0, as the runtime says.
MEMC_PHANTOM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* text, void** handle) {
  const char* colon = std::strchr(text, ':');
  const long bus = colon == nullptr ? 0 : std::strtol(colon + 1, nullptr, 16);
  return nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(bus), handle);
}
MEMC_PHANTOM_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = static_cast<int>(Number("driverVersion"));
  return 0;
}
// PyTorch asks it for the message of an error when memory runs out.
MEMC_PHANTOM_EXPORT int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
// No fabric (3: not supported), in nvmlGpuFabricInfoV_t.
MEMC_PHANTOM_EXPORT int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return 3; }
MEMC_PHANTOM_EXPORT int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "%s", Text("name").c_str());
  return 0;
}
MEMC_PHANTOM_EXPORT int nvmlDeviceGetUUID(void* handle, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-00000000-0000-0000-0000-%012x",
                static_cast<unsigned>(reinterpret_cast<uintptr_t>(handle) / 64 - 1));
  return 0;
}
MEMC_PHANTOM_EXPORT int nvmlDeviceGetMemoryInfo(void*, MemoryInfo* found) {
  *found = Memory();
  return 0;
}
MEMC_PHANTOM_EXPORT const char* nvmlErrorString(int) {
  return "not supported by the phantom device";
}
