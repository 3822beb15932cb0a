// SPDX-License-Identifier: Apache-2.0
#include "cuda/pinned_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include "cuda/cuda_api.h"

namespace memc::cuda {

namespace {

constexpr size_t kMostThreads = 8;
constexpr size_t kLeastShare = size_t{64} << 20;  // Bytes for which a thread is worth its while.
constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

// The number after `key` in a file of lines `key number`, or, without a key, the first word if that
// is a number.
size_t NumberIn(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (!key.empty() && word != key) continue;
    if (!key.empty() && !(file >> word)) break;
    const bool is_number = word.find_first_not_of("0123456789") == std::string::npos;
    return is_number && word.size() < 19 ? std::strtoull(word.c_str(), nullptr, 10) : kUnknown;
  }
  return kUnknown;
}

// Writes a byte to each page, so that each has its place in memory: by several threads, since the
// system clears the pages meanwhile.
void Touch(char* data, size_t bytes, size_t page) {
  const auto touch = [data, page](size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += page) static_cast<volatile char*>(data)[at] = 0;
  };
  const size_t processors = std::max(std::thread::hardware_concurrency(), 1U);
  const size_t count =
      std::clamp<size_t>(bytes / kLeastShare, 1, std::min(processors, kMostThreads));
  const size_t share = (bytes / count / page + 1) * page;
  std::vector<std::thread> threads;
  size_t begun = 0;
  try {
    for (; begun + share < bytes; begun += share) {
      threads.emplace_back(touch, begun, begun + share);
    }
  } catch (const std::system_error&) {  // No more threads: this one does the rest.
  }
  touch(begun, bytes);
  for (std::thread& thread : threads) thread.join();
}

std::string NameOf(int status) {
  const char* name = nullptr;
  LoadDriver().error_name(status, &name);
  return name == nullptr ? "unknown error" : name;
}

PinError Failure(size_t bytes, const std::string& why) {
  return PinError("cannot pin " + std::to_string(bytes) + " bytes of the host's memory: " + why);
}

std::string FreeText() {
  const size_t free = FreeHostBytes();
  return free == kUnknown ? "" : "; " + std::to_string(free) + " bytes of it are free";
}

// A mapping whose pages all have memory; null where there is none.
char* Mapped(size_t bytes, size_t page) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, bytes, MADV_HUGEPAGE);
  // A forked child, which cannot use CUDA, must not make the parent's next write go to a new page.
  madvise(data, bytes, MADV_DONTFORK);
  Touch(static_cast<char*>(data), bytes, page);
  return static_cast<char*>(data);
}

}  // namespace

size_t FreeHostBytes() {
  const size_t kilobytes = NumberIn("/proc/meminfo", "MemAvailable:");
  size_t free = kilobytes == kUnknown ? kUnknown : kilobytes * 1024;
  const size_t most = NumberIn("/sys/fs/cgroup/memory.max", "");
  const size_t taken = NumberIn("/sys/fs/cgroup/memory.current", "");
  if (most != kUnknown && taken != kUnknown) {
    // What is cached of files is given up for it.
    const size_t cached = NumberIn("/sys/fs/cgroup/memory.stat", "inactive_file");
    const size_t held = taken - std::min(taken, cached == kUnknown ? 0 : cached);
    free = std::min(free, most - std::min(most, held));
  }
  return free;
}

PinnedBytes::PinnedBytes(size_t bytes) : bytes_(bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // The system would end the process, not refuse.
  if (bytes > FreeHostBytes()) {
    throw Failure(bytes, std::to_string(FreeHostBytes()) + " bytes of it are free");
  }
  const Driver& driver = LoadDriver();
  const size_t mapped = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
  char* data = Mapped(mapped, page);
  if (data == nullptr) throw Failure(bytes, "the system has no address space for it" + FreeText());
  const int registered = driver.host_register(data, mapped, kHostPortable);
  if (registered == 0) {
    data_ = data;
    mapped_ = mapped;
    return;
  }
  munmap(data, mapped);
  // Systems that do not let memory be pinned where it is may have the driver's own.
  void* given = nullptr;
  const int allocated = driver.host_allocate(&given, mapped, kHostPortable);
  if (allocated != 0) {
    throw Failure(bytes, "cuMemHostRegister: " + NameOf(registered) +
                             ", cuMemHostAlloc: " + NameOf(allocated) + FreeText());
  }
  data_ = static_cast<char*>(given);
}

// A destructor cannot throw: where the driver is gone already, so is what it had pinned.
PinnedBytes::~PinnedBytes() {
  if (mapped_ == 0) {
    LoadDriver().host_free(data_);
  } else {
    LoadDriver().host_unregister(data_);
    munmap(data_, mapped_);
  }
}

}  // namespace memc::cuda
