// SPDX-License-Identifier: Apache-2.0
// The complete search for a plan that keeps a limit.
#ifndef MEMC_CANONICAL_SEARCH_H_
#define MEMC_CANONICAL_SEARCH_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "solvers/placement/problem.h"
#include "solvers/placement/sections.h"

namespace memc {

enum class Trait {
  kTotal,  // Bytes waiting in the fullest section of the buffer's lifetime.
  kWidth,  // Length of its lifetime.
  kArea,   // Size x lifetime.
};

// Of buffers that may come at the same offset, the one with most of the first trait is tried first;
// the second and third trait decide ties.
using Preference = std::array<Trait, 3>;

// A depth-first search that can be interrupted and resumed. It finds a plan of at most `limit`
// bytes or proves that there is none, given enough work.
class CanonicalSearch {
 public:
  enum class Status { kRunning, kFound, kInfeasible };

  // The problem must be valid, its buffers not empty, sizes multiples of the alignment, and buffers
  // with fixed offsets must not intersect. The sum of the sizes must not overflow.
  CanonicalSearch(const Problem& problem, const Preference& preference, int64_t limit);

  // Goes on until there is an answer or `work` more is done (about 10^9 per second).
  Status Run(int64_t work);

  Status status() const { return status_; }
  int64_t work() const { return work_; }    // Done so far.
  int64_t nodes() const { return nodes_; }  // Placements tried so far.

  // Bytes for each buffer, after kFound.
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  // Identifies what is left to place: two sums of 64-bit hashes, so that two different states are
  // taken for one with a probability of about 2^-128.
  struct Key {
    uint64_t a = 0;
    uint64_t b = 0;
    bool operator==(const Key& other) const { return a == other.a && b == other.b; }
  };
  static constexpr uint64_t kAdd = 1;
  static constexpr uint64_t kRemove = ~uint64_t{0};
  static constexpr int64_t kSkipped = -1;  // As a fact; other facts are offsets.
  static constexpr size_t kFirstTable = size_t{1} << 12;
  static constexpr size_t kLargestTable = size_t{1} << 20;  // 16 MiB.

  // The finalizer of splitmix64 (Steele et al. 2014): a bijection that mixes well.
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  // Adds or takes away the hash of one fact about a buffer.
  static void Toggle(Key& key, int32_t index, int64_t fact, uint64_t sign) {
    const auto x = static_cast<uint64_t>(fact);
    const auto r = static_cast<uint64_t>(index) + 1;
    key.a += sign * Mix(Mix(x + 0x9e3779b97f4a7c15 * r) + r);
    key.b += sign * Mix(Mix(x ^ 0xd1342543de82ef95 * r) - r);
  }

  // Buffers that share no time with other waiting ones, to be placed at `last` bytes or above.
  struct Component {
    int32_t first, count;  // Its buffers: pool_[first, first + count), preferred first.
    int32_t begin, end;    // Its sections.
    int64_t last;
    int32_t last_place;  // At `last` bytes, only buffers from this place of the pool on.
    int32_t creator;     // The frame whose choice split it off: the one to revise if it fails.
    int32_t next;        // In components_: the next one to be searched; -1: none.
    Key key;
  };
  struct Candidate {
    int64_t offset;
    int32_t index;
    int32_t place;  // In the component's part of the pool.
  };
  // A decision: which buffer of a component comes next.
  struct Frame {
    Component component;
    Key state;  // The component's key with its skipped buffers.
    size_t first_candidate, next_candidate, end_candidate;
    size_t pool_mark, component_mark, trail_mark;
    int32_t chosen;
  };
  struct Change {
    int32_t index;
    int64_t offset;
  };

  void FindTwins(const Problem& problem);
  void FindFixedNeighbours();
  void CountWaiting(int32_t index, int32_t sign);
  int64_t Aligned(int32_t index, int64_t offset) const;
  void SortByPreference(int32_t first, int32_t count);
  void Open(int32_t component);
  void FindCandidates(Frame& frame);
  bool Place(Frame& frame, const Candidate& candidate);
  bool Raise(int32_t index, int64_t offset, Key& key);
  bool Supported(int32_t begin, int32_t end);
  void Split(Frame& frame, const Candidate& candidate, Key key);
  void Undo(Frame& frame);
  int64_t AboveFixed(int32_t index, int64_t offset) const;
  bool KnownToFail(const Key& key) const;
  void Remember(const Key& key);

  int64_t limit_;
  Preference preference_;
  Sections sections_;
  // By buffer.
  std::vector<int64_t> sizes_;
  std::vector<double> width_;
  std::vector<int64_t> total_;    // Scratch of SortByPreference.
  std::vector<int64_t> offsets_;  // Where it lies, or the lowest place left to it.
  std::vector<char> placed_;
  std::vector<char> fixed_;
  std::vector<int64_t> alignments_;  // Bytes; empty if all have the problem's.
  std::vector<int32_t> twin_;        // The one before it of equal size and lifetime, -1 if none.
  std::vector<std::vector<int32_t>> fixed_neighbours_;  // By offset; empty without fixed offsets.
  // By section.
  std::vector<int64_t> left_;      // Bytes still to place.
  std::vector<int64_t> spanning_;  // Waiting buffers whose lifetime it is in; empty without gaps.
  std::vector<int32_t> crossing_;  // Those whose lifetime it and the one before are in.
  std::vector<int32_t> witness_;   // A buffer that probably can be the section's next.

  std::vector<Frame> frames_;
  std::vector<Component> components_;
  std::vector<int32_t> pool_;
  std::vector<Candidate> candidates_;
  std::vector<Change> trail_;
  std::vector<Key> failed_;  // A hash table of states without a plan.
  size_t failed_count_ = 0;
  int32_t pending_ = -1;  // In components_: what is to be searched next.
  Status status_ = Status::kRunning;
  int64_t work_ = 0;
  int64_t nodes_ = 0;
};

}  // namespace memc

#endif  // MEMC_CANONICAL_SEARCH_H_
