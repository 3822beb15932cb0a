// SPDX-License-Identifier: Apache-2.0
// Convolutions of f32 images with kernels of 3 x 3 in steps of 1, and their gradients in the
// images, by minimal filtering F(2x2, 3x3) (Lavin and Gray 2016, Fast Algorithms for Convolutional
// Neural Networks, section 4.1): a tile of 2 x 2 results takes 16 products for each channel,
// not 36. Images are transformed on their way to shared memory and results on their way back. Only
// the transformed weights, 16/9 of the weights' bytes, lie in memory: in a workspace, or where the
// last results will be, which are then left to another kernel.
//
// `winograd_<version>_weights` transforms the weights, then `winograd_<version>_<filters>x<tiles>`
// computes the results, so many filters and tiles to a block. `Winograd` is what
// cpp/src/cuda_winograd.cc gives them.
#include "divisor.cuh"
#include "primitives.cuh"

namespace {

struct Winograd {
  const float* x;
  const float* w;
  float* transformed;     // Weights, [16][channels][filters], with zeros up to the padded extents.
  const float* bias;      // Null for none, as the next one.
  const float* residual;  // May be y.
  float* y;
  int filters, channels;  // Of y and of x.
  int padded_filters, padded_channels;
  long long filter_w, channel_w;  // Elements of w from one filter or channel to the next.
  int flipped;                    // Whether the kernels are read backwards.
  int height_x, width_x, height_y, width_y;
  int pad_h, pad_w;
  long long image_x, image_y;  // Elements of one image.
  int tiles;                   // Of all images.
  int last_tiles;              // Where those of the last image begin, of which only
  int last_filters;            // so many filters are computed.
  Divisor of_image;            // Tiles.
  Divisor of_row;
  int pairs;  // Whether two results side by side begin at multiples of 8 bytes.
  int relu;
};

constexpr int kParts = 16;    // Of a tile of 4 x 4.
constexpr int kChannels = 4;  // Of a stage.
constexpr int kWorkers = 256;

// Blocks of kFilters x kTiles, of which a warp has two parts, and a thread eight filters by eight
// tiles of each: fours of both that lie kLanes * 4 apart.
template <int kBlockFilters, int kBlockTiles>
struct Work {
  static constexpr int kFilters = kBlockFilters;
  static constexpr int kTiles = kBlockTiles;
  static constexpr int kFilterLanes = kFilters / 8;
  static constexpr int kTileLanes = kTiles / 8;
  static constexpr int kWeights = kParts * kChannels * kFilters;
  static constexpr int kStage = kWeights + kParts * kChannels * kTiles;
  static constexpr int kElements = 2 * kStage;
  // In the end, as many filters at a time as shared memory holds; rows lie apart against conflicts
  // of banks.
  static constexpr int kRows = 2 * kFilterLanes;
  static constexpr int kRow = kTiles + 4;
  static constexpr int kResults = kRows * kRow;
  static_assert(kFilterLanes * kTileLanes == 32 && kParts * kResults <= kElements, "");
};

// Number `i` of the eight that a lane has of `kLanes`.
template <int kLanes>
__device__ __forceinline__ int Place(int lane, int i) {
  return i / 4 * 4 * kLanes + lane * 4 + i % 4;
}

// One thread's tile of the images.
struct Position {
  const float* x;                  // Its first element, which may be outside.
  unsigned inside;                 // A bit for each of its 16 elements.
  long long y;                     // Its first result, from the first filter of y on.
  bool second_row, second_column;  // Of the results.
  int filters;                     // Whose results are stored; none of a tile that does not exist.

  __device__ __forceinline__ Position(const Winograd& p, int tile) {
    const bool exists = tile < p.tiles;
    filters = !exists ? 0 : tile < p.last_tiles ? p.filters : p.last_filters;
    const int image = Quotient(exists ? tile : 0, p.of_image);
    const int rest = (exists ? tile : 0) - image * p.of_image.by;
    const int down = Quotient(rest, p.of_row);
    const int row = 2 * down;
    const int column = 2 * (rest - down * p.of_row.by);
    x = p.x + image * p.image_x + static_cast<long long>(row - p.pad_h) * p.width_x + column -
        p.pad_w;
    inside = 0;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int h = row - p.pad_h + i / 4;
      const int w = column - p.pad_w + i % 4;
      const bool there = exists && static_cast<unsigned>(h) < static_cast<unsigned>(p.height_x) &&
                         static_cast<unsigned>(w) < static_cast<unsigned>(p.width_x);
      inside |= there ? 1u << i : 0u;
    }
    y = image * p.image_y + static_cast<long long>(row) * p.width_y + column;
    second_row = row + 1 < p.height_y;
    second_column = column + 1 < p.width_y;
  }
};

// Half of a tile of one channel, transformed: kHalf = 0 the first eight parts, 1 the others, either
// of which take three rows.
struct Half {
  float rows[3][4];

  __device__ __forceinline__ void Load(const Winograd& p, const Position& at, int channel,
                                       int half) {
    const bool there = channel < p.channels;
    const float* from =
        at.x + static_cast<long long>(channel) * p.height_x * p.width_x + half * p.width_x;
    const unsigned inside = at.inside >> 4 * half;
#pragma unroll
    for (int i = 0; i < 12; ++i) {
      rows[i / 4][i % 4] = there && (inside >> i & 1) != 0 ? from[i / 4 * p.width_x + i % 4] : 0.0f;
    }
  }

  // Part by part, `stride` elements apart.
  __device__ __forceinline__ void Store(float* to, int stride, int half) const {
    float two[2][4];
    if (half == 0) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        two[0][j] = rows[0][j] - rows[2][j];
        two[1][j] = rows[1][j] + rows[2][j];
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        two[0][j] = rows[1][j] - rows[0][j];
        two[1][j] = rows[0][j] - rows[2][j];
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[(i * 4 + 0) * stride] = two[i][0] - two[i][2];
      to[(i * 4 + 1) * stride] = two[i][1] + two[i][2];
      to[(i * 4 + 2) * stride] = two[i][2] - two[i][1];
      to[(i * 4 + 3) * stride] = two[i][1] - two[i][3];
    }
  }
};

// Eight elements of a thread, of those side by side for a warp's lanes.
template <int kLanes>
__device__ __forceinline__ void LoadEight(float (&to)[8], const float* shared, int lane) {
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(shared + Place<kLanes>(lane, i));
    to[i] = four.x;
    to[i + 1] = four.y;
    to[i + 2] = four.z;
    to[i + 3] = four.w;
  }
}

// Two results side by side, or one.
__device__ __forceinline__ void StoreRow(const Winograd& p, long long to, bool both, float bias,
                                         float first, float second) {
  first += bias;
  second += bias;
  if (p.residual != nullptr) {
    first += p.residual[to];
    if (both) second += p.residual[to + 1];
  }
  if (p.relu) {
    first = first < 0 ? 0.0f : first;
    second = second < 0 ? 0.0f : second;
  }
  if (both && p.pairs) {
    *reinterpret_cast<float2*>(p.y + to) = float2{first, second};
  } else {
    p.y[to] = first;
    if (both) p.y[to + 1] = second;
  }
}

template <typename W>
__device__ __forceinline__ void Filter(const Winograd& p, float* shared) {
  constexpr int kTurns = 2 * kChannels * W::kTiles / kWorkers;
  const int across = p.padded_filters / W::kFilters;
  const int first_filter = Block() % across * W::kFilters;
  const int own_tile = Thread() % W::kTiles;
  const Position position(p, Block() / across * W::kTiles + own_tile);
  const int lane = Thread() % 32;
  const int part = Thread() / 32 * 2;  // The first of two.
  // Neighbours share what they read of one side, and every other one of the other: shared memory
  // serves 16 bytes for each of 16 such lanes at once, of others for eight.
  const int of_eight = lane / 2 % 8;
  const int of_four = lane % 2 + lane / 16 * 2;
  const int filter_lane = W::kFilterLanes == 8 ? of_eight : of_four;
  const int tile_lane = W::kFilterLanes == 8 ? of_four : of_eight;

  // A thread has one half of its tile, or both, of one channel of a stage.
  constexpr int kSide = kChannels * W::kTiles;
  const int half = kTurns == 2 ? 0 : Thread() / kSide;
  Half halves[kTurns];
  const auto load = [&](int channel) {
    const int own = channel + Thread() / W::kTiles % kChannels;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) halves[turn].Load(p, position, own, half + turn);
  };
  const auto store = [&](int stage) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      float* to = shared + stage * W::kStage + W::kWeights + Thread() % kSide;
      halves[turn].Store(to + (half + turn) * 8 * kSide, kSide, half + turn);
    }
  };
  // A row of the weights in shared memory is one channel of one part.
  constexpr int kInner = W::kFilters / 4;
  constexpr int kRowsAtOnce = kWorkers / kInner;
  const int row = Thread() / kInner;
  const long long of_part = static_cast<long long>(p.padded_channels) * p.padded_filters;
  const float* weights = p.transformed + row / kChannels * of_part + first_filter +
                         row % kChannels * p.padded_filters + Thread() % kInner * 4;
  const auto copy = [&](int stage, int channel) {
    const float* from = weights + static_cast<long long>(channel) * p.padded_filters;
#pragma unroll
    for (int turn = 0; turn < kParts * kChannels / kRowsAtOnce; ++turn) {
      CopyAsync16(shared + stage * W::kStage + (Thread() + turn * kWorkers) * 4,
                  from + turn * (kRowsAtOnce / kChannels) * of_part, 16);
    }
    CommitCopies();
  };

  float sums[2][8][8] = {};
  copy(0, 0);
  load(0);
  store(0);
  WaitForCopies<0>();
  SyncBlock();
  const int steps = p.padded_channels / kChannels;
  for (int step = 0; step < steps; ++step) {
    const int next = (step + 1) % 2;
    if (step + 1 < steps) {
      copy(next, (step + 1) * kChannels);
      load((step + 1) * kChannels);
    }
    const float* from = shared + step % 2 * W::kStage;
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel) {
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        const int row = (part + two) * kChannels + channel;
        float weights[8];
        float images[8];
        LoadEight<W::kFilterLanes>(weights, from + row * W::kFilters, filter_lane);
        LoadEight<W::kTileLanes>(images, from + W::kWeights + row * W::kTiles, tile_lane);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            sums[two][i][j] = fmaf(weights[i], images[j], sums[two][i][j]);
          }
        }
      }
    }
    if (step + 1 < steps) store(next);
    WaitForCopies<0>();
    SyncBlock();
  }

  // The parts of a result come together in shared memory, kRows filters at a time: of each lane's
  // eight, two.
#pragma unroll
  for (int turn = 0; turn < 4; ++turn) {
    if (turn > 0) SyncBlock();
#pragma unroll
    for (int two = 0; two < 2; ++two) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float* to = shared + (part + two) * W::kResults + (filter_lane * 2 + i) * W::kRow;
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
          const float (&four)[8] = sums[two][turn * 2 + i];
          *reinterpret_cast<float4*>(to + Place<W::kTileLanes>(tile_lane, j)) =
              float4{four[j], four[j + 1], four[j + 2], four[j + 3]};
        }
      }
    }
    SyncBlock();
    for (int row = Thread() / W::kTiles; row < W::kRows; row += kWorkers / W::kTiles) {
      const int filter = first_filter + Place<W::kFilterLanes>(row / 2, turn * 2 + row % 2);
      if (filter >= position.filters) continue;
      const float* from = shared + row * W::kRow + own_tile;
      float rows[2][4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float m[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) m[i] = from[(i * 4 + j) * W::kResults];
        rows[0][j] = m[0] + m[1] + m[2];
        rows[1][j] = m[1] - m[2] - m[3];
      }
      const float bias = p.bias == nullptr ? 0.0f : p.bias[filter];
      const long long to = position.y + static_cast<long long>(filter) * p.height_y * p.width_y;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i == 1 && !position.second_row) continue;
        StoreRow(p, to + i * p.width_y, position.second_column, bias,
                 rows[i][0] + rows[i][1] + rows[i][2], rows[i][1] - rows[i][2] - rows[i][3]);
      }
    }
  }
}

// G g G' of one filter and channel.
__device__ __forceinline__ void TransformWeights(const Winograd& p) {
  const int at = Block() * kWorkers + Thread();
  const int filter = at % p.padded_filters;
  const int channel = at / p.padded_filters;
  if (channel >= p.padded_channels) return;
  float g[9] = {};
  if (filter < p.filters && channel < p.channels) {
    const float* from = p.w + filter * p.filter_w + channel * p.channel_w;
#pragma unroll
    for (int i = 0; i < 9; ++i) g[i] = from[p.flipped ? 8 - i : i];
  }
  float rows[4][3];
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    rows[0][j] = g[j];
    rows[1][j] = 0.5f * (g[j] + g[3 + j] + g[6 + j]);
    rows[2][j] = 0.5f * (g[j] - g[3 + j] + g[6 + j]);
    rows[3][j] = g[6 + j];
  }
  float* to = p.transformed + static_cast<long long>(channel) * p.padded_filters + filter;
  const long long part = static_cast<long long>(p.padded_channels) * p.padded_filters;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[(i * 4 + 0) * part] = rows[i][0];
    to[(i * 4 + 1) * part] = 0.5f * (rows[i][0] + rows[i][1] + rows[i][2]);
    to[(i * 4 + 2) * part] = 0.5f * (rows[i][0] - rows[i][1] + rows[i][2]);
    to[(i * 4 + 3) * part] = rows[i][2];
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kWorkers) winograd_2_weights(const Winograd p) {
  TransformWeights(p);
}

#define WINOGRAD(filters, tiles)                              \
  extern "C" __global__ void __launch_bounds__(kWorkers, 1)   \
      winograd_2_##filters##x##tiles(const Winograd p) {      \
    SHARED_FLOATS(shared, (Work<filters, tiles>::kElements)); \
    Filter<Work<filters, tiles>>(p, shared);                  \
  }

WINOGRAD(64, 32)
WINOGRAD(32, 64)
