# SPDX-License-Identifier: Apache-2.0
"""As much of CuPy as an allocator touches, over host memory, whose arrays check that their bytes stay their own."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class CUDARuntimeError(RuntimeError):
    pass


class MemoryPointer:
    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


class CFunctionAllocatorMemory:
    """As CuPy's: the interpreter is held in calls, and what they raise is raised."""

    def __init__(self, size: int, param: int, malloc: int, free: int, device: int) -> None:
        self.ptr, self.size, self.param, self.device = 0, size, param, device
        self.free = _FREE(free)
        if size > 0:
            self.ptr = _MALLOC(malloc)(param, size, device)

    def __del__(self) -> None:
        if self.ptr:
            self.free(self.param, self.ptr, self.device)


_MALLOC = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FREE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_STREAM = ctypes.CFUNCTYPE(ctypes.c_ssize_t)
_EVENT = (
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint),
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint),
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p),
)


def rounded(size: int) -> int:
    return max(512, -(-size // 512) * 512)


class Chunk:
    """Bytes of the pool's, which go back when it is gone."""

    def __init__(self, pool: Pool, size: int) -> None:
        self.pool, self.size = pool, rounded(size)
        free = pool.free.get(self.size)
        self.buffer = free.pop() if free else ctypes.create_string_buffer(self.size + 512)
        if not free and self.buffer not in pool.all:
            pool.all.append(self.buffer)
        self.ptr = -(-ctypes.addressof(self.buffer) // 512) * 512

    def __del__(self) -> None:
        self.pool.free.setdefault(self.size, []).append(self.buffer)


class Pool:
    """Chunks of one size each, kept for the next request of it."""

    def __init__(self) -> None:
        self.free: dict[int, list[Any]] = {}
        self.all: list[Any] = []
        self.asked = 0
        self.capacity = 2**40

    def malloc(self, size: int) -> MemoryPointer:
        self.asked += 1
        if not self.free.get(rounded(size)) and self.total_bytes() + size > self.capacity:
            raise MemoryError(f"Out of memory allocating {size:,} bytes")
        return MemoryPointer(Chunk(self, size), 0)

    def total_bytes(self) -> int:
        return sum(len(buffer) - 512 for buffer in self.all)

    def free_all_blocks(self) -> None:
        for buffers in self.free.values():
            for buffer in buffers:
                self.all.remove(buffer)
        self.free = {}


@dataclass
class FakeCupy(types.ModuleType):
    """The module. `stream` and `device` are the current ones; `log` has what the runtime was asked to do."""

    stream: int = 0
    device: int = 0
    pool: Pool = field(default_factory=Pool)
    log: list[tuple[Any, ...]] = field(default_factory=list)
    allocator: Callable[[int], Any] | None = None

    def __post_init__(self) -> None:
        super().__init__("cupy")
        self.allocator = self.pool.malloc
        self.functions = [
            make(call) for make, call in zip(_EVENT, (self._create, self._record, self._wait, self._destroy))
        ]
        self.stream_function = _STREAM(lambda: self.stream)
        self.cuda = types.SimpleNamespace(
            MemoryPointer=MemoryPointer,
            memory=types.SimpleNamespace(CFunctionAllocator=self._c_function_allocator),
            get_allocator=lambda: self.allocator,
            set_allocator=lambda allocator: setattr(self, "allocator", allocator),
            runtime=types.SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                getDevice=lambda: self.device,
                getDeviceProperties=lambda device: {"name": b"Fake GPU"},
                deviceSynchronize=lambda: self.log.append(("synchronize",)),
            ),
        )

    def backend(self) -> types.ModuleType:
        """The module `cupy_backends.cuda.stream`."""
        found = types.ModuleType("cupy_backends.cuda.stream")
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        address = ctypes.cast(self.stream_function, ctypes.c_void_p)
        found.__pyx_capi__ = {"get_current_stream_ptr": make(address, _SIGNATURE, None)}  # type: ignore[attr-defined]
        return found

    def driver(self) -> list[int]:
        """Addresses of the driver's calls."""
        return [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self.functions]

    def _c_function_allocator(self, param: int, malloc: int, free: int, owner: object) -> Any:
        def allocate(size: int) -> MemoryPointer:
            return MemoryPointer(CFunctionAllocatorMemory(size, param, malloc, free, self.device), 0)

        return types.SimpleNamespace(malloc=allocate, owner=owner)

    def _create(self, event: Any, _: int) -> int:
        event[0] = len(self.log) + 1
        return 0

    def _record(self, event: int, stream: int | None) -> int:
        self.log.append(("record", event, stream or 0))
        return 0

    def _wait(self, stream: int | None, event: int, _: int) -> int:
        self.log.append(("wait", stream or 0, event))
        return 0

    def _destroy(self, event: int) -> int:
        self.log.append(("destroy", event))
        return 0

    def array(self, size: int) -> Array:
        assert self.allocator is not None
        return Array(self.allocator(size), size)


_SIGNATURE = b"intptr_t (void)"
"""Which the capsule keeps a pointer to."""


class Array:
    """Bytes filled with a number of its own, which are still there at its end."""

    count = 0

    def __init__(self, memory: MemoryPointer, size: int) -> None:
        Array.count += 1
        self.memory, self.size, self.mark = memory, size, Array.count % 251
        ctypes.memset(memory.ptr, self.mark, size)

    @property
    def ptr(self) -> int:
        return self.memory.ptr

    def intact(self) -> bool:
        return ctypes.string_at(self.memory.ptr, self.size) == bytes([self.mark]) * self.size
