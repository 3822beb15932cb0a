// SPDX-License-Identifier: Apache-2.0
// Convolutions of f32 images with kernels of 3 x 3 in steps of 1, and their gradients in the
// images, by minimal filtering F(2x2, 3x3) (Lavin and Gray 2016, Fast Algorithms for Convolutional
// Neural Networks, section 4.1): a tile of 2 x 2 results takes 16 products for each channel,
// not 36. Images are transformed on their way to shared memory and results on their way back. Only
// the transformed weights, 16/9 of the weights' bytes, lie in memory: in a workspace, or where the
// last results will be.
//
// `winograd_<version>_weights` transforms the weights, then `winograd_<version>_<filters>x<tiles>`
// computes the results, so many filters and tiles to a block. Those in whose place the weights were
// are then computed by `winograd_<version>_last` as a sum of nine products for each channel.
// `Winograd` is what cpp/cuda/cuda_winograd.cc gives them.
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
  int last_tiles;              // Where those of the last image begin,
  int last_filters;            // of which so many filters are computed by minimal filtering.
  Divisor of_image;            // Tiles.
  Divisor of_row;
  // Whether twos side by side begin at multiples of 8 bytes: in rows of x from the second element
  // of a tile on, with pad_w = 1, and in rows of y from its first one on.
  int pairs_x, pairs_y;
  int relu;
};

constexpr int kParts = 16;  // Of a tile of 4 x 4.
constexpr int kWorkers = 512;
constexpr int kFewWorkers = 256;  // Of the kernels that go before and after.

// Blocks of kFilters x kTiles, of which a warp has one part, and a thread eight filters by eight
// tiles: fours of both that lie kLanes * 4 apart. A stage has kChannels.
template <int kBlockFilters, int kBlockTiles, int kStageChannels>
struct Work {
  static constexpr int kFilters = kBlockFilters;
  static constexpr int kTiles = kBlockTiles;
  static constexpr int kChannels = kStageChannels;
  static constexpr int kFilterLanes = kFilters / 8;
  static constexpr int kTileLanes = kTiles / 8;
  static constexpr int kWeights = kParts * kChannels * kFilters;
  static constexpr int kStage = kWeights + kParts * kChannels * kTiles;
  static constexpr int kElements = 2 * kStage;
  // Whether the first weights of the next tiles are copied before the results are stored: measured,
  // faster where registers suffice.
  static constexpr bool kAhead = kFilters < kTiles;
  // In the end, as many filters at a time as shared memory holds, kOfEight of each thread's; rows
  // lie apart against conflicts of banks.
  static constexpr int kOfEight = kAhead ? 2 : 4;
  static constexpr int kRows = kOfEight * kFilterLanes;
  static constexpr int kRow = kTiles + 64 / kFilterLanes;
  static constexpr int kResults = kRows * kRow;
  static constexpr int kFirstResult = kAhead ? kWeights : 0;  // In shared memory.
  static_assert(kFilterLanes * kTileLanes == 32, "");
  static_assert(kFirstResult + kParts * kResults <= kElements, "");
  static_assert(2 * kChannels * kTiles == kWorkers, "");
};

// Number `i` of the eight that a lane has of `kLanes`.
template <int kLanes>
__device__ __forceinline__ int Place(int lane, int i) {
  return i / 4 * 4 * kLanes + lane * 4 + i % 4;
}

// Where a tile is.
struct ImageTile {
  int image, row, column;  // The last two of its first result.
  bool exists;

  __device__ __forceinline__ ImageTile(const Winograd& p, int tile) {
    exists = tile < p.tiles;
    image = Quotient(exists ? tile : 0, p.of_image);
    const int rest = (exists ? tile : 0) - image * p.of_image.by;
    const int down = Quotient(rest, p.of_row);
    row = 2 * down;
    column = 2 * (rest - down * p.of_row.by);
  }
};

// Half of a tile of one channel, transformed: the first eight parts (half = 0) or the others,
// either of which take three rows.
struct Half {
  const float* from;  // The first element of a row, which may be outside.
  unsigned inside;    // A bit for each of the 12 elements.
  float rows[3][6];   // With one more on both sides.

  __device__ __forceinline__ void Begin(const Winograd& p, const ImageTile& at, int channel,
                                        int half) {
    const int top = at.row - p.pad_h + half;
    const int left = at.column - p.pad_w;
    from = p.x + at.image * p.image_x +
           (static_cast<long long>(channel) * p.height_x + top) * p.width_x + left;
    inside = 0;
#pragma unroll
    for (int i = 0; i < 12; ++i) {
      const bool there = at.exists &&
                         static_cast<unsigned>(top + i / 4) < static_cast<unsigned>(p.height_x) &&
                         static_cast<unsigned>(left + i % 4) < static_cast<unsigned>(p.width_x);
      inside |= there ? 1u << i : 0u;
    }
  }

  __device__ __forceinline__ void Load(const Winograd& p, bool there) {
    const unsigned mask = there ? inside : 0;
    if (p.pairs_x) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
#pragma unroll
        for (int j = 0; j < 3; ++j) {
          const bool has = (mask >> (4 * i + (j == 0 ? 0 : j == 1 ? 1 : 3)) & 1) != 0;
          float2 two{0.0f, 0.0f};
          if (has) two = *reinterpret_cast<const float2*>(from + i * p.width_x + 2 * j - 1);
          rows[i][2 * j] = two.x;
          rows[i][2 * j + 1] = two.y;
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 12; ++i) {
        rows[i / 4][i % 4 + 1] = (mask >> i & 1) != 0 ? from[i / 4 * p.width_x + i % 4] : 0.0f;
      }
    }
  }

  // Part by part, `stride` elements apart.
  __device__ __forceinline__ void Store(float* to, int stride, int half) const {
    float two[2][4];
    if (half == 0) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        two[0][j] = rows[0][j + 1] - rows[2][j + 1];
        two[1][j] = rows[1][j + 1] + rows[2][j + 1];
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        two[0][j] = rows[1][j + 1] - rows[0][j + 1];
        two[1][j] = rows[0][j + 1] - rows[2][j + 1];
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
  if (both && p.pairs_y) {
    *reinterpret_cast<float2*>(p.y + to) = float2{first, second};
  } else {
    p.y[to] = first;
    if (both) p.y[to + 1] = second;
  }
}

template <typename W>
__device__ __forceinline__ void Filter(const Winograd& p, float* shared) {
  const int across = p.padded_filters / W::kFilters;
  const int blocks = (p.tiles + W::kTiles - 1) / W::kTiles * across;
  const int own_tile = Thread() % W::kTiles;
  const int lane = Thread() % 32;
  const int part = Thread() / 32;
  // Neighbours share what they read of one side, and every other one of the other: shared memory
  // serves 16 bytes for each of 16 such lanes at once, of others for eight.
  const int of_eight = lane / 2 % 8;
  const int of_four = lane % 2 + lane / 16 * 2;
  const int filter_lane = W::kFilterLanes == 8 ? of_eight : of_four;
  const int tile_lane = W::kFilterLanes == 8 ? of_four : of_eight;

  constexpr int kSide = W::kChannels * W::kTiles;
  const int half = Thread() / kSide;
  const int own_channel = Thread() / W::kTiles % W::kChannels;
  const long long plane = static_cast<long long>(p.height_x) * p.width_x;
  Half images;
  const auto load = [&](int channel) {
    images.Load(p, channel + own_channel < p.channels);
    images.from += W::kChannels * plane;
  };
  const auto store = [&](int stage) {
    images.Store(shared + stage * W::kStage + W::kWeights + Thread() % kSide + half * 8 * kSide,
                 kSide, half);
  };
  // A row of the weights in shared memory is one channel of one part.
  constexpr int kInner = W::kFilters / 4;
  constexpr int kRowsAtOnce = kWorkers / kInner;
  const int row = Thread() / kInner;
  const long long of_part = static_cast<long long>(p.padded_channels) * p.padded_filters;
  const float* weights = nullptr;
  const auto copy = [&](int stage) {
#pragma unroll
    for (int turn = 0; turn < kParts * W::kChannels / kRowsAtOnce; ++turn) {
      CopyAsync16(shared + stage * W::kStage + (Thread() + turn * kWorkers) * 4,
                  weights + turn * (kRowsAtOnce / W::kChannels) * of_part, 16);
    }
    weights += W::kChannels * p.padded_filters;
    CommitCopies();
  };
  const int steps = p.padded_channels / W::kChannels;

  const auto begin_weights = [&](int block) {
    const int first_filter = block % across * W::kFilters;
    weights = p.transformed + row / W::kChannels * of_part + row % W::kChannels * p.padded_filters +
              first_filter + Thread() % kInner * 4;
    copy(0);
  };
  const auto tile_of = [&](int block) {
    return ImageTile(p, block / across * W::kTiles + own_tile);
  };
  const auto begin_images = [&](int block) {
    images.Begin(p, tile_of(block), own_channel, half);
    load(0);
  };

  int block = Block();
  if (W::kAhead) begin_weights(block);
  begin_images(block);
  for (;;) {
    if (!W::kAhead) begin_weights(block);
    store(0);
    WaitForCopies<0>();
    SyncBlock();
    float sums[8][8] = {};
    for (int step = 0; step < steps; ++step) {
      const int next = (step + 1) % 2;
      if (step + 1 < steps) {
        copy(next);
        load((step + 1) * W::kChannels);
      }
      const float* from = shared + step % 2 * W::kStage;
#pragma unroll
      for (int channel = 0; channel < W::kChannels; ++channel) {
        const int row = part * W::kChannels + channel;
        float weights[8];
        float images[8];
        LoadEight<W::kFilterLanes>(weights, from + row * W::kFilters, filter_lane);
        LoadEight<W::kTileLanes>(images, from + W::kWeights + row * W::kTiles, tile_lane);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
          for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(weights[i], images[j], sums[i][j]);
        }
      }
      if (step + 1 < steps) store(next);
      WaitForCopies<0>();
      SyncBlock();
    }
    const int following = block + Blocks();
    if (following < blocks) {
      if (W::kAhead) begin_weights(following);
      begin_images(following);
    }

    // The parts of a result come together in shared memory, kRows filters at a time.
    const ImageTile tile = tile_of(block);
    const int first_filter = block % across * W::kFilters;
    float* results = shared + W::kFirstResult;
    const int filters = !tile.exists                                ? 0
                        : tile.image * p.of_image.by < p.last_tiles ? p.filters
                                                                    : p.last_filters;
    const long long place =
        tile.image * p.image_y + static_cast<long long>(tile.row) * p.width_y + tile.column;
#pragma unroll
    for (int turn = 0; turn < 8 / W::kOfEight; ++turn) {
      if (turn > 0) SyncBlock();
#pragma unroll
      for (int i = 0; i < W::kOfEight; ++i) {
        float* to = results + part * W::kResults + (i * W::kFilterLanes + filter_lane) * W::kRow;
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
          const float (&four)[8] = sums[turn * W::kOfEight + i];
          *reinterpret_cast<float4*>(to + Place<W::kTileLanes>(tile_lane, j)) =
              float4{four[j], four[j + 1], four[j + 2], four[j + 3]};
        }
      }
      SyncBlock();
#pragma unroll 1  // Unrolled, it takes registers that spill.
      for (int pass = 0; pass < W::kRows * W::kTiles / kWorkers; ++pass) {
        const int row = Thread() / W::kTiles + pass * (kWorkers / W::kTiles);
        const int filter =
            first_filter + Place<W::kFilterLanes>(row % W::kFilterLanes,
                                                  turn * W::kOfEight + row / W::kFilterLanes);
        if (filter >= filters) continue;
        const float* from = results + row * W::kRow + own_tile;
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
        const long long to = place + static_cast<long long>(filter) * p.height_y * p.width_y;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (i == 1 && tile.row + 1 >= p.height_y) continue;
          StoreRow(p, to + i * p.width_y, tile.column + 1 < p.width_y, bias,
                   rows[i][0] + rows[i][1] + rows[i][2], rows[i][1] - rows[i][2] - rows[i][3]);
        }
      }
    }
    if (following >= blocks) break;
    block = following;
    SyncBlock();
  }
}

// G g G' of one filter and channel.
__device__ __forceinline__ void TransformWeights(const Winograd& p) {
  const int at = Block() * kFewWorkers + Thread();
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

// Results of the last image: a block's, so many filters at as many positions.
constexpr int kLastFilters = 4;
constexpr int kLastPositions = 64;
constexpr int kLastChannels = 32;  // Whose weights are in shared memory at a time.
constexpr int kSlices = kFewWorkers / kLastPositions;  // Of the channels, one a thread.
constexpr int kLastElements = kLastChannels * 9 * kLastFilters;
static_assert(kSlices == kLastFilters && kFewWorkers * kLastFilters <= kLastElements, "");

__device__ __forceinline__ void Last(const Winograd& p, float* shared) {
  const int across = (p.filters - p.last_filters + kLastFilters - 1) / kLastFilters;
  const int first_filter = p.last_filters + Block() % across * kLastFilters;
  const int place = Thread() % kLastPositions;
  const int slice = Thread() / kLastPositions;
  const int position = Block() / across * kLastPositions + place;
  const int row = position / p.width_y;
  const int column = position - row * p.width_y;
  const int image = p.last_tiles / p.of_image.by;
  const float* x = p.x + image * p.image_x + static_cast<long long>(row - p.pad_h) * p.width_x +
                   column - p.pad_w;
  unsigned inside = 0;
#pragma unroll
  for (int i = 0; i < 9; ++i) {
    const bool there =
        static_cast<unsigned>(row - p.pad_h + i / 3) < static_cast<unsigned>(p.height_x) &&
        static_cast<unsigned>(column - p.pad_w + i % 3) < static_cast<unsigned>(p.width_x);
    inside |= there ? 1u << i : 0u;
  }
  float sums[kLastFilters] = {};
  for (int begin = 0; begin < p.channels; begin += kLastChannels) {
    for (int i = Thread(); i < kLastElements; i += kFewWorkers) {
      const int filter = first_filter + i % kLastFilters;
      const int channel = begin + i / kLastFilters / 9;
      const int tap = i / kLastFilters % 9;
      shared[i] =
          filter < p.filters && channel < p.channels
              ? p.w[filter * p.filter_w + channel * p.channel_w + (p.flipped ? 8 - tap : tap)]
              : 0.0f;
    }
    SyncBlock();
    for (int channel = slice; channel < kLastChannels; channel += kSlices) {
      if (begin + channel >= p.channels) break;
      const float* from = x + static_cast<long long>(begin + channel) * p.height_x * p.width_x;
#pragma unroll
      for (int i = 0; i < 9; ++i) {
        const float element = (inside >> i & 1) != 0 ? from[i / 3 * p.width_x + i % 3] : 0.0f;
        const float4 weights =
            *reinterpret_cast<const float4*>(shared + (channel * 9 + i) * kLastFilters);
        sums[0] = fmaf(weights.x, element, sums[0]);
        sums[1] = fmaf(weights.y, element, sums[1]);
        sums[2] = fmaf(weights.z, element, sums[2]);
        sums[3] = fmaf(weights.w, element, sums[3]);
      }
    }
    SyncBlock();
  }
#pragma unroll
  for (int i = 0; i < kLastFilters; ++i) shared[i * kFewWorkers + Thread()] = sums[i];
  SyncBlock();
  const int filter = first_filter + slice;
  if (filter >= p.filters || row >= p.height_y) return;
  float sum = p.bias == nullptr ? 0.0f : p.bias[filter];
#pragma unroll
  for (int i = 0; i < kSlices; ++i) sum += shared[slice * kFewWorkers + i * kLastPositions + place];
  const long long plane = static_cast<long long>(p.height_y) * p.width_y;
  StoreRow(p, image * p.image_y + filter * plane + position, false, 0.0f, sum, 0.0f);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kFewWorkers) winograd_3_weights(const Winograd p) {
  TransformWeights(p);
}

// The version is raised when what a kernel does or takes changes: a process finds kernels of
// several versions of memc by their names.
#define WINOGRAD(filters, tiles, channels)                             \
  extern "C" __global__ void __launch_bounds__(kWorkers, 1)            \
      winograd_3_##filters##x##tiles(const Winograd p) {               \
    GIVEN_FLOATS(shared, (Work<filters, tiles, channels>::kElements)); \
    Filter<Work<filters, tiles, channels>>(p, shared);                 \
  }

WINOGRAD(64, 32, 8)
WINOGRAD(32, 64, 4)

extern "C" __global__ void __launch_bounds__(kFewWorkers) winograd_3_last(const Winograd p) {
  SHARED_FLOATS(shared, kLastElements);
  Last(p, shared);
}
