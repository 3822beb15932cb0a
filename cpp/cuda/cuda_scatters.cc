// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_scatters.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "cuda/cuda_launch.h"
#include "cuda/cuda_sorts.h"

namespace memc::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kPart = 64;
constexpr int64_t kMany = kPart * kPart;
constexpr int64_t kMostBlocks = 4096;  // Of kernels that go over elements in steps.
constexpr int64_t kRoom = 64;          // What the bytes of an array are a multiple of.

// The kernels' parameters, as in scatters.cuh.
struct Params {
  const void* indices = nullptr;
  void* keys = nullptr;
  const void* entries = nullptr;
  const void* start = nullptr;
  const void* updates = nullptr;
  void* result = nullptr;
  void* parts = nullptr;
  void* many = nullptr;
  uint64_t fill = 0;
  int64_t result_bytes = 0;
  int64_t count = 0, places = 1;
  int64_t lead = 1, row = 1;
  std::array<int64_t, kMostScatterAxes> from{}, to{};
  int axes = 0, axis = -1;
  int is_wide = 1;
  int words = 1;
  int reduction = 0, positions = 0;
  int number = 2, bytes = 4, result_number = 2, result_size = 4;
};

int64_t Rounded(int64_t bytes) { return Ceil(bytes, kRoom) * kRoom; }

bool IsFloat(const Scattered& s) { return s.number >= 2; }

// Parts of one place are combined by themselves, but for products of floats, which might leave the
// range where the whole does not.
bool HasParts(const Scattered& s) {
  return s.reduction != 0 && !(s.reduction == 2 && IsFloat(s)) && s.count >= kPart;
}

// Bytes of the workspace's arrays.
struct Rooms {
  int64_t first, second, parts, many;
};

Rooms RoomsOf(const Scattered& s) {
  const int64_t of_parts = HasParts(s) ? 8 * s.lead * s.row : 0;
  return {Rounded(8 * s.count), Rounded(SortsAtOnce(s.count) ? 4 * s.count : 8 * s.count),
          Rounded(of_parts * (s.count / kPart)), Rounded(of_parts * (s.count / kMany))};
}

uint64_t Repeated(uint64_t element, int64_t bytes) {
  uint64_t all = 0;
  for (int64_t at = 0; at < 8; at += bytes) all |= element << (8 * at);
  return all;
}

template <typename T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

// The bits of an element of the result that the reduction begins with.
uint64_t StartOf(const Scattered& s) {
  const uint64_t all = ~uint64_t{0} >> (64 - 8 * s.result_bytes);
  if (s.positions) return all;
  const bool is_brain = s.number == 3 && s.result_bytes == 2;
  if (s.reduction == 2) {
    if (!IsFloat(s)) return 1;
    if (s.result_bytes == 2) return is_brain ? 0x3f80 : 0x3c00;
    return s.result_bytes == 4 ? BitsOf(1.0F) : BitsOf(1.0);
  }
  if (s.reduction < 3) return 0;
  const uint64_t sign = uint64_t{1} << (8 * s.result_bytes - 1);
  const bool greatest = s.reduction == 3;
  if (s.number == 0) return greatest ? 0 : all;
  if (s.number == 1) return greatest ? sign : all ^ sign;
  const uint64_t infinity = s.result_bytes == 8   ? 0x7ff0000000000000
                            : s.result_bytes == 4 ? 0x7f800000
                            : is_brain            ? 0x7f80
                                                  : 0x7c00;
  return infinity | (greatest ? sign : 0);
}

Params ParamsOf(const Scattered& s) {
  if (s.to.size() > kMostScatterAxes || s.from.size() > kMostScatterAxes) {
    throw std::invalid_argument("expected at most 8 axes");
  }
  Params p;
  p.indices = s.indices;
  p.start = s.start;
  p.updates = s.updates;
  p.result = s.result;
  p.fill = Repeated(StartOf(s), s.result_bytes);
  p.count = s.count;
  p.lead = s.lead;
  p.row = s.row;
  std::copy(s.from.begin(), s.from.end(), p.from.begin());
  std::copy(s.to.begin(), s.to.end(), p.to.begin());
  for (const int64_t size : s.to) p.places *= size;
  p.result_bytes = s.lead * p.places * s.row * s.result_bytes;
  p.axes = static_cast<int>(s.to.size());
  p.axis = static_cast<int>(s.axis);
  p.is_wide = s.is_wide ? 1 : 0;
  p.words = IsAligned(s.result, 8) && IsAligned(s.start, 8) ? 1 : 0;
  p.reduction = static_cast<int>(s.reduction);
  p.positions = s.positions ? 1 : 0;
  p.number = static_cast<int>(s.number);
  p.bytes = static_cast<int>(s.bytes);
  p.result_number = s.bytes == s.result_bytes ? p.number : 2;
  p.result_size = static_cast<int>(s.result_bytes);
  return p;
}

struct Launcher {
  Context* context;
  Stream stream;
  Params* params;

  // Enough threads for so many elements, or `most` blocks.
  void operator()(const std::string& what, int64_t elements, int64_t most = kMostExtent) const {
    if (elements == 0) return;
    const int64_t needed = Ceil(elements, kThreads);
    if (needed > most && most == kMostExtent) {
      throw std::invalid_argument("so many updates are not supported");
    }
    const std::string name = "scatter_1_" + what;
    const std::string kernel = "kernel " + name;
    const Blocks blocks{std::min(needed, most), 1, 1, kThreads};
    CheckDriver(LaunchKernel(*context, name, blocks, stream, params), kernel.c_str());
  }
};

}  // namespace

int64_t ScatterRoom(const Scattered& s) {
  const Rooms rooms = RoomsOf(s);
  return rooms.first + rooms.second + rooms.parts + rooms.many;
}

void ScatterUpdates(const Scattered& s, const Place& place) {
  Params p = ParamsOf(s);
  if (p.result_bytes == 0) return;
  if (s.count > kMostExtent || p.places > kMostExtent) {
    throw std::invalid_argument("so many places are not supported");
  }
  const int64_t room = ScatterRoom(s);
  if (static_cast<int64_t>(place.bytes) < room) {
    throw std::invalid_argument("expected a workspace of " + std::to_string(room) +
                                " bytes or more, got " + std::to_string(place.bytes));
  }
  const Rooms rooms = RoomsOf(s);
  auto* first = static_cast<char*>(place.workspace);
  char* second = first + rooms.first;
  p.keys = second;  // The sort's first pass reads them, and the second one writes there.
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  const Launcher launch{&context, place.stream, &p};
  if (s.start != s.result) launch("begin", Ceil(p.result_bytes, p.words != 0 ? 8 : 1), kMostBlocks);
  if (s.count == 0 || s.row == 0) return;
  launch("keys", s.count, kMostBlocks);
  p.entries = SortKeys(&context, place.stream, second, s.count, {first, second});
  if (s.reduction == 0) return launch("put", s.lead * s.count * s.row);
  const std::string kind = IsFloat(s) ? "_float" : "_integer";
  if (HasParts(s)) {
    p.parts = second + rooms.second;
    p.many = second + rooms.second + rooms.parts;
    launch("parts" + kind, s.lead * (s.count / kPart) * s.row);
    launch("many" + kind, s.lead * (s.count / kMany) * s.row);
  }
  launch("places" + kind, s.lead * s.count * s.row);
}

}  // namespace memc::cuda
