// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime of fake_cuda.h: memory up to a limit, the last error, the current device, and
// captures, in which only a thread in relaxed mode (2) may allocate.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <utility>

extern "C" {

int fake_live = 0;
int fake_device = 0;
int fake_mode = 0;
static size_t limit = SIZE_MAX;
static size_t taken = 0;
static int last_error = 0;
static bool others_capture = false;
static std::map<void*, size_t> pieces;

void fake_limit(size_t bytes) { limit = bytes; }
void fake_capture(int) { others_capture = true; }
int cudaGetDevice(int* device) { return *device = fake_device, 0; }
int cudaSetDevice(int device) { return fake_device = device, 0; }
int cudaMalloc(void** data, size_t bytes) {
  if (fake_device != 0) return last_error = 101;
  if (others_capture && fake_mode != 2) return last_error = 900;
  if (taken + bytes > limit) return last_error = 2;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  taken += pieces[*data] = bytes;
  ++fake_live;
  return 0;
}
int cudaFree(void* data) {
  taken -= pieces[data];
  pieces.erase(data);
  --fake_live;
  std::free(data);
  return 0;
}
int cudaGetLastError() {
  const int error = last_error;
  last_error = 0;
  return error;
}
const char* cudaGetErrorString(int status) {
  return status == 2 ? "out of memory" : "another error";
}
int cudaThreadExchangeStreamCaptureMode(int* mode) { return std::swap(*mode, fake_mode), 0; }

}  // extern "C"
