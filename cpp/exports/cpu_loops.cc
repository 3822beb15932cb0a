// SPDX-License-Identifier: Apache-2.0
// Compiled loops and memc's kernels share one pool of threads, which survives forks.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include "kernels/parallel.h"

namespace {

// For the code that is loaded from now on. To be called when TVM's runtime is loaded, which has
// registered its own.
void ServeLoops() {
  static const int status =
      TVMFFIEnvModRegisterContextSymbol("__TVMBackendParallelLaunch", memc::LoopLauncher());
  static_cast<void>(status);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  memc::LoopLauncher();  // Forks are watched from the start.
  tvm::ffi::Function::SetGlobal("memc.cpu.serve_loops", tvm::ffi::Function::FromTyped(ServeLoops),
                                true);
}
