// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_scans.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kEach = 8;
constexpr int64_t kMostWide = 32;
constexpr int64_t kEnoughBlocks = 512;  // That keep a device busy, each with whole lines.
constexpr int64_t kBlocks = 1024;       // Else lines are cut into parts for about so many.
constexpr int64_t kMostParts = 1024;

// The kernels' parameters, as in scans.cuh.
struct Params {
  const void* x = nullptr;
  void* y = nullptr;
  void* sums = nullptr;
  int64_t lead = 1, extent = 0, trail = 1;
  int64_t parts = 1, chunks = 1, line_tiles = 1;
  int wide = 1;
  int bytes = 4;
  int exclusive = 0, reverse = 0;
};

// How lines are shared out to blocks.
Params Shared(const Lines& lines) {
  Params p;
  p.lead = lines.lead;
  p.extent = lines.extent;
  p.trail = lines.trail;
  while (p.wide < std::min(lines.trail, kMostWide)) p.wide *= 2;
  p.line_tiles = Ceil(lines.trail, p.wide);
  const int64_t chunks = Ceil(lines.extent, kThreads / p.wide * kEach);
  const int64_t blocks = std::max<int64_t>(p.lead * p.line_tiles, 1);
  const int64_t parts = blocks >= kEnoughBlocks ? 1 : std::min(Ceil(kBlocks, blocks), kMostParts);
  p.chunks = Ceil(chunks, std::max<int64_t>(std::min(parts, chunks), 1));
  p.parts = p.chunks == 0 ? 0 : Ceil(chunks, p.chunks);
  return p;
}

// Bytes of what a part amounts to, as in scans.cuh.
int64_t StateBytes(const Scan& scan) { return scan.is_float && scan.product ? 32 : 8; }

std::string KindOf(const Scan& scan) {
  const std::string what = scan.product ? "product_" : "sum_";
  if (!scan.is_float) return what + "integer";
  return what + (scan.bytes == 8 ? "f64" : "f32");
}

}  // namespace

int64_t ScanRoom(const Scan& scan) {
  const Params p = Shared(scan.lines);
  return p.parts <= 1 ? 0 : p.lead * p.trail * p.parts * StateBytes(scan);
}

void ScanLines(const Scan& scan, const Place& place, const void* x, void* y) {
  if (scan.lines.lead * scan.lines.extent * scan.lines.trail == 0) return;
  Params p = Shared(scan.lines);
  const int64_t room = ScanRoom(scan);
  if (static_cast<int64_t>(place.bytes) < room) {
    throw std::invalid_argument("expected a workspace of " + std::to_string(room) +
                                " bytes or more, got " + std::to_string(place.bytes));
  }
  p.x = x;
  p.y = y;
  p.sums = place.workspace;
  p.bytes = static_cast<int>(scan.bytes);
  p.exclusive = scan.exclusive ? 1 : 0;
  p.reverse = scan.reverse ? 1 : 0;
  const int64_t blocks = p.lead * p.line_tiles * p.parts;
  if (blocks > kMostExtent) throw std::invalid_argument("so many lines are not supported");
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  for (const char* step : {"sums", "lines"}) {
    if (p.parts == 1 && step[0] == 's') continue;
    const std::string name = std::string("scan_1_") + step + "_" + KindOf(scan);
    const std::string what = "kernel " + name;
    CheckDriver(LaunchKernel(context, name, {blocks, 1, 1, kThreads}, place.stream, &p),
                what.c_str());
  }
}

}  // namespace memc::cuda
