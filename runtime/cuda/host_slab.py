# SPDX-License-Identifier: Apache-2.0
"""Runs of programs that copy between a CUDA device and its host, beside their kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Run = Callable[[Sequence[Any]], None]
"""One run on the tensors of a call."""


class SlabRuns:
    """What runs with a slab of pinned memory need around them."""

    def __init__(self, slab: Any) -> None:
        """`slab`: of `memc.copy.cuda.open`."""
        import tvm_ffi

        self.slab = slab
        self.apart, self.drain, self.ran, self.recorded = (
            tvm_ffi.get_global_func(f"memc.copy.cuda.{name}") for name in ("apart", "drain", "ran", "recorded")
        )
        self.warm = False
        """Whether algorithms are chosen: by their times, which copies beside them would change."""

    def guarded(self, main: Callable[..., Any]) -> Callable[..., Any]:
        """`main`, but when it fails no copy is under way, or, in a capture, left to itself."""

        def run(*arguments: Any) -> Any:
            try:
                return main(*arguments)
            except BaseException:
                self.drain(self.slab)
                raise

        return run

    def lent(self, main: Callable[..., Any]) -> Callable[..., Any]:
        """`main` as a part of the caller's graph, which may be launched at any time."""

        def run(*arguments: Any) -> Any:
            self.recorded(self.slab)
            return main(*arguments)

        return run

    def ordered(self, run: Run) -> Run:
        """`run`, but the first one has no kernel beside a copy, and the slab is kept until all of them are over."""

        def runs(tensors: Sequence[Any]) -> None:
            if not self.warm:
                self.apart(self.slab, True)
                try:
                    run(tensors)
                finally:
                    self.apart(self.slab, False)
                self.warm = True
            else:
                run(tensors)
            self.ran(self.slab)

        return runs
