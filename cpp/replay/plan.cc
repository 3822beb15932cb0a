// SPDX-License-Identifier: Apache-2.0
#include "replay/plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "replay/interval_owners.h"

namespace memc::replay {

namespace {

constexpr int64_t kMostSlots = int64_t{1} << 24;

[[noreturn]] void Wrong(int64_t row, const char* column, const std::string& expected,
                        int64_t found) {
  throw std::invalid_argument("plan, row " + std::to_string(row) + ": " + column + ": expected " +
                              expected + ", got " + std::to_string(found));
}

void CheckRow(const memc_replay_plan& columns, int64_t row) {
  const int64_t bytes = columns.bytes[row];
  const int64_t offset = columns.offset[row];
  if (bytes < 0 || (bytes == 0 && offset >= 0)) Wrong(row, "bytes", "at least 1", bytes);
  const int64_t stream = columns.stream_class[row];
  if (stream < 0 || stream >= kMostStreams) Wrong(row, "stream class", "0 to 31", stream);
  if (offset == -1) return;
  if (offset < 0 || offset % kAlignment != 0) {
    Wrong(row, "offset", "-1 or a multiple of 512", offset);
  }
  if (offset > columns.arena_bytes || bytes > columns.arena_bytes - offset) {
    Wrong(row, "offset", "an end within the arena's " + std::to_string(columns.arena_bytes),
          offset);
  }
}

}  // namespace

Plan::Plan(Engine* owner, int64_t its_key, const memc_replay_plan& columns)
    : engine(owner),
      key(its_key),
      arena_bytes(columns.arena_bytes),
      arena_from(columns.arena_from) {
  if (columns.count < 1 || columns.count > kMostSlots) {
    Wrong(0, "count", "1 to 2^24 rows", columns.count);
  }
  for (int64_t row = 0; row < columns.count; ++row) {
    CheckRow(columns, row);
    count += columns.bytes[row] > 0;  // Requests of no bytes are not replayed.
  }
  if (arena_from < -1 || arena_from > count) {
    Wrong(0, "requests before the arena", "-1 to the rows", arena_from);
  }
  slots = std::make_unique<Slot[]>(static_cast<size_t>(count) + 1);
  int64_t next = 0;
  for (int64_t row = 0; row < columns.count; ++row) {
    if (columns.bytes[row] == 0) continue;
    Slot& slot = slots[next++];
    slot.plan = this;
    slot.row = row;
    slot.bytes = columns.bytes[row];
    slot.offset = columns.offset[row];
    slot.stream_class = static_cast<uint32_t>(columns.stream_class[row]);
    slot.thread_class = columns.thread_class[row];
    classes = std::max(classes, slot.stream_class + 1);
  }
  FindPreds();
}

Plan::Plan(Engine* owner, int64_t slot_count)
    : engine(owner),
      key(-1),
      arena_bytes(0),
      count(slot_count),
      slots(std::make_unique<Slot[]>(static_cast<size_t>(slot_count) + 1)) {
  for (int64_t i = 0; i < count; ++i) {
    slots[i].plan = this;
    slots[i].row = -1;
  }
}

void Plan::FindPreds() {
  IntervalOwners<uint32_t> owners;
  const auto take = [&](uint32_t i) {
    if (slots[i].offset >= 0) owners.Take(slots[i].offset, slots[i].end(), i);
  };
  const uint32_t n = static_cast<uint32_t>(count);
  for (uint32_t i = 0; i < n; ++i) take(i);  // The step before.
  for (uint32_t i = 0; i < n; ++i) {
    Slot& slot = slots[i];
    slot.first_pred = static_cast<uint32_t>(preds.size());
    if (slot.offset < 0) continue;
    owners.Each(slot.offset, slot.end(), [&](uint32_t pred) {
      preds.push_back(pred);
      return true;
    });
    const auto first = preds.begin() + slot.first_pred;
    std::sort(first, preds.end());
    preds.erase(std::unique(first, preds.end()), preds.end());
    for (size_t at = slot.first_pred; at < preds.size(); ++at) {
      Slot& pred = slots[preds[at]];
      if (pred.stream_class != slot.stream_class) pred.live_state |= kElsewhere;
    }
    take(i);
  }
  slots[count].first_pred = static_cast<uint32_t>(preds.size());
}

int64_t Plan::CountLive(const Arena* arena) const {
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    found += slots[i].live() && (arena == nullptr || slots[i].arena == arena);
  }
  return found;
}

}  // namespace memc::replay
