// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_sorts.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kEach = 8;
constexpr int64_t kTile = kThreads * kEach;
constexpr int64_t kInvertBlocks = 4096;
constexpr int64_t kRoom = 64;  // What the bytes for lines are a multiple of.

// The kernels' parameters, as in sorts.cuh.
struct Params {
  const void* x = nullptr;
  const void* from = nullptr;
  void* to = nullptr;
  void* values = nullptr;
  int64_t* result = nullptr;
  uint64_t infinity = 0;
  int64_t first = 0, lines = 0;
  int64_t extent = 0, count = 0, trail = 1;
  int64_t total = 0, total_to = 0, run = 0, run_to = 0;
  int64_t tiles = 1;
  int segment = kTile;
  int bytes = 4;
  int number = 0;
  int descending = 0;
};

// A pass over lines of `total` entries in sorted runs of `run`, none before the first pass, to
// `total_to` in runs of `run_to`.
struct Pass {
  int64_t total, total_to, run, run_to;
  bool merges;
  bool last;
};

// The pass after which no more than the first `count` entries of each run are left.
Pass PassOf(int64_t total, int64_t run, int64_t count) {
  Pass p{total, 0, run, 0, run > kTile / 4, false};
  const int64_t whole = p.merges ? 2 * run : kTile;  // Entries that become a run.
  const int64_t runs = Ceil(total, whole);
  p.run_to = std::min(whole, count);
  p.total_to = (runs - 1) * p.run_to + std::min(total - (runs - 1) * whole, p.run_to);
  p.last = runs == 1;
  return p;
}

int64_t EntryBytes(int64_t bytes) { return bytes == 8 ? 4 : 8; }

// Entries of a line that the first and the second pass make for the next one.
std::array<int64_t, 2> Totals(int64_t extent, int64_t count) {
  std::array<int64_t, 2> found{};
  const Pass first = PassOf(extent, 0, count);
  if (first.last) return found;
  found[0] = first.total_to;
  const Pass second = PassOf(first.total_to, first.run_to, count);
  if (!second.last) found[1] = second.total_to;
  return found;
}

int64_t Rounded(int64_t bytes) { return Ceil(bytes, kRoom) * kRoom; }

uint64_t InfinityOf(const Sorted& x) {
  if (x.bytes == 8) return 0x7ff0000000000000;
  if (x.bytes == 4) return 0x7f800000;
  return x.number == 3 ? 0x7f80 : 0x7c00;
}

void Launch(Context& context, const std::string& name, int64_t blocks, Stream stream, Params* p) {
  if (blocks > kMostExtent) throw std::invalid_argument("so many lines are not supported");
  const std::string what = "kernel " + name;
  CheckDriver(LaunchKernel(context, name, {blocks, 1, 1, kThreads}, stream, p), what.c_str());
}

// Sorts p->lines lines with two arrays of entries between the passes. If the entries are `kept`,
// the last pass makes them too, and no results; returns where they are.
char* SortSome(Context& context, Stream stream, const std::array<char*, 2>& arrays, bool kept,
               Params* p) {
  const std::string keys = p->bytes == 8 ? "wide" : "packed";
  int64_t total = p->extent;
  int64_t run = 0;
  p->from = nullptr;
  for (int number = 0;; ++number) {
    const Pass pass = PassOf(total, run, p->count);
    p->total = total;
    p->total_to = pass.total_to;
    p->run = run;
    p->run_to = pass.run_to;
    char* to = arrays.at(number % 2);
    p->to = pass.last && !kept ? nullptr : to;
    p->segment = static_cast<int>(kEach);
    while (p->segment < std::min(total, kTile)) p->segment *= 2;
    int64_t blocks = 0;
    if (pass.merges) {
      p->tiles = Ceil(total, 2 * run) * Ceil(pass.run_to, kTile);
      blocks = p->lines * p->tiles;
    } else {
      p->tiles = Ceil(total, kTile);
      const int64_t several = kTile / p->segment;
      blocks = several > 1 ? Ceil(p->lines, several) : p->lines * p->tiles;
    }
    Launch(context, (pass.merges ? "sort_1_merge_" : "sort_1_tiles_") + keys, blocks, stream, p);
    if (pass.last) return to;
    p->from = p->to;
    total = pass.total_to;
    run = pass.run_to;
  }
}

// Whether the array that pass 0 makes is the one that the last pass reads.
bool LastReadsFirst(int64_t extent, int64_t count) {
  int64_t total = extent;
  int64_t run = 0;
  int passes = 0;
  for (bool last = false; !last; ++passes) {
    const Pass pass = PassOf(total, run, count);
    last = pass.last;
    total = pass.total_to;
    run = pass.run_to;
  }
  return passes % 2 == 0;
}

}  // namespace

int64_t SortRoom(const Lines& lines, int64_t count, int64_t bytes) {
  if (lines.extent == 0 || count == 0) return 0;
  const std::array<int64_t, 2> totals = Totals(lines.extent, count);
  const int64_t own = EntryBytes(bytes) * lines.trail;
  return Rounded(own * totals[0]) + (count == lines.extent ? 0 : Rounded(own * totals[1]));
}

void SortLines(const Lines& lines, int64_t count, const Place& place, const Sorted& x, void* values,
               int64_t* result) {
  if (lines.lead * lines.extent * lines.trail == 0 || count == 0) return;
  if (lines.extent > kMostExtent) throw std::invalid_argument("the line is too long");
  const int64_t room = SortRoom(lines, count, x.bytes);
  const int64_t units =
      room == 0 ? lines.lead : std::min(lines.lead, static_cast<int64_t>(place.bytes) / room);
  if (units == 0) {
    throw std::invalid_argument("expected a workspace of " + std::to_string(room) +
                                " bytes or more, got " + std::to_string(place.bytes));
  }
  Params p;
  p.x = x.data;
  p.values = values;
  p.result = result;
  p.infinity = InfinityOf(x);
  p.extent = lines.extent;
  p.count = count;
  p.trail = lines.trail;
  p.bytes = static_cast<int>(x.bytes);
  p.number = static_cast<int>(x.number);
  p.descending = x.descending ? 1 : 0;
  const bool whole = count == lines.extent;
  const int64_t own = EntryBytes(x.bytes) * lines.trail;
  const int64_t first_bytes = Rounded(own * Totals(lines.extent, count)[0] * units);
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  for (int64_t unit = 0; unit < lines.lead; unit += units) {
    p.first = unit * lines.trail;
    p.lines = std::min(units, lines.lead - unit) * lines.trail;
    auto* workspace = static_cast<char*>(place.workspace);
    std::array<char*, 2> arrays{workspace, workspace + first_bytes};
    if (whole) {
      // What the last pass reads may not be where it writes.
      auto* results = reinterpret_cast<char*>(result + p.first * lines.extent);
      arrays = LastReadsFirst(lines.extent, count) ? std::array<char*, 2>{workspace, results}
                                                   : std::array<char*, 2>{results, workspace};
    }
    SortSome(context, place.stream, arrays, false, &p);
  }
}

bool SortsAtOnce(int64_t count) { return count <= kTile; }

const void* SortKeys(Context* context, Stream stream, const void* keys, int64_t count,
                     const std::array<char*, 2>& arrays) {
  Params p;
  p.x = keys;
  p.lines = 1;
  p.extent = count;
  p.count = count;
  return SortSome(*context, stream, arrays, true, &p);
}

void InvertLines(const Lines& lines, int64_t count, const Place& place, const int64_t* ranks,
                 int64_t* positions) {
  Params p;
  p.x = ranks;
  p.result = positions;
  p.lines = lines.lead * lines.trail;
  p.extent = lines.extent;
  p.count = count;
  p.trail = lines.trail;
  if (p.lines * p.extent == 0 || count == 0) return;
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const int64_t blocks = std::min(Ceil(p.lines * p.extent, kThreads), kInvertBlocks);
  Launch(context, "sort_1_invert", blocks, place.stream, &p);
}

}  // namespace memc::cuda
