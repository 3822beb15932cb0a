# SPDX-License-Identifier: Apache-2.0
"""Code generation: a planned module to a shared library for TVM's virtual machine."""

from memc.runtime.codegen.build import CompiledModule, build
from memc.runtime.codegen.expressions import KernelError

__all__ = ["CompiledModule", "KernelError", "build"]
