// SPDX-License-Identifier: Apache-2.0
// Copies into the arena that start no earlier than they must. The dispatcher starts them as soon as
// there is room, and so fills the arena up to the limit all the time: addresses are hard to find
// then. Bytes that a copy does not need yet are left free for them here.
#ifndef MEMC_DELAY_H_
#define MEMC_DELAY_H_

#include "solvers/offload/schedule.h"

namespace memc {

// The schedule with its copies in started later, as far as its makespan does not grow. Its peak is
// no higher.
Schedule DelayFetches(const OffloadProblem& problem, Schedule schedule);

}  // namespace memc

#endif  // MEMC_DELAY_H_
