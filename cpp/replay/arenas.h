// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_REPLAY_ARENAS_H_
#define MEMC_REPLAY_ARENAS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "replay/device.h"
#include "replay/plan.h"

namespace memc::replay {

// The arena that all plans share, and earlier ones in which blocks are still alive.
class Arenas {
 public:
  explicit Arenas(const Device* device) : device_(device) {}

  // Null if there is none.
  Arena* current() const { return current_.get(); }
  bool any_retired() const { return !retired_.empty(); }

  // An arena of `bytes` bytes in the place of the current one, which is retired. Returns false if
  // there are not as many.
  bool Allocate(int64_t bytes);
  // The current one is in no plan's way any more; it goes once no block is in it.
  void Retire();
  // Gives back retired arenas for which `in_use(arena)` does not hold. Returns their bytes.
  template <typename InUse>
  int64_t Release(InUse in_use) {
    int64_t freed = 0;
    for (size_t i = 0; i < retired_.size();) {
      if (in_use(retired_[i].get())) {
        ++i;
        continue;
      }
      freed += retired_[i]->bytes;
      device_->FreeArena(retired_[i]->base, retired_[i]->bytes);
      retired_.erase(retired_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return freed;
  }

  // Null if no arena holds the address.
  const Arena* Find(const char* address) const;
  int64_t retired_bytes() const;

 private:
  const Device* device_;
  std::unique_ptr<Arena> current_;
  std::vector<std::unique_ptr<Arena>> retired_;
};

}  // namespace memc::replay

#endif  // MEMC_REPLAY_ARENAS_H_
