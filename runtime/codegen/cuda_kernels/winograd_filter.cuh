// SPDX-License-Identifier: Apache-2.0
// Minimal filtering of planes, or of volumes slice by slice, from transformed weights.
#ifndef MEMC_CUDA_KERNELS_WINOGRAD_FILTER_CUH_
#define MEMC_CUDA_KERNELS_WINOGRAD_FILTER_CUH_

#include "winograd.cuh"
#include "winograd_tile.cuh"

namespace {

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
  // How weights are copied: a row in shared memory is one channel of one part, kInner fours of
  // filters.
  static constexpr int kInner = kFilters / 4;
  static constexpr int kRowsAtOnce = kWorkers / kInner;
  static constexpr int kSide = kChannels * kTiles;
  static_assert(kFilterLanes * kTileLanes == 32, "");
  static_assert(kFirstResult + kParts * kResults <= kElements, "");
  static_assert(2 * kChannels * kTiles == kWorkers, "");
};

// Number `i` of the eight that a lane has of `kLanes`.
template <int kLanes>
__device__ __forceinline__ int Place(int lane, int i) {
  return i / 4 * 4 * kLanes + lane * 4 + i % 4;
}

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

// The part of a thread, and which of the filters and tiles of a block it has.
struct Lanes {
  int part, filter, tile;
};

// The parts of a block's results come together in shared memory, kRows filters at a time, and are
// stored.
template <typename W, typename P>
__device__ __forceinline__ void StoreResults(const P& p, float* shared, const Lanes& lanes,
                                             const ImageTile& tile, int first_filter,
                                             const float (&sums)[8][8]) {
  float* results = shared + W::kFirstResult;
  const int filters = !tile.exists                                ? 0
                      : tile.image * p.of_image.by < p.last_tiles ? p.filters
                                                                  : p.last_filters;
  const Slices slices = SlicesOf(p, tile.image);
  const long long place = slices.image * p.image_y +
                          (static_cast<long long>(slices.to) * p.height_y + tile.row) * p.width_y +
                          tile.column;
#pragma unroll
  for (int turn = 0; turn < 8 / W::kOfEight; ++turn) {
    if (turn > 0) SyncBlock();
#pragma unroll
    for (int i = 0; i < W::kOfEight; ++i) {
      float* to =
          results + lanes.part * W::kResults + (i * W::kFilterLanes + lanes.filter) * W::kRow;
#pragma unroll
      for (int j = 0; j < 8; j += 4) {
        const float (&four)[8] = sums[turn * W::kOfEight + i];
        *reinterpret_cast<float4*>(to + Place<W::kTileLanes>(lanes.tile, j)) =
            float4{four[j], four[j + 1], four[j + 2], four[j + 3]};
      }
    }
    SyncBlock();
#pragma unroll 1  // Unrolled, it takes registers that spill.
    for (int pass = 0; pass < W::kRows * W::kTiles / kWorkers; ++pass) {
      const int row = Thread() / W::kTiles + pass * (kWorkers / W::kTiles);
      const int filter =
          first_filter +
          Place<W::kFilterLanes>(row % W::kFilterLanes, turn * W::kOfEight + row / W::kFilterLanes);
      if (filter >= filters) continue;
      const float* from = results + row * W::kRow + Thread() % W::kTiles;
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
      const long long to =
          place + static_cast<long long>(filter) * DepthY(p) * p.height_y * p.width_y;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i == 1 && tile.row + 1 >= p.height_y) continue;
        StoreRow(p, to + i * p.width_y, tile.column + 1 < p.width_y, bias,
                 rows[i][0] + rows[i][1] + rows[i][2], rows[i][1] - rows[i][2] - rows[i][3]);
      }
    }
  }
}

// Adds the products of a stage to the sums of a thread.
template <typename W>
__device__ __forceinline__ void AddProducts(const float* from, int part, int filter_lane,
                                            int tile_lane, float (&sums)[8][8]) {
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
}

// Copies the weights of some channels to a stage; those of a part begin `of_part` elements behind
// those of the one before.
template <typename W>
__device__ __forceinline__ void CopyWeights(const Winograd& p, float* stage, const float* weights,
                                            long long of_part) {
#pragma unroll
  for (int turn = 0; turn < kParts * W::kChannels / W::kRowsAtOnce; ++turn) {
    CopyAsync16(stage + (Thread() + turn * kWorkers) * 4,
                weights + turn * (W::kRowsAtOnce / W::kChannels) * of_part, 16);
  }
  CommitCopies();
}

// A thread's lane of eight or of four. Neighbours share what they read of one side, and every other
// one of the other: shared memory serves 16 bytes for each of 16 such lanes at once, of others for
// eight.
template <int kLanes>
__device__ __forceinline__ int OwnLane() {
  const int lane = Thread() % 32;
  return kLanes == 8 ? lane / 2 % 8 : lane % 2 + lane / 16 * 2;
}

// What goes on from stage to stage of the images: of volumes, to the next tap's slice as well.
struct Stages {
  __device__ __forceinline__ Stages(const Winograd&, int) {}
  __device__ __forceinline__ bool Has(const Winograd&) const { return true; }
  __device__ __forceinline__ long long Next(const Winograd&, int) { return 0; }
};

__device__ __forceinline__ int OfTap(const Stages&, int channel) { return channel; }

struct VolumeStages {
  int slice;
  int channel = 0;  // Of a tap.

  __device__ __forceinline__ VolumeStages(const WinogradVolume& p, int image)
      : slice(SlicesOf(p, image).from) {}

  __device__ __forceinline__ bool Has(const WinogradVolume& p) const {
    return static_cast<unsigned>(slice) < static_cast<unsigned>(p.depth_x);
  }

  // How much farther the next stage is.
  __device__ __forceinline__ long long Next(const WinogradVolume& p, int channels) {
    channel += channels;
    if (channel < p.tap_channels) return 0;
    channel = 0;
    slice += p.dilation_d;
    return (p.dilation_d - static_cast<long long>(p.tap_channels) * p.depth_x) * p.height_x *
           p.width_x;
  }
};

__device__ __forceinline__ int OfTap(const VolumeStages& stages, int) { return stages.channel; }

template <typename S, typename P>
__device__ __forceinline__ void BeginImages(const P& p, const ImageTile& tile, int channel,
                                            int half, Half& images, S& stages) {
  images.Begin(p, tile, channel, half);
  stages = S(p, tile.image);
}

template <typename W, typename S, typename P>
__device__ __forceinline__ void Filter(const P& p, float* shared) {
  const int across = p.padded_filters / W::kFilters;
  const int blocks = (p.tiles + W::kTiles - 1) / W::kTiles * across;
  const int part = Thread() / 32;
  const int filter_lane = OwnLane<W::kFilterLanes>();
  const int tile_lane = OwnLane<W::kTileLanes>();

  const int half = Thread() / W::kSide;
  const int own_channel = Thread() / W::kTiles % W::kChannels;
  const long long plane = static_cast<long long>(DepthX(p)) * p.height_x * p.width_x;
  Half images;
  S stages(p, 0);
  const auto load = [&](int channel) {
    images.Load(p, OfTap(stages, channel) + own_channel < p.channels && stages.Has(p));
    images.from += W::kChannels * plane + stages.Next(p, W::kChannels);
  };
  const auto store = [&](int stage) {
    images.Store(
        shared + stage * W::kStage + W::kWeights + Thread() % W::kSide + half * 8 * W::kSide,
        W::kSide, half);
  };
  const int row = Thread() / W::kInner;
  const long long of_part = static_cast<long long>(p.padded_channels) * p.padded_filters;
  const float* weights = nullptr;
  const auto copy = [&](int stage) {
    CopyWeights<W>(p, shared + stage * W::kStage, weights, of_part);
    weights += W::kChannels * p.padded_filters;
  };
  const int steps = p.padded_channels / W::kChannels;

  const auto begin_weights = [&](int block) {
    const int first_filter = block % across * W::kFilters;
    weights = p.transformed + row / W::kChannels * of_part + row % W::kChannels * p.padded_filters +
              first_filter + Thread() % W::kInner * 4;
    copy(0);
  };
  const auto tile_of = [&](int block) {
    return ImageTile(p, block / across * W::kTiles + Thread() % W::kTiles);
  };
  const auto begin_images = [&](int block) {
    BeginImages(p, tile_of(block), own_channel, half, images, stages);
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
      AddProducts<W>(from, part, filter_lane, tile_lane, sums);
      if (step + 1 < steps) store(next);
      WaitForCopies<0>();
      SyncBlock();
    }
    const int following = block + Blocks();
    if (following < blocks) {
      if (W::kAhead) begin_weights(following);
      begin_images(following);
    }

    StoreResults<W>(p, shared, Lanes{part, filter_lane, tile_lane}, tile_of(block),
                    block % across * W::kFilters, sums);
    if (following >= blocks) break;
    block = following;
    SyncBlock();
  }
}

}  // namespace

#endif  // MEMC_CUDA_KERNELS_WINOGRAD_FILTER_CUH_
