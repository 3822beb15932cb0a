// SPDX-License-Identifier: Apache-2.0
// Follows the bytes of a planned function: which value's which byte each byte of a space holds, and
// which copies between spaces are under way. Shares nothing with the solvers. It only says whether
// all is right; ir/verify/ has the same rules with messages for where it is not.
#ifndef MEMC_VERIFY_PLAN_WALK_H_
#define MEMC_VERIFY_PLAN_WALK_H_

#include <cstdint>
#include <vector>

namespace memc {

enum class WalkKind : int64_t {
  kOp,     // Reads its operands, writes its results.
  kView,   // Result 0 is operand 0 from byte `within` on; others are written.
  kStart,  // Begins a copy of operand 0 into result 0.
  kDone,   // Waits for the copy that made operand 0; result 0 looks at that from byte `within` on.
  kConstant,  // Result 0 has its bytes before the function runs.
};

// Columns of a function. Values are numbered: parameters first, then of each op its results and its
// workspace. Rows are one after another: those of `i` are [first[i], first[i + 1]).
struct WalkProblem {
  // Of each value.
  const int64_t* space = nullptr;  // Equal for values that may share bytes.
  const int64_t* begin = nullptr;
  const int64_t* bytes = nullptr;
  const int64_t* constant = nullptr;  // 1 where no op may write to the space of these bytes.
  int64_t values = 0;
  int64_t params = 0;
  // Of each op.
  const int64_t* kind = nullptr;
  const int64_t* first_result = nullptr;  // Its number.
  const int64_t* results = nullptr;       // How many.
  const int64_t* workspace = nullptr;     // -1 for none.
  const int64_t* in_place = nullptr;      // The operand that result 0 takes the place of, or -1.
  const int64_t* within = nullptr;
  const int64_t* lane = nullptr;  // Of a start, from 0 on.
  int64_t ops = 0;
  int64_t lanes = 0;
  const int64_t* first_operand = nullptr;  // Rows of the numbers of values.
  const int64_t* operands = nullptr;
  const int64_t* first_allowed = nullptr;  // Rows of operands that in place may overwrite.
  const int64_t* allowed = nullptr;
  const int64_t* first_kept = nullptr;  // Rows of operands that lie already in result 0,
  const int64_t* kept = nullptr;        // by the number among the operands,
  const int64_t* kept_at = nullptr;     // and from which byte of the result on, rising.
  // What the end must find: the content of a value in the bytes of another.
  const int64_t* end_place = nullptr;
  const int64_t* end_content = nullptr;
  int64_t ends = 0;
};

// Whether each op finds its operands whole wherever copies are between their starts and their
// waits, and writes only what nobody needs. Throws std::invalid_argument for numbers that are none
// of a function's.
bool PlanHolds(const WalkProblem& problem);

}  // namespace memc

#endif  // MEMC_VERIFY_PLAN_WALK_H_
