// SPDX-License-Identifier: Apache-2.0
#include "replay/arenas.h"

#include <utility>

namespace memc::replay {

bool Arenas::Allocate(int64_t bytes) {
  char* base = device_->AllocateArena(bytes);
  if (base == nullptr) return false;
  Retire();
  current_ = std::make_unique<Arena>(Arena{base, bytes});
  return true;
}

void Arenas::Retire() {
  if (current_ != nullptr) retired_.push_back(std::move(current_));
}

const Arena* Arenas::Find(const char* address) const {
  const auto holds = [&](const std::unique_ptr<Arena>& arena) {
    return arena != nullptr && address >= arena->base && address < arena->base + arena->bytes;
  };
  if (holds(current_)) return current_.get();
  for (const auto& arena : retired_) {
    if (holds(arena)) return arena.get();
  }
  return nullptr;
}

int64_t Arenas::retired_bytes() const {
  int64_t bytes = 0;
  for (const auto& arena : retired_) bytes += arena->bytes;
  return bytes;
}

}  // namespace memc::replay
