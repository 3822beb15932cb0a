// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_non_max_suppression.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/cuda_launch.h"

namespace memc::cuda {

namespace {

constexpr int64_t kTile = 512;
constexpr int64_t kGroup = 32;
constexpr int64_t kStripes = 32;
constexpr int kThreads = 1024;
constexpr int kChoosers = 256;
constexpr int64_t kRoom = 64;  // What the bytes of an array are a multiple of.

// The kernels' parameters, as in suppression.cu.
struct Params {
  const float* boxes = nullptr;
  const int64_t* candidates = nullptr;
  const float* threshold = nullptr;
  int64_t* result = nullptr;
  void* chosen = nullptr;
  void* counts = nullptr;
  void* masks = nullptr;
  void* left = nullptr;
  int64_t classes = 1, count = 0, box_count = 0, most = 0;
  int64_t begin = 0;
  int tile = 0;
  int center = 0, last = 0;
};

int64_t Rounded(int64_t bytes) { return Ceil(bytes, kRoom) * kRoom; }

int64_t TileOf(const BoxCandidates& s) {
  return std::min(kTile, Ceil(s.candidates, kGroup) * kGroup);
}

// Bytes of the workspace's arrays.
struct Rooms {
  int64_t chosen, counts, masks, left;
};

Rooms RoomsOf(const BoxCandidates& s) {
  const int64_t owners = s.batches * s.classes;
  return {Rounded(20 * owners * s.most), Rounded(4 * owners),
          Rounded(2 * kStripes * owners * TileOf(s)), Rounded(owners * TileOf(s))};
}

}  // namespace

int64_t SuppressionRoom(const BoxCandidates& s) {
  if (s.batches * s.classes * s.most == 0 || s.candidates == 0) return 0;
  const Rooms rooms = RoomsOf(s);
  return rooms.chosen + rooms.counts + rooms.masks + rooms.left;
}

void SuppressBoxes(const BoxCandidates& s, const Place& place, const float* boxes,
                   const int64_t* candidates, const float* threshold, int64_t* result) {
  const int64_t owners = s.batches * s.classes;
  if (owners * s.most == 0 || s.candidates == 0) return;
  const int64_t room = SuppressionRoom(s);
  if (static_cast<int64_t>(place.bytes) < room) {
    throw std::invalid_argument("expected a workspace of " + std::to_string(room) +
                                " bytes or more, got " + std::to_string(place.bytes));
  }
  const Rooms rooms = RoomsOf(s);
  auto* workspace = static_cast<char*>(place.workspace);
  Params p;
  p.boxes = boxes;
  p.candidates = candidates;
  p.threshold = threshold;
  p.result = result;
  p.chosen = workspace;
  p.counts = workspace + rooms.chosen;
  p.masks = workspace + rooms.chosen + rooms.counts;
  p.left = workspace + rooms.chosen + rooms.counts + rooms.masks;
  p.classes = s.classes;
  p.count = s.candidates;
  p.box_count = s.boxes;
  p.most = s.most;
  p.tile = static_cast<int>(TileOf(s));
  p.center = s.center ? 1 : 0;
  const int64_t blocks = owners * p.tile / kGroup;
  if (blocks > kMostExtent || s.most > kMostExtent) {
    throw std::invalid_argument("so many boxes are not supported");
  }
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  for (; p.begin < s.candidates; p.begin += p.tile) {
    p.last = p.begin + p.tile >= s.candidates ? 1 : 0;
    CheckDriver(
        LaunchKernel(context, "suppress_1_compare", {blocks, 1, 1, kThreads}, place.stream, &p),
        "kernel suppress_1_compare");
    CheckDriver(
        LaunchKernel(context, "suppress_1_choose", {owners, 1, 1, kChoosers}, place.stream, &p),
        "kernel suppress_1_choose");
  }
}

}  // namespace memc::cuda
