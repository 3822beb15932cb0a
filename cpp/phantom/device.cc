// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "export.h"

namespace phantom {

namespace {

using Lines = std::map<std::string, std::string, std::less<>>;

// Kept until the process ends: libraries call in when static objects are gone.
const Lines& Description() {
  static const Lines* const lines = [] {
    auto* made = new Lines;
    const char* path = std::getenv("MEMC_PHANTOM_DEVICE");
    std::ifstream file(path == nullptr ? "" : path);
    for (std::string line; std::getline(file, line);) {
      const size_t space = line.find(' ');
      if (space != std::string::npos) (*made)[line.substr(0, space)] = line.substr(space + 1);
    }
    return made;
  }();
  return *lines;
}

std::atomic<size_t> used{0}, limit{~size_t{0} >> 1};
std::atomic<int> blas_handles{0}, dnn_handles{0};
std::atomic<int64_t> nccl{0}, most_nccl{0};
std::atomic<uintptr_t> next_handle{0x10000};

}  // namespace

const std::string& Text(const char* key) {
  static const auto* const empty = new std::string;
  const auto found = Description().find(key);
  return found == Description().end() ? *empty : found->second;
}

long long Number(const char* key) { return std::atoll(Text(key).c_str()); }

size_t Limit() { return limit; }

size_t Outside() {
  static const size_t context = Number("outsideContext"), blas = Number("outsideBlasHandle"),
                      dnn = Number("outsideDnnHandle");
  return context + blas * blas_handles + dnn * dnn_handles + static_cast<size_t>(nccl);
}

bool Take(size_t bytes) {
  size_t before = used;
  do {
    if (before + bytes + Outside() > Limit()) return false;
  } while (!used.compare_exchange_weak(before, before + bytes));
  return true;
}

void GiveBack(size_t bytes) { used -= bytes; }
size_t Used() { return used; }
void CountBlasHandle(int change) { blas_handles += change; }
void CountDnnHandle(int change) { dnn_handles += change; }
void CountNccl(int64_t change) {
  const int64_t now = nccl += change;
  if (now > most_nccl) most_nccl = now;  // Communicators are made one by one.
}
uintptr_t NewHandle() { return next_handle += 64; }

void RequireOwner() {
  const char* owner = std::getenv("MEMC_PHANTOM_OWNER");
  if (owner != nullptr && std::atoll(owner) != getpid()) {
    Refuse(
        "cudaMalloc",
        "the script starts another process that uses the GPU, which is not counted; run what that "
        "process does in the script itself, or one rank of a distributed job with --world-size");
  }
}

void Refuse(const char* what, const char* why) {
  if (const char* path = std::getenv("MEMC_PHANTOM_ERROR")) {
    if (FILE* file = std::fopen(path, "w")) {
      std::fprintf(file, "%s: %s\n", what, why);
      std::fclose(file);
    }
  }
  std::fprintf(stderr, "memc: phantom device: %s: %s\n", what, why);
  std::fflush(nullptr);
  _exit(3);
}

}  // namespace phantom

// For the process that runs the script.
MEMC_PHANTOM_EXPORT void memc_phantom_set_limit(size_t bytes) { phantom::limit = bytes; }
MEMC_PHANTOM_EXPORT size_t memc_phantom_nccl() { return static_cast<size_t>(phantom::most_nccl); }
MEMC_PHANTOM_EXPORT size_t memc_phantom_outside() {
  return phantom::Outside() - static_cast<size_t>(phantom::nccl) + memc_phantom_nccl();
}
MEMC_PHANTOM_EXPORT size_t memc_phantom_used() { return phantom::Used(); }
