// SPDX-License-Identifier: Apache-2.0
#include "solvers/placement/live_blocks.h"

#include <algorithm>
#include <limits>

#include "solvers/placement/problem.h"

namespace memc {

namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

// Evenly spread bits that depend on the number only (the finalizer of MurmurHash3).
uint32_t Scatter(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

}  // namespace

LiveBlocks::LiveBlocks(int32_t count) : nodes_(count + 1), root_(count) {
  for (int32_t i = 0; i <= count; ++i) {
    nodes_[i].priority = Scatter(static_cast<uint32_t>(i) + 1);
  }
  nodes_[root_].gap = nodes_[root_].largest = kEnd;
}

void LiveBlocks::Update(int32_t node) {
  Node& here = nodes_[node];
  here.largest = here.gap;
  for (const int32_t child : {here.left, here.right}) {
    if (child != kNone) here.largest = std::max(here.largest, nodes_[child].largest);
  }
}

// Everything in `low` lies below everything in `high`.
int32_t LiveBlocks::Merge(int32_t low, int32_t high) {
  if (low == kNone) return high;
  if (high == kNone) return low;
  if (nodes_[low].priority > nodes_[high].priority) {
    nodes_[low].right = Merge(nodes_[low].right, high);
    Update(low);
    return low;
  }
  nodes_[high].left = Merge(low, nodes_[high].left);
  Update(high);
  return high;
}

// Two trees: the blocks that end at or below `offset`, and those above.
std::pair<int32_t, int32_t> LiveBlocks::Split(int32_t node, int64_t offset) {
  if (node == kNone) return {kNone, kNone};
  if (nodes_[node].offset + nodes_[node].size <= offset) {
    const auto [low, high] = Split(nodes_[node].right, offset);
    nodes_[node].right = low;
    Update(node);
    return {node, high};
  }
  const auto [low, high] = Split(nodes_[node].left, offset);
  nodes_[node].left = high;
  Update(node);
  return {low, node};
}

int64_t LiveBlocks::Place(int32_t block, int64_t size) {
  if (nodes_[root_].largest < size) AddBytes(kEnd, size);  // Throws.
  int32_t below = root_;
  while (true) {
    const Node& here = nodes_[below];
    if (here.left != kNone && nodes_[here.left].largest >= size) {
      below = here.left;
    } else if (here.gap >= size) {
      break;
    } else {
      below = here.right;
    }
  }
  const int64_t offset = nodes_[below].offset + nodes_[below].size;
  Node& placed = nodes_[block];
  placed.offset = offset;
  placed.size = size;
  placed.gap = nodes_[below].gap - size;
  placed.left = placed.right = kNone;
  Update(block);
  const auto [low, high] = Split(root_, offset);
  AddToLastGap(low, -nodes_[below].gap);
  root_ = Merge(Merge(low, block), high);
  return offset;
}

void LiveBlocks::Free(int32_t block) {
  const Node& freed = nodes_[block];
  const auto [low, rest] = Split(root_, freed.offset);
  const int32_t high = Split(rest, freed.offset + freed.size).second;
  AddToLastGap(low, freed.size + freed.gap);
  root_ = Merge(low, high);
}

// Changes the gap above the highest block of a tree.
void LiveBlocks::AddToLastGap(int32_t node, int64_t bytes) {
  if (nodes_[node].right != kNone) {
    AddToLastGap(nodes_[node].right, bytes);
  } else {
    nodes_[node].gap += bytes;
  }
  Update(node);
}

}  // namespace memc
