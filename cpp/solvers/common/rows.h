// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_ROWS_H_
#define MEMC_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace memc {

// Lists of indices, row after row.
struct Rows {
  std::vector<int64_t> first;  // Row i is index[first[i] .. first[i + 1]); one more than rows.
  std::vector<int32_t> index;

  int64_t size() const { return static_cast<int64_t>(first.size()) - 1; }
  const int32_t* begin(int64_t row) const { return index.data() + first[row]; }
  const int32_t* end(int64_t row) const { return index.data() + first[row + 1]; }
};

// Throws std::invalid_argument naming `what` and the op unless there is a row for each of `count`
// ops, of indices below `limit` without repeats.
void CheckRows(const Rows& rows, int64_t count, int64_t limit, const std::string& what);

}  // namespace memc

#endif  // MEMC_ROWS_H_
