// SPDX-License-Identifier: Apache-2.0
// Boxes in order without those that overlap one before them too much: tile by tile of candidates.
// A first kernel compares each of a tile with the boxes that were chosen before and with those
// before it in the tile, in many blocks; a second one goes through the tile, and what is left of it
// is chosen. Areas are rounded as the reference rounds them, since a choice may depend on it.
//
// The kernels are `suppress_<version>_<what>`; `Suppression` is what
// cpp/cuda/cuda_non_max_suppression.cc gives them.
#include "primitives.cuh"

namespace {

using Word = unsigned long long;

// Arrays have a part for each class of each batch.
struct Suppression {
  const float* boxes;           // [batches, boxes, 4]
  const long long* candidates;  // [batches, classes, candidates]
  const float* threshold;
  long long* result;      // [batches, classes, most]
  float* chosen;          // [5, most]: low and high corners, area.
  int* counts;            // Of chosen boxes.
  unsigned short* masks;  // [tile, kStripes]: which before it in the tile each one overlaps.
  unsigned char* left;    // [tile]: whether it names a box that overlaps no chosen one.
  long long classes, count, box_count, most;
  long long begin;  // The tile's first candidate.
  int tile;         // Candidates of a tile, a multiple of 32, at most kTile.
  int center, last;
};

namespace suppression {

constexpr int kTile = 512;
constexpr int kGroup = 32;    // Candidates of a block, one for each lane.
constexpr int kStripes = 32;  // Warps of a block, among which the other boxes are shared out.
constexpr int kBits = kTile / kStripes;
constexpr int kThreads = kGroup * kStripes;
constexpr int kChoosers = 256;
constexpr int kWords = kTile / 64;

// No multiply-adds.
#ifdef CUDA_KERNELS_HOST
__device__ __forceinline__ float Times(float a, float b) { return a * b; }
__device__ __forceinline__ float Plus(float a, float b) { return a + b; }
__device__ __forceinline__ float Over(float a, float b) { return a / b; }
#else
__device__ __forceinline__ float Times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float Plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float Over(float a, float b) { return __fdiv_rn(a, b); }
#endif

struct Box {
  float low0, low1, high0, high1, area;
};

__device__ __forceinline__ float Least(float a, float b) { return b < a ? b : a; }
__device__ __forceinline__ float Most(float a, float b) { return a < b ? b : a; }

// A box with a nan has an area of 0 or nan, and overlaps none.
__device__ __forceinline__ Box BoxOf(const Suppression& s, long long owner, long long at) {
  const float* box = s.boxes + (owner / s.classes * s.box_count + at) * 4;
  Box b;
  if (s.center != 0) {
    const float half0 = Times(box[2], 0.5F);
    const float half1 = Times(box[3], 0.5F);
    b.low0 = Plus(box[0], -half0);
    b.low1 = Plus(box[1], -half1);
    b.high0 = Plus(box[0], half0);
    b.high1 = Plus(box[1], half1);
  } else {
    b.low0 = Least(box[0], box[2]);
    b.low1 = Least(box[1], box[3]);
    b.high0 = Most(box[0], box[2]);
    b.high1 = Most(box[1], box[3]);
  }
  b.area = Times(Plus(b.high0, -b.low0), Plus(b.high1, -b.low1));
  return b;
}

__device__ __forceinline__ bool Overlap(const Box& a, const Box& b, float threshold) {
  const float side0 = Plus(Least(a.high0, b.high0), -Most(a.low0, b.low0));
  const float side1 = Plus(Least(a.high1, b.high1), -Most(a.low1, b.low1));
  const float shared = Times(side0, side1);
  const float all = Plus(Plus(a.area, b.area), -shared);
  return side0 > 0 && side1 > 0 && shared > 0 && a.area > 0 && b.area > 0 && all > 0 &&
         Over(shared, all) > threshold;
}

// The box that candidate `i` of the tile names, -1 for none.
__device__ __forceinline__ long long Named(const Suppression& s, long long owner, int i) {
  if (i >= s.tile || s.begin + i >= s.count) return -1;
  const long long at = s.candidates[owner * s.count + s.begin + i];
  return at < s.box_count ? at : -1;
}

__device__ __forceinline__ Box ChosenAt(const Suppression& s, long long owner, long long i) {
  const float* chosen = s.chosen + owner * 5 * s.most + i;
  return {chosen[0], chosen[s.most], chosen[2 * s.most], chosen[3 * s.most], chosen[4 * s.most]};
}

// Each lane has a candidate, and each warp a part of the other boxes.
__device__ __forceinline__ void Compare(const Suppression& s, int* hits) {
  const int groups = s.tile / kGroup;
  const long long owner = Block() / groups;
  const int lane = Thread() % kGroup;
  const int stripe = Thread() / kGroup;
  const int i = Block() % groups * kGroup + lane;
  const int before = s.begin == 0 ? 0 : s.counts[owner];
  if (before >= s.most) return;
  if (stripe == 0) hits[lane] = 0;
  SyncBlock();
  const long long at = Named(s, owner, i);
  const float threshold = *s.threshold;
  unsigned mask = 0;
  bool hit = false;
  if (at >= 0) {
    const Box own = BoxOf(s, owner, at);
    for (int j = stripe; j < before && !hit; j += kStripes) {
      hit = Overlap(ChosenAt(s, owner, j), own, threshold);
    }
    for (int bit = 0; bit < kBits && !hit; ++bit) {
      const int other = stripe * kBits + bit;
      if (other >= i) break;
      const long long named = Named(s, owner, other);
      if (named >= 0 && Overlap(BoxOf(s, owner, named), own, threshold)) mask |= 1U << bit;
    }
  }
  if (hit) hits[lane] = 1;
  s.masks[(owner * s.tile + i) * kStripes + stripe] = static_cast<unsigned short>(mask);
  SyncBlock();
  if (stripe == 0) {
    s.left[owner * s.tile + i] = static_cast<unsigned char>(at >= 0 && hits[lane] == 0 ? 1 : 0);
  }
}

// One candidate of the tile after the other, by one thread; says how many are chosen and which.
__device__ __forceinline__ int Resolve(const Suppression& s, long long room, const Word* masks,
                                       const unsigned char* left, short* found) {
  Word taken[kWords];
  for (int w = 0; w < kWords; ++w) taken[w] = 0;
  int count = 0;
  for (int i = 0; i < s.tile && count < room; ++i) {
    if (left[i] == 0) continue;
    Word overlapped = 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) overlapped |= masks[i * kWords + w] & taken[w];
    if (overlapped != 0) continue;
#pragma unroll
    for (int w = 0; w < kWords; ++w) taken[w] |= i / 64 == w ? Word{1} << i % 64 : 0;
    found[count++] = static_cast<short>(i);
  }
  return count;
}

// A block has a class.
__device__ __forceinline__ void Choose(const Suppression& s, Word* masks, unsigned char* left,
                                       short* found, int* number) {
  const long long owner = Block();
  const int before = s.begin == 0 ? 0 : s.counts[owner];
  const bool open = before < s.most;
  int count = 0;
  if (open) {
    const auto* from = reinterpret_cast<const Word*>(s.masks + owner * s.tile * kStripes);
    for (int i = Thread(); i < s.tile * kWords; i += kChoosers) masks[i] = from[i];
    for (int i = Thread(); i < s.tile; i += kChoosers) left[i] = s.left[owner * s.tile + i];
    SyncBlock();
    if (Thread() == 0) *number = Resolve(s, s.most - before, masks, left, found);
    SyncBlock();
    count = *number;
  }
  for (int k = Thread(); k < count; k += kChoosers) {
    const long long at = Named(s, owner, found[k]);
    const Box box = BoxOf(s, owner, at);
    float* chosen = s.chosen + owner * 5 * s.most + before + k;
    chosen[0] = box.low0;
    chosen[s.most] = box.low1;
    chosen[2 * s.most] = box.high0;
    chosen[3 * s.most] = box.high1;
    chosen[4 * s.most] = box.area;
    s.result[owner * s.most + before + k] = at;
  }
  for (long long k = before + count + Thread(); s.last != 0 && k < s.most; k += kChoosers) {
    s.result[owner * s.most + k] = -1;
  }
  if (Thread() == 0 && open) s.counts[owner] = before + count;
}

}  // namespace suppression

}  // namespace

extern "C" __global__ void __launch_bounds__(suppression::kThreads)
    suppress_1_compare(const Suppression s) {
  SHARED_FLOATS(shared, suppression::kGroup);
  suppression::Compare(s, reinterpret_cast<int*>(shared));
}

extern "C" __global__ void __launch_bounds__(suppression::kChoosers)
    suppress_1_choose(const Suppression s) {
  constexpr int kMasks = suppression::kTile * suppression::kWords * 2;
  constexpr int kLeft = suppression::kTile / 4;
  constexpr int kFound = suppression::kTile / 2;
  SHARED_FLOATS(shared, (kMasks + kLeft + kFound + 1));
  suppression::Choose(s, reinterpret_cast<Word*>(shared),
                      reinterpret_cast<unsigned char*>(shared + kMasks),
                      reinterpret_cast<short*>(shared + kMasks + kLeft),
                      reinterpret_cast<int*>(shared + kMasks + kLeft + kFound));
}
