// SPDX-License-Identifier: Apache-2.0
// The compiler of kernels at run time, which compiles none: they would not be launched.
#include <nvrtc.h>

#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "device.h"
#include "export.h"

namespace phantom {

namespace {

constexpr size_t kBytes = 64;  // of what stands for code

// Names are asked for as long as there is a process.
struct Names {
  std::mutex mutex;
  std::set<std::string> kept;
};

nvrtcResult Zeros(char* code) {
  std::memset(code, 0, kBytes);
  return NVRTC_SUCCESS;
}

nvrtcResult Size(size_t* bytes) {
  *bytes = kBytes;
  return NVRTC_SUCCESS;
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}
MEMC_PHANTOM_EXPORT const char* nvrtcGetErrorString(nvrtcResult) { return "no error"; }
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return NVRTC_SUCCESS;
}
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  *archs = static_cast<int>(10 * Number("major") + Number("minor"));
  return NVRTC_SUCCESS;
}
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*,
                                                   int, const char* const*, const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(NewHandle());
  return NVRTC_SUCCESS;
}
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t* bytes) {
  *bytes = 1;
  return NVRTC_SUCCESS;
}
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* log) {
  *log = 0;
  return NVRTC_SUCCESS;
}
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t* bytes) {
  return Size(bytes);
}
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* code) { return Zeros(code); }
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram, size_t* bytes) { return Size(bytes); }
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram, char* code) { return Zeros(code); }
MEMC_PHANTOM_EXPORT nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char* name,
                                                    const char** lowered) {
  static auto* const names = new Names;
  const std::lock_guard<std::mutex> lock(names->mutex);
  *lowered = names->kept.insert(name).first->c_str();
  return NVRTC_SUCCESS;
}
