# SPDX-License-Identifier: Apache-2.0
"""A program's runs as CUDA graphs: one launch instead of one for each kernel.

Arena and weights never move, so what a graph depends on are the addresses of inputs and outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from memc.runtime.cuda import cuda_runtime

MOST_GRAPHS = 8
"""Sets of addresses that are remembered; the one used least recently makes room."""

MOST_WASTED = 32
"""Captures more than replays after which capturing is given up: the addresses never come back."""


class Replays:
    """Calls `main(*fixed, *tensors)`: at first as it is, then as a graph for each set of addresses of `tensors`."""

    def __init__(self, main: Callable[..., Any], fixed: Sequence[Any], device: int = 0) -> None:
        import tvm_ffi

        self.main = main
        self.fixed = tuple(fixed)
        self.device = device
        self.capture = tvm_ffi.get_global_func("memc.cuda.capture")
        self.graphs: dict[tuple[int, ...], Callable[[], None]] = {}
        self.captures = 0
        self.replays = 0
        self.warm = False
        """Whether code is loaded and algorithms are chosen, which cannot be done while capturing."""
        self.given_up = False

    def run(self, tensors: Sequence[Any]) -> None:
        """One run, enqueued on TVM's current stream."""
        if self.given_up or not self.warm:
            self.main(*self.fixed, *tensors)
            self.warm = True
            return
        addresses = tuple(tensor.data_ptr() for tensor in tensors)
        launch = self.graphs.pop(addresses, None)
        if launch is None:
            try:
                launch = self.capture(self.device, lambda: self.main(*self.fixed, *tensors))
            except RuntimeError as error:
                cuda_runtime.clear_error()
                logging.getLogger("memc").warning("CUDA graphs are off: %s", str(error).strip().splitlines()[-1])
                self.given_up = True
                self.main(*self.fixed, *tensors)
                return
            self.captures += 1
            self.given_up = self.captures > self.replays + MOST_WASTED
            if len(self.graphs) == MOST_GRAPHS:
                del self.graphs[next(iter(self.graphs))]
        else:
            self.replays += 1
        self.graphs[addresses] = launch
        launch()
