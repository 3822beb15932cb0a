# SPDX-License-Identifier: Apache-2.0
"""What an artifact's code needs to be loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from memc.runtime.codegen.cuda_kernels import LINE_CALLERS
from memc.runtime.execute.load_code import OWN_CALLS, calls_cuda


def test_sorts_do_not_need_the_cuda_libraries() -> None:
    def needs(*symbols: str) -> bool:
        manifest: Any = SimpleNamespace(library_functions=symbols)
        return calls_cuda(manifest)

    assert OWN_CALLS == LINE_CALLERS
    assert not needs(*OWN_CALLS, "memc.cpu.top_k")
    assert needs("memc.cuda.cumsum", "memc.cuda.matmul")
