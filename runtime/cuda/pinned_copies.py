# SPDX-License-Identifier: Apache-2.0
"""Copies between pinned memory and a GPU on a stream for each direction, by the CUDA runtime that TVM loads."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memc.runtime.cuda import cuda_runtime

KINDS = {"out": 2, "in": 1}
"""cudaMemcpyDeviceToHost and cudaMemcpyHostToDevice"""

NON_BLOCKING = 1
"""cudaStreamNonBlocking"""


class PinnedCopies:
    """Buffers of so many bytes on both sides of each direction, and a stream for it. Raises RuntimeError for what CUDA refuses."""

    def __init__(self, nbytes: int) -> None:
        self.made: list[tuple[str, ctypes.c_void_p]] = []
        self.host: dict[str, ctypes.c_void_p] = {}
        self.device: dict[str, ctypes.c_void_p] = {}
        self.streams: dict[str, ctypes.c_void_p] = {}
        try:
            for way in KINDS:
                size = ctypes.c_size_t(nbytes)
                self.host[way] = self._make("cudaHostAlloc", "cudaFreeHost", size, ctypes.c_uint(0))
                self.device[way] = self._make("cudaMalloc", "cudaFree", size)
                self.streams[way] = self._make(
                    "cudaStreamCreateWithFlags", "cudaStreamDestroy", ctypes.c_uint(NON_BLOCKING)
                )
        except RuntimeError:
            self.close()
            raise

    def _make(self, make: str, free: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        _call(make, ctypes.byref(made), *arguments)
        self.made.append((free, made))
        return made

    def begin(self, way: str, nbytes: int) -> None:
        """Enqueue a copy."""
        ends = (self.host[way], self.device[way]) if way == "out" else (self.device[way], self.host[way])
        _call("cudaMemcpyAsync", *ends, ctypes.c_size_t(nbytes), ctypes.c_int(KINDS[way]), self.streams[way])

    def finish(self, way: str) -> None:
        """Wait until the stream is idle."""
        _call("cudaStreamSynchronize", self.streams[way])

    def close(self) -> None:
        """Give everything back."""
        for free, what in reversed(self.made):
            getattr(_library(), free)(what)
        self.made.clear()


@contextmanager
def pinned_copies(index: int, nbytes: int) -> Iterator[PinnedCopies]:
    """Copies of at most so many bytes to and from the GPU of a number. Raises OSError without a driver."""
    cuda_runtime.load()
    before = cuda_runtime.current_device()
    cuda_runtime.set_device(index)
    try:
        copies = PinnedCopies(nbytes)
        try:
            yield copies
        finally:
            copies.close()
    finally:
        cuda_runtime.set_device(before)


def _library() -> ctypes.CDLL:
    return cuda_runtime.library()


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the runtime. Raises RuntimeError, which names it, for an error."""
    library = _library()
    code = int(getattr(library, name)(*arguments))
    if code:
        library.cudaGetLastError()
        library.cudaGetErrorString.restype = ctypes.c_char_p
        said = library.cudaGetErrorString(ctypes.c_int(code)) or b""
        raise RuntimeError(f"CUDA: {name}: {said.decode(errors='replace')} (error {code})")
