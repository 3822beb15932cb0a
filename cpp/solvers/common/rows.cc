// SPDX-License-Identifier: Apache-2.0
#include "solvers/common/rows.h"

#include <stdexcept>

namespace memc {

void CheckRows(const Rows& rows, int64_t count, int64_t limit, const std::string& what) {
  if (rows.size() != count || rows.first.front() != 0 ||
      rows.first.back() != static_cast<int64_t>(rows.index.size())) {
    throw std::invalid_argument(what + ": expected one row for each of " + std::to_string(count) +
                                " ops");
  }
  std::vector<int64_t> seen(limit, -1);
  for (int64_t op = 0; op < count; ++op) {
    if (rows.first[op] > rows.first[op + 1]) throw std::invalid_argument(what + ": bad row starts");
    for (const int32_t* i = rows.begin(op); i != rows.end(op); ++i) {
      if (*i < 0 || *i >= limit) {
        throw std::invalid_argument("op " + std::to_string(op) + ": " + what + " index " +
                                    std::to_string(*i) + " is not in [0, " + std::to_string(limit) +
                                    ")");
      }
      if (seen[*i] == op) {
        throw std::invalid_argument("op " + std::to_string(op) + ": " + what + " index " +
                                    std::to_string(*i) + " is repeated");
      }
      seen[*i] = op;
    }
  }
}

}  // namespace memc
