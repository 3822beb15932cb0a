// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <stdexcept>

#include "check.h"
#include "solvers/common/bytes.h"
#include "solvers/common/rows.h"

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(SumsBeyondInt64Throw) {
  CHECK_EQ(memc::AddBytes(kMost - 5, 5), kMost);
  CHECK_THROWS(std::overflow_error, memc::AddBytes(kMost - 5, 6), "2^63 - 1 bytes");
}

TEST(Rounding) {
  CHECK_EQ(memc::RoundUp(0, 64), 0);
  CHECK_EQ(memc::RoundUp(1, 64), 64);
  CHECK_EQ(memc::RoundUp(64, 64), 64);
  CHECK_EQ(memc::RoundUp(7, 3), 9);
  CHECK_THROWS(std::overflow_error, memc::RoundUp(kMost, 64), "2^63 - 1 bytes");
}

TEST(RowsOfIndices) {
  memc::CheckRows({{0, 2, 2}, {0, 1}}, 2, 3, "storage");
  CHECK_THROWS(std::invalid_argument, memc::CheckRows({{0, 1}, {0}}, 2, 3, "storage"),
               "each of 2 ops");
  CHECK_THROWS(std::invalid_argument, memc::CheckRows({{0, 1}, {3}}, 1, 3, "storage"),
               "index 3 is not in [0, 3)");
  CHECK_THROWS(std::invalid_argument, memc::CheckRows({{0, 2}, {1, 1}}, 1, 3, "storage"),
               "index 1 is repeated");
  CHECK_THROWS(std::invalid_argument, memc::CheckRows({{0, 2, 1, 2}, {0, 1}}, 3, 3, "storage"),
               "row starts");
}

}  // namespace
