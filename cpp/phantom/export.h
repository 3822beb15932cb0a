// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_EXPORT_H_
#define MEMC_PHANTOM_EXPORT_H_

// What takes the place of a library's function of the same name.
#define MEMC_PHANTOM_EXPORT extern "C" __attribute__((visibility("default")))

#endif  // MEMC_PHANTOM_EXPORT_H_
