// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_REAL_CUDNN_H_
#define MEMC_PHANTOM_REAL_CUDNN_H_

#include <cudnn.h>
#include <dlfcn.h>

#include "device.h"

namespace phantom {

// The address of a function of the installed cuDNN, in whose place another of its name is called.
void* RealCudnn(const char* name);

}  // namespace phantom

// The installed function of a name, which needs no handle.
#define MEMC_PHANTOM_REAL(name) reinterpret_cast<decltype(&(name))>(phantom::RealCudnn(#name))

#endif  // MEMC_PHANTOM_REAL_CUDNN_H_
