// SPDX-License-Identifier: Apache-2.0
#include "replay/step_log.h"

#include <algorithm>

namespace memc::replay {

namespace {

constexpr uint64_t kHashStart = 14695981039346656037ULL;  // FNV-1a, by words.
constexpr uint64_t kHashPrime = 1099511628211ULL;
constexpr int64_t kWithoutClass = 62;

uint64_t Mix(uint64_t hash, int64_t number) {
  return ((hash ^ static_cast<uint64_t>(number)) * kHashPrime) ^ (hash >> 29);
}

}  // namespace

void StepLog::Drop(Step* step) {
  lingering_.insert(lingering_.end(), step->records.begin(), step->records.end());
  step->records.clear();
  step->kept = false;
  const auto freed = std::partition(lingering_.begin(), lingering_.end(),
                                    [](const Record* record) { return record->live(); });
  unused_.insert(unused_.end(), freed, lingering_.end());
  lingering_.erase(freed, lingering_.end());
}

void StepLog::Begin(int64_t key, int64_t step) {
  last_ = (last_ + 1) % steps_.size();
  Drop(&steps_[last_]);
  steps_[last_].key = key;
  steps_[last_].begin = clock_.load(std::memory_order_relaxed);
  steps_[last_].hash = kHashStart;
  number_ = step;
  stream_count_.store(0, std::memory_order_relaxed);
}

Record* StepLog::Add(int64_t bytes, uint64_t stream, int64_t thread_class, int64_t slot) {
  if (unused_.empty()) {
    all_.emplace_back();
    unused_.push_back(&all_.back());
  }
  Record* record = unused_.back();
  unused_.pop_back();
  record->log = this;
  record->bytes = bytes;
  record->stream_class = ClassOf(stream);
  record->thread_class = thread_class;
  record->allocated = clock_.fetch_add(1, std::memory_order_relaxed);
  record->slot = slot;
  record->step = number_;
  record->free_step = -1;
  record->also_used.store(0, std::memory_order_relaxed);
  record->freed.store(Record::kInUse, std::memory_order_relaxed);
  Step& step = steps_[last_];
  step.records.push_back(record);
  step.hash = Mix(Mix(step.hash, bytes), record->stream_class);
  return record;
}

void StepLog::End(bool completed) {
  if (completed) {
    steps_[last_].kept = true;
    return;
  }
  Drop(&steps_[last_]);
  last_ = (last_ + steps_.size() - 1) % steps_.size();
}

int64_t StepLog::ClassOf(uint64_t stream) {
  const size_t count = stream_count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    if (streams_[i].load(std::memory_order_relaxed) == stream) return static_cast<int64_t>(i);
  }
  if (count == streams_.size()) return kWithoutClass;
  streams_[count].store(stream, std::memory_order_relaxed);
  stream_count_.store(count + 1, std::memory_order_release);
  return static_cast<int64_t>(count);
}

void StepLog::UseOn(Record* record, uint64_t stream) {
  const size_t count = stream_count_.load(std::memory_order_acquire);
  int64_t found = kWithoutClass;
  for (size_t i = 0; i < count; ++i) {
    if (streams_[i].load(std::memory_order_relaxed) == stream) found = static_cast<int64_t>(i);
  }
  record->also_used.fetch_or(uint64_t{1} << found, std::memory_order_relaxed);
}

void StepLog::Free(Record* record) {
  record->free_step = step_.load(std::memory_order_relaxed) - record->step;
  const int64_t clock = clock_.fetch_add(1, std::memory_order_relaxed);
  record->freed.store(clock, std::memory_order_release);
}

int64_t StepLog::CountLive() const {
  return std::count_if(all_.begin(), all_.end(), [&](const Record& record) {
    return record.log != nullptr && record.live();
  });
}

int64_t StepLog::LiveBytes() const {
  int64_t bytes = 0;
  for (const Record& record : all_) {
    if (record.log != nullptr && record.live()) bytes += record.bytes;
  }
  return bytes;
}

int64_t StepLog::Read(int age, memc_replay_record* records, int64_t room, int64_t* key,
                      int64_t* begin) const {
  if (age < 1 || age > MEMC_REPLAY_LOGS) return -1;
  // A step that goes on is not counted.
  const size_t back = static_cast<size_t>(age) - (steps_[last_].kept ? 1 : 0);
  const Step& step = steps_[(last_ + steps_.size() - back) % steps_.size()];
  if (!step.kept) return -1;
  if (key != nullptr) *key = step.key;
  if (begin != nullptr) *begin = step.begin;
  const int64_t count = static_cast<int64_t>(step.records.size());
  for (int64_t i = 0; i < std::min(room, count); ++i) {
    const Record& from = *step.records[static_cast<size_t>(i)];
    const bool live = from.live();
    records[i] = {from.bytes,
                  from.stream_class,
                  from.thread_class,
                  from.allocated,
                  live ? -1 : from.freed.load(std::memory_order_relaxed),
                  live ? -1 : from.free_step,
                  static_cast<int64_t>(from.also_used.load(std::memory_order_relaxed)),
                  from.slot};
  }
  return count;
}

}  // namespace memc::replay
