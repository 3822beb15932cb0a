// SPDX-License-Identifier: Apache-2.0
#include <tvm/ffi/function.h>

namespace {
int64_t Version() { return 1; }
}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_abi_version, Version);
