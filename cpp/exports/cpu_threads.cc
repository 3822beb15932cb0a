// SPDX-License-Identifier: Apache-2.0
// Compiled loops and memc's kernels share pools of threads, which survive forks.
//
//   memc.cpu.serve_loops()
//   memc.cpu.threads() -> the tasks of each launch of this thread
//   memc.cpu.use_threads(count)  fewer of them in this thread; all for 0
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

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
  tvm::ffi::reflection::GlobalDef()
      .def("memc.cpu.serve_loops", ServeLoops)
      .def("memc.cpu.threads", memc::Threads)
      .def("memc.cpu.use_threads", memc::UseThreads);
}
