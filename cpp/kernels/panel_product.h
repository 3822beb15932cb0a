// SPDX-License-Identifier: Apache-2.0
// Matrix products of which one factor was laid out in panels before, so that nothing is copied at
// run time. A tile of the result stays in registers while all its terms are added up, and is
// finished (bias, residual, limits) before it is stored.
//
// Layouts (`ir/ops/shared/packing.py` makes them):
//   row panels     a left factor [M, K]: for each 6 rows (fewer at the end), K times one column
//   column panels  a right factor [K, N]: for each 16 columns, K times one row
//
// After Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008.
#ifndef MEMC_PANEL_PRODUCT_H_
#define MEMC_PANEL_PRODUCT_H_

#include <cstdint>

namespace memc {

constexpr int64_t kPanelRows = 6;
constexpr int64_t kPanelColumns = 16;
constexpr int64_t kPanelDepth = 256;  // Terms for which the panels in use fit the caches.

// c = finish(start + a b): some of the terms of some of the elements of a product. Distances are
// in elements.
struct PanelProduct {
  int64_t rows, columns, depth;

  const float* a;   // In row panels: the first one, whole. Else element (0, 0).
  int64_t a_depth;  // In row panels: terms of the whole matrix. 0: not in panels.
  int64_t a_begin;  // In row panels: the first term.
  int64_t a_row;    // Not in panels: distance of rows; terms follow one another.

  const float* b;   // The first term of the first columns.
  int64_t b_term;   // Distance of terms.
  int64_t b_panel;  // Distance of one 16 columns to the next.
  bool b_near;      // Whether all of b is in a cache: then each of a's row panels is read once.

  float* c;
  int64_t c_row;  // Distance of rows.

  bool first, last;          // Whether these are the first and the last terms.
  const float* add;          // With the first: what c begins with, distances as of c; or null.
  const float* row_bias;     // With the first: added to all of a row; or null.
  const float* column_bias;  // With the first: added to all of a column; or null.
  float low, high;           // With the last: limits of the result. NaN stays NaN.
};

// On the calling thread. Reads no column of b beyond a multiple of 16, of c and add none beyond
// `columns`.
void Multiply(const PanelProduct& product);

// Columns [0, columns) of a right factor [depth, columns], or [columns, depth] if `transposed`,
// whose rows are `row` elements apart, as column panels; zeros for columns that do not exist.
void PackColumns(const float* b, int64_t row, bool transposed, int64_t depth, int64_t columns,
                 float* to);

}  // namespace memc

#endif  // MEMC_PANEL_PRODUCT_H_
