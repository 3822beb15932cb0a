# SPDX-License-Identifier: Apache-2.0
"""The fake CUDA driver that copies at once and writes down what it is asked for, and calls of copies beside kernels."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi

from memc.runtime.execute.tensors import tensor_over

BYTES = 1 << 16
"""Of the slab that tests copy to."""


class Driver:
    """The fake driver's book, with short names: `k` the kernels' stream, then streams and events in their order."""

    def __init__(self, path: Path) -> None:
        self.library: Any = ctypes.CDLL(str(path))
        self.library.fake_log.restype = ctypes.c_char_p

    def count(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.library, name).value

    def lines(self) -> list[str]:
        """What was asked for since the last time."""
        text = self.library.fake_log().decode()
        self.library.fake_log_anew()
        names = {"(nil)": "k"}
        letters = {"record": "es", "wait": "se", "out": "s", "in": "s", "synchronize": "s", "await": "e"}
        found = []
        for line in text.splitlines():
            what, *given = line.split()
            kinds = letters.get(what, "")
            shown = [names.setdefault(g, f"{k}{sum(n[0] == k for n in names.values())}") for g, k in zip(given, kinds)]
            size = [str(int(given[1], 16))] if what in ("out", "in") and given[1] != "(nil)" else []
            found.append(" ".join([what, *shown, *size]))
        return found


def call(name: str, *arguments: Any) -> Any:
    return tvm_ffi.get_global_func(f"memc.copy.cuda.{name}")(*arguments)


def tensor(array: np.ndarray) -> Any:
    return tensor_over(array.reshape(-1).view(np.uint8))


ONE = np.arange(100, dtype=np.uint8)
ONE.setflags(write=False)
