// SPDX-License-Identifier: Apache-2.0
#include "verify/plan_walk.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include "verify/byte_map.h"

namespace memc {

namespace {

struct Range {
  int64_t space = 0;
  int64_t begin = 0;
  int64_t end = 0;

  bool Meets(const Range& other) const {
    return space == other.space && std::max(begin, other.begin) < std::min(end, other.end);
  }
  bool Is(const Range& other) const {
    return space == other.space && begin == other.begin && end == other.end;
  }
};

struct Rows {
  const int64_t* begin;
  const int64_t* end;
};

class Walk {
 public:
  explicit Walk(const WalkProblem& problem)
      : p_(problem),
        pieces_(static_cast<size_t>(problem.values)),
        made_(static_cast<size_t>(problem.values)),
        joined_(static_cast<size_t>(problem.lanes)),
        started_(static_cast<size_t>(problem.lanes)) {}

  bool Run() {
    for (int64_t value = 0; value < p_.params; ++value) {
      const Range at = At(value);
      if (Space(at).IsUsed(at.begin, at.end)) return false;
      Make(value);
    }
    for (int64_t op = 0; op < p_.ops; ++op) {
      if (!Step(op)) return false;
    }
    for (size_t lane = 0; lane < joined_.size(); ++lane) {
      if (joined_[lane] != started_[lane]) return false;
    }
    for (int64_t n = 0; n < p_.ends; ++n) {
      const int64_t content = Value(p_.end_content[n]);
      if (!made_[content] || !Holds(Value(p_.end_place[n]), pieces_[content])) return false;
    }
    return true;
  }

 private:
  struct Copy {
    int64_t lane;
    int64_t time;  // Its number in its lane, from 1 on.
    int64_t pending;
    Range from;
    Range to;
  };

  int64_t Value(int64_t number) const {
    if (number < 0 || number >= p_.values) throw std::invalid_argument("no such value");
    return number;
  }
  Range At(int64_t value) const {
    return {p_.space[value], p_.begin[value], p_.begin[value] + p_.bytes[value]};
  }
  ByteMap& Space(const Range& at) { return spaces_[at.space]; }
  bool Holds(int64_t value, const std::vector<BytePiece>& pieces) {
    const Range at = At(value);
    return Space(at).Holds(at.begin, pieces);
  }
  Rows Operands(int64_t op) const {
    return {p_.operands + p_.first_operand[op], p_.operands + p_.first_operand[op + 1]};
  }

  // All bytes of a value are its own.
  void Make(int64_t value) {
    const Range at = At(value);
    pieces_[value].assign(1, {value, 0, at.end - at.begin});
    made_[value] = true;
    if (at.begin < at.end) Space(at).Fill(at.begin, at.end, value, at.begin);
  }

  bool Step(int64_t op) {
    const auto kind = static_cast<WalkKind>(p_.kind[op]);
    if (kind == WalkKind::kConstant) {
      const Range at = At(p_.first_result[op]);
      if (Space(at).IsUsed(at.begin, at.end)) return false;
      Make(p_.first_result[op]);
      return true;
    }
    const Rows reads = Operands(op);
    for (const int64_t* read = reads.begin; read != reads.end; ++read) {
      if (!made_[Value(*read)] || !Holds(*read, pieces_[*read])) return false;
      if (kind != WalkKind::kDone && !MayRead(At(*read), LaneOf(op))) return false;
    }
    if (kind == WalkKind::kDone && !Wait(*reads.begin)) return false;
    if (!Write(op, kind, reads)) return false;
    if (kind == WalkKind::kStart) Begin(op, *reads.begin);
    return true;
  }

  // The lane whose earlier copies are over when a copy begins; -1 for an op.
  int64_t LaneOf(int64_t op) const {
    return static_cast<WalkKind>(p_.kind[op]) == WalkKind::kStart ? p_.lane[op] : -1;
  }

  bool Write(int64_t op, WalkKind kind, const Rows& reads) {
    written_.clear();
    const int64_t first = p_.first_result[op];
    for (int64_t number = 0; number < p_.results[op]; ++number) {
      const int64_t value = Value(first + number);
      if (number == 0 && (kind == WalkKind::kView || kind == WalkKind::kDone)) {
        Look(value, *reads.begin, p_.within[op]);
        if (!Holds(value, pieces_[value])) return false;
        continue;
      }
      const bool joins = number == 0 && p_.first_kept[op] != p_.first_kept[op + 1];
      if (p_.constant[value] != 0 && p_.bytes[value] > 0) return false;
      if (!Apart(op, value, number == 0 ? p_.in_place[op] : -1, joins, reads)) return false;
      if (!Once(At(value))) return false;
      if (joins ? !Join(op, value, reads) : !MayWrite(At(value), LaneOf(op))) return false;
      if (!joins) Make(value);
    }
    if (p_.workspace[op] < 0) return true;
    const int64_t value = Value(p_.workspace[op]);
    if (!Apart(op, value, -1, false, reads) || !Once(At(value))) return false;
    if (!MayWrite(At(value), -1)) return false;
    Make(value);
    return true;
  }

  // An op writes one thing apart from the others.
  bool Once(const Range& at) {
    for (const Range& other : written_) {
      if (at.Meets(other)) return false;
    }
    written_.push_back(at);
    return true;
  }

  // What an op writes nothing reads meanwhile, but for what its rules for in place allow.
  bool Apart(int64_t op, int64_t value, int64_t over, bool joins, const Rows& reads) {
    const Range at = At(value);
    std::vector<Range> parts{at};
    if (joins) parts = Outside(op, at, reads);
    for (const int64_t* read = reads.begin; read != reads.end; ++read) {
      const Range other = At(*read);
      if (!other.Meets(at)) continue;
      const auto meets = [&other](const Range& part) { return part.Meets(other); };
      if (std::none_of(parts.begin(), parts.end(), meets)) continue;
      if (over < 0 || !other.Is(at)) return false;
      if (read - reads.begin != over && !IsAllowed(op, read - reads.begin)) return false;
    }
    return true;
  }

  bool IsAllowed(int64_t op, int64_t number) const {
    const int64_t *first = p_.allowed + p_.first_allowed[op],
                  *last = p_.allowed + p_.first_allowed[op + 1];
    return std::find(first, last, number) != last;
  }

  // The bytes of a result in which no operand lies already.
  std::vector<Range> Outside(int64_t op, const Range& at, const Rows& reads) const {
    std::vector<Range> kept, parts;
    for (int64_t n = p_.first_kept[op]; n < p_.first_kept[op + 1]; ++n) {
      kept.push_back(At(reads.begin[p_.kept[n]]));
    }
    std::sort(kept.begin(), kept.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    int64_t start = at.begin;
    for (const Range& other : kept) {
      if (other.begin > start) parts.push_back({at.space, start, other.begin});
      start = std::max(start, other.end);
    }
    if (start < at.end) parts.push_back({at.space, start, at.end});
    return parts;
  }

  // A value is bytes of another one from `within` on.
  void Look(int64_t value, int64_t source, int64_t within) {
    std::vector<BytePiece> found;
    int64_t at = 0;
    const int64_t end = within + p_.bytes[value];
    for (const BytePiece& piece : pieces_[source]) {
      const int64_t low = std::max(within, at), high = std::min(end, at + piece.length);
      if (low < high) found.push_back({piece.origin, piece.offset + low - at, high - low});
      at += piece.length;
    }
    pieces_[value] = std::move(found);
    made_[value] = true;
  }

  // A result of its operands where they stay, and of bytes of its own elsewhere.
  bool Join(int64_t op, int64_t value, const Rows& reads) {
    std::vector<BytePiece> found;
    int64_t at = 0;
    const Range range = At(value);
    const auto own = [&](int64_t until) {
      if (until <= at) return true;
      found.push_back({value, at, until - at});
      const Range part{range.space, range.begin + at, range.begin + until};
      if (!MayWrite(part, -1)) return false;
      Space(part).Fill(part.begin, part.end, value, range.begin);
      return true;
    };
    for (int64_t n = p_.first_kept[op]; n < p_.first_kept[op + 1]; ++n) {
      if (p_.kept_at[n] < at) return false;  // Unusual enough for the other check.
      if (!own(p_.kept_at[n])) return false;
      at = p_.kept_at[n];
      for (const BytePiece& piece : pieces_[reads.begin[p_.kept[n]]]) {
        found.push_back(piece);
        at += piece.length;
      }
    }
    if (!own(range.end - range.begin)) return false;
    pieces_[value] = std::move(found);
    made_[value] = true;
    return true;
  }

  // No copy under way, other than of a lane whose copies are over, writes what is read.
  bool MayRead(const Range& at, int64_t lane) const {
    return std::none_of(under_way_.begin(), under_way_.end(),
                        [&](const Copy& copy) { return copy.lane != lane && copy.to.Meets(at); });
  }

  bool MayWrite(const Range& at, int64_t lane) const {
    return std::none_of(under_way_.begin(), under_way_.end(), [&](const Copy& copy) {
      return copy.lane != lane && (copy.to.Meets(at) || copy.from.Meets(at));
    });
  }

  void Begin(int64_t op, int64_t source) {
    const int64_t lane = p_.lane[op], pending = p_.first_result[op];
    under_way_.push_back({lane, ++started_.at(lane), pending, At(source), At(pending)});
  }

  // With a copy, all earlier ones of its lane are over.
  bool Wait(int64_t pending) {
    const auto over = std::find_if(under_way_.begin(), under_way_.end(),
                                   [=](const Copy& copy) { return copy.pending == pending; });
    if (over == under_way_.end()) return true;  // A later copy's wait has covered it.
    const Copy found = *over;
    joined_.at(found.lane) = found.time;
    under_way_.erase(std::remove_if(under_way_.begin(), under_way_.end(),
                                    [&](const Copy& copy) {
                                      return copy.lane == found.lane && copy.time <= found.time;
                                    }),
                     under_way_.end());
    return true;
  }

  const WalkProblem& p_;
  std::unordered_map<int64_t, ByteMap> spaces_;
  std::vector<std::vector<BytePiece>> pieces_;  // Of values that are made.
  std::vector<char> made_;
  std::vector<int64_t> joined_;   // By lane: copies that the list of ops has waited for,
  std::vector<int64_t> started_;  // and those that it has begun.
  std::vector<Copy> under_way_;
  std::vector<Range> written_;  // By the op.
};

void Expect(bool right, const char* what) {
  if (!right) throw std::invalid_argument(std::string("plan: ") + what);
}

void Validate(const WalkProblem& p) {
  Expect(0 <= p.params && p.params <= p.values, "expected parameters among the values");
  for (int64_t op = 0; op < p.ops; ++op) {
    const int64_t operands = p.first_operand[op + 1] - p.first_operand[op];
    const auto kind = static_cast<WalkKind>(p.kind[op]);
    Expect(operands >= 0, "expected rows of operands one after another");
    Expect(p.results[op] >= 0 && p.first_result[op] >= 0 &&
               p.first_result[op] + p.results[op] <= p.values && p.workspace[op] < p.values,
           "expected results among the values");
    Expect(kind == WalkKind::kOp || p.results[op] > 0, "expected a result");
    Expect(kind == WalkKind::kOp || kind == WalkKind::kConstant || operands > 0,
           "expected an operand");
    Expect(kind != WalkKind::kStart || (p.lane[op] >= 0 && p.lane[op] < p.lanes),
           "expected a lane among those that there are");
    for (int64_t n = p.first_kept[op]; n < p.first_kept[op + 1]; ++n) {
      Expect(p.kept[n] >= 0 && p.kept[n] < operands, "expected an operand that is kept");
    }
  }
}

}  // namespace

bool PlanHolds(const WalkProblem& problem) {
  Validate(problem);
  return Walk(problem).Run();
}

}  // namespace memc
