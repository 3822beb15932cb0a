// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_BENCHMARKS_ACCOUNTS_H_
#define MEMC_BENCHMARKS_ACCOUNTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace accounts {

extern size_t total;                          // bytes of the device
extern size_t used;                           // bytes of segments and pages
extern std::map<uintptr_t, uint64_t> passed;  // by stream: until when its events are complete
extern uint64_t clock;                        // of recorded events

}  // namespace accounts

#endif  // MEMC_BENCHMARKS_ACCOUNTS_H_
