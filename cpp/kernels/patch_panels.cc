// SPDX-License-Identifier: Apache-2.0
// A panel's 16 pixels lie in one or more rows of the image; under one tap, each of those is a run
// of neighbours (of every second one, with stride 2) in every channel's plane:
//
//   lanes   0 1 2 3 4 5 | 6 7 8 ...
//   pixels  the end of  | the begin-
//           one row     | ning of the next
//
// So the runs are found once for all channels, as pieces of vectors under masks: where no lane of a
// mask is set lies the padding.
#include "kernels/patch_panels.h"

#include <algorithm>

#include "kernels/panel_product.h"
#include "kernels/patches.h"

namespace memc {

namespace {

constexpr int64_t kLanes = 8;
constexpr int64_t kVectors = kPanelColumns / kLanes;

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));
typedef int32_t Mask __attribute__((vector_size(kLanes * sizeof(int32_t)), aligned(4)));

// Lanes of a vector that come from one row of the image.
struct Piece {
  int64_t
      offset;  // Of lane 0's element in the channel's plane; may lie outside, where it is masked.
  Mask mask;
};

// What a panel takes from every channel's plane under one tap.
struct Pieces {
  int64_t count[kVectors];
  Piece pieces[kVectors][kLanes];
};

// A tap, and the columns of the result for which it lies inside the image.
struct Tap {
  int64_t row, column;  // Of the image, for the result's pixel (0, 0).
  int64_t low, high;
};

Tap FindTap(const Conv2dShape& s, int64_t tap) {
  Tap found;
  found.row = tap / s.kernel_w * s.dilation_h - s.pad_top;
  found.column = tap % s.kernel_w * s.dilation_w - s.pad_left;
  const auto first_at = [&](int64_t column) {
    return std::clamp<int64_t>(column <= 0 ? 0 : CeilDiv(column, s.stride_w), 0, s.out_w);
  };
  found.low = first_at(-found.column);
  found.high = std::max(found.low, first_at(s.in_w - found.column));
  return found;
}

// For the `count` pixels from (row, column) of the result on.
MEMC_CLONES void FindPieces(const Conv2dShape& s, const Tap& tap, int64_t row, int64_t column,
                            int64_t count, Pieces* found) {
  for (int64_t& n : found->count) n = 0;
  const Mask lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int64_t lane = 0; lane < count; ++row, column = 0) {
    const int64_t stop = std::min(s.out_w, column + count - lane);
    const int64_t y = row * s.stride_h + tap.row;
    const int64_t low = std::clamp(tap.low, column, stop) - column + lane;
    const int64_t high = std::clamp(tap.high, column, stop) - column + lane;
    const int64_t offset = y * s.in_w + (column - lane) * s.stride_w + tap.column;
    lane += stop - column;
    if (y < 0 || y >= s.in_h) continue;
    for (int64_t v = low / kLanes; v * kLanes < high; ++v) {
      if (low == high) break;
      const auto begin = static_cast<int32_t>(low - v * kLanes);
      const auto end = static_cast<int32_t>(high - v * kLanes);
      found->pieces[v][found->count[v]++] = {offset + v * kLanes * s.stride_w,
                                             (lanes >= begin) & (lanes < end)};
    }
  }
}

// By reference: what vectors look like in a call depends on the instruction set.
inline __attribute__((always_inline)) void Insert(Vector& sum, const Vector& v, const Mask& mask) {
  sum = reinterpret_cast<Vector>(reinterpret_cast<Mask>(sum) | (reinterpret_cast<Mask>(v) & mask));
}

// Reads 8 elements, `stride` apart (1 or 2), at `from`.
inline __attribute__((always_inline)) void Read(const float* from, int64_t stride, Vector& v) {
  const Vector* wide = reinterpret_cast<const Vector*>(from);
  v = stride == 1 ? wide[0] : __builtin_shufflevector(wide[0], wide[1], 0, 2, 4, 6, 8, 10, 12, 14);
}

// The planes that a panel's elements come from under one tap, and the rows that they go to.
struct Rows {
  const float* in;
  int64_t plane;
  int64_t channels;
  int64_t stride;
  float* to;
  int64_t step;
};

// A panel that is one run, without padding.
MEMC_CLONES void CopyRun(Rows r, int64_t offset) {
  const float* from = r.in + offset;
  if (r.stride == 1) {
    for (int64_t channel = 0; channel < r.channels; ++channel, from += r.plane, r.to += r.step) {
      for (int64_t v = 0; v < kVectors; ++v) {
        Read(from + v * kLanes, 1, reinterpret_cast<Vector*>(r.to)[v]);
      }
    }
  } else {
    for (int64_t channel = 0; channel < r.channels; ++channel, from += r.plane, r.to += r.step) {
      for (int64_t v = 0; v < kVectors; ++v) {
        Read(from + v * kLanes * 2, 2, reinterpret_cast<Vector*>(r.to)[v]);
      }
    }
  }
}

// Vectors of at most two pieces, all of whose lanes may be read.
MEMC_CLONES void CopyPairs(Rows r, const Pieces& p) {
  const Piece none = {p.count[0] > 0 ? p.pieces[0][0].offset : p.pieces[1][0].offset, Mask{}};
  const Piece a = p.count[0] > 0 ? p.pieces[0][0] : none;
  const Piece b = p.count[0] > 1 ? p.pieces[0][1] : none;
  const Piece c = p.count[1] > 0 ? p.pieces[1][0] : none;
  const Piece d = p.count[1] > 1 ? p.pieces[1][1] : none;
  const int64_t stride = r.stride;
  for (int64_t channel = 0; channel < r.channels; ++channel, r.in += r.plane, r.to += r.step) {
    Vector read;
    Vector sums[kVectors] = {};
    Read(r.in + a.offset, stride, read);
    Insert(sums[0], read, a.mask);
    Read(r.in + b.offset, stride, read);
    Insert(sums[0], read, b.mask);
    Read(r.in + c.offset, stride, read);
    Insert(sums[1], read, c.mask);
    Read(r.in + d.offset, stride, read);
    Insert(sums[1], read, d.mask);
    reinterpret_cast<Vector*>(r.to)[0] = sums[0];
    reinterpret_cast<Vector*>(r.to)[1] = sums[1];
  }
}

// Any pieces; no lane outside the masks is read.
void CopyOneByOne(Rows r, const Pieces& p) {
  for (int64_t channel = 0; channel < r.channels; ++channel, r.in += r.plane, r.to += r.step) {
    std::fill_n(r.to, kPanelColumns, 0.0F);
    for (int64_t v = 0; v < kVectors; ++v) {
      for (int64_t n = 0; n < p.count[v]; ++n) {
        const Piece& piece = p.pieces[v][n];
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          if (piece.mask[lane] == 0) continue;
          r.to[v * kLanes + lane] = r.in[piece.offset + lane * r.stride];
        }
      }
    }
  }
}

// Lanes may be read with their neighbours as long as those are in the tensor: of how many of the
// first channels that is not so, and up to which of the last it is.
struct Safe {
  int64_t begin, end;
};

Safe FindSafe(const Rows& r, const PatchSource& source, int64_t low, int64_t high) {
  Safe safe{0, r.channels};
  while (safe.begin < safe.end && r.in + safe.begin * r.plane + low < source.begin) ++safe.begin;
  while (safe.begin < safe.end && r.in + (safe.end - 1) * r.plane + high > source.end) --safe.end;
  return safe;
}

Rows Some(Rows r, int64_t begin, int64_t end) {
  r.in += begin * r.plane;
  r.to += begin * r.step;
  r.channels = end - begin;
  return r;
}

void CopyPieces(const Rows& r, const PatchSource& source, const Pieces& p) {
  int64_t low = 0;
  int64_t high = 0;
  int64_t most = 0;
  for (int64_t v = 0; v < kVectors; ++v) {
    most = std::max(most, p.count[v]);
    for (int64_t n = 0; n < p.count[v]; ++n) {
      low = std::min(low, p.pieces[v][n].offset);
      high = std::max(high, p.pieces[v][n].offset + kLanes * r.stride);
    }
  }
  if (most == 0 || most > 2 || r.stride > 2) return CopyOneByOne(r, p);
  const Safe safe = FindSafe(r, source, low, high);
  CopyOneByOne(Some(r, 0, safe.begin), p);
  CopyPairs(Some(r, safe.begin, safe.end), p);
  CopyOneByOne(Some(r, safe.end, r.channels), p);
}

}  // namespace

void PackPatches(const Conv2dShape& shape, const PatchSource& source, int64_t term, int64_t depth,
                 int64_t begin, int64_t end, float* to) {
  Conv2dShape s = shape;
  if (s.IsProduct()) {
    s.in_w = s.out_w = shape.Pixels();  // One long row.
    s.in_h = s.out_h = 1;
  }
  const int64_t taps = s.kernel_h * s.kernel_w;
  const int64_t plane = s.in_h * s.in_w;
  Pieces pieces;
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t first = CeilDiv(term - tap, taps);  // Channels whose term of this tap is wanted.
    const int64_t channels = CeilDiv(term + depth - tap, taps) - first;
    if (channels <= 0) continue;
    const Tap where = FindTap(s, tap);
    float* out = to + (first * taps + tap - term) * kPanelColumns;
    int64_t row = begin / s.out_w;
    int64_t column = begin % s.out_w;
    for (int64_t pixel = begin; pixel < end; pixel += kPanelColumns) {
      const Rows rows{source.x + first * plane, plane, channels, s.stride_w, out,
                      taps * kPanelColumns};
      const int64_t y = row * s.stride_h + where.row;
      const int64_t offset = y * s.in_w + column * s.stride_w + where.column;
      const bool one_run = column >= where.low && column + kPanelColumns <= where.high && y >= 0 &&
                           y < s.in_h && pixel + kPanelColumns <= end && s.stride_w <= 2;
      // With stride 2, one element more than wanted is read.
      if (one_run &&
          (s.stride_w == 1 ||
           rows.in + (channels - 1) * plane + offset + 2 * kPanelColumns <= source.end)) {
        CopyRun(rows, offset);
      } else {
        FindPieces(s, where, row, column, std::min(kPanelColumns, end - pixel), &pieces);
        CopyPieces(rows, source, pieces);
      }
      out += depth * kPanelColumns;
      for (column += kPanelColumns; column >= s.out_w; column -= s.out_w) ++row;
    }
  }
}

}  // namespace memc
