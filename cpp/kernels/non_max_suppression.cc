// SPDX-License-Identifier: Apache-2.0
// Compiled without fused multiply-adds: the areas are rounded as the reference rounds them, since
// whether a box is chosen may depend on it.
#include "kernels/non_max_suppression.h"

#include <algorithm>
#include <array>

#include "kernels/cpu_kernels.h"
#include "kernels/parallel.h"

namespace memc {

namespace {

constexpr int64_t kRoom = 64;        // What the bytes for a class are a multiple of.
constexpr int64_t kStep = 64;        // Chosen boxes that are looked at together.
constexpr int64_t kBlock = 512;      // Candidates that are compared with the chosen ones together.
constexpr int64_t kParallel = 2048;  // Chosen boxes from which on several threads compare.

struct Box {
  float low0, low1, high0, high1, area;
};

// The chosen boxes, each number in an array of its own.
struct Chosen {
  float *low0, *low1, *high0, *high1, *area;

  Chosen(char* room, int64_t most)
      : low0(reinterpret_cast<float*>(room)),
        low1(low0 + most),
        high0(low1 + most),
        high1(high0 + most),
        area(high1 + most) {}

  void Set(int64_t i, const Box& box) const {
    low0[i] = box.low0;
    low1[i] = box.low1;
    high0[i] = box.high0;
    high1[i] = box.high1;
    area[i] = box.area;
  }
};

// A box with a nan has an area of 0 or nan, and overlaps none.
Box Read(const float* box, bool center) {
  std::array<float, 2> low;
  std::array<float, 2> high;
  for (int axis = 0; axis < 2; ++axis) {
    const float first = box[axis];
    const float second = box[axis + 2];
    const float half = second * 0.5F;
    low[axis] = center ? first - half : std::min(first, second);
    high[axis] = center ? first + half : std::max(first, second);
  }
  return {low[0], low[1], high[0], high[1], (high[0] - low[0]) * (high[1] - low[1])};
}

// Whether a box overlaps one of those chosen in [from, to) too much.
MEMC_CLONES bool Overlaps(const Chosen& chosen, int64_t from, int64_t to, const Box& box,
                          float threshold) {
  if (!(box.area > 0)) return false;
  for (int64_t start = from; start < to; start += kStep) {
    const int64_t end = std::min(to, start + kStep);
    int hits = 0;
    for (int64_t i = start; i < end; ++i) {
      const float side0 = std::min(chosen.high0[i], box.high0) - std::max(chosen.low0[i], box.low0);
      const float side1 = std::min(chosen.high1[i], box.high1) - std::max(chosen.low1[i], box.low1);
      const float shared = side0 * side1;
      const float all = chosen.area[i] + box.area - shared;
      const int counts = static_cast<int>(side0 > 0) & static_cast<int>(side1 > 0) &
                         static_cast<int>(shared > 0) & static_cast<int>(chosen.area[i] > 0) &
                         static_cast<int>(all > 0);
      hits |= counts & static_cast<int>(shared / all > threshold);
    }
    if (hits != 0) return true;
  }
  return false;
}

// One class: a block of candidates is compared with the boxes chosen before it, on several threads
// where those are many; then what is left, one after another, with those chosen of the block.
void Suppress(const SuppressionShape& s, const float* boxes, const int64_t* candidates,
              float threshold, int64_t* result, const Chosen& chosen) {
  int64_t count = 0;
  for (int64_t start = 0; start < s.candidates && count < s.most; start += kBlock) {
    const int64_t size = std::min(kBlock, s.candidates - start);
    const int64_t before = count;
    std::array<bool, kBlock> is_left;
    ParallelFor(before < kParallel, [&](int64_t task, int64_t tasks) {
      for (int64_t i = task; i < size; i += tasks) {
        const int64_t at = candidates[start + i];
        is_left[i] = at >= 0 && at < s.boxes &&
                     !Overlaps(chosen, 0, before, Read(boxes + 4 * at, s.center), threshold);
      }
    });
    for (int64_t i = 0; i < size && count < s.most; ++i) {
      if (!is_left[i]) continue;
      const int64_t at = candidates[start + i];
      const Box box = Read(boxes + 4 * at, s.center);
      if (Overlaps(chosen, before, count, box, threshold)) continue;
      chosen.Set(count, box);
      result[count++] = at;
    }
  }
  std::fill(result + count, result + s.most, int64_t{-1});
}

}  // namespace

int64_t SuppressionRoom(int64_t most) {
  const auto bytes = static_cast<int64_t>(sizeof(Box)) * most;
  return (bytes + kRoom - 1) / kRoom * kRoom;
}

void NonMaxSuppression(const SuppressionShape& s, const float* boxes, const int64_t* candidates,
                       float threshold, int64_t* result, char* workspace, int64_t workspace_bytes) {
  const int64_t need = SuppressionRoom(s.most);
  const int64_t count = s.batches * s.classes;
  const auto run = [&](int64_t n, char* room) {
    Suppress(s, boxes + n / s.classes * s.boxes * 4, candidates + n * s.candidates, threshold,
             result + n * s.most, Chosen(room, s.most));
  };
  const int64_t at_once = std::min({count, workspace_bytes / need, int64_t{Threads()}});
  if (at_once == 1) {
    for (int64_t n = 0; n < count; ++n) run(n, workspace);
    return;
  }
  ParallelFor(count * s.candidates * s.most < kSerialWork, [&](int64_t task, int64_t tasks) {
    const int64_t parts = std::min(tasks, at_once);
    if (task >= parts) return;
    for (int64_t n = task * count / parts; n < (task + 1) * count / parts; ++n) {
      run(n, workspace + task * need);
    }
  });
}

}  // namespace memc
