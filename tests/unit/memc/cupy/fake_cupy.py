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


class UnownedMemory:
    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


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
        self.cuda = types.SimpleNamespace(
            MemoryPointer=MemoryPointer,
            UnownedMemory=UnownedMemory,
            get_allocator=lambda: self.allocator,
            set_allocator=lambda allocator: setattr(self, "allocator", allocator),
            get_current_stream=lambda: types.SimpleNamespace(ptr=self.stream),
            runtime=types.SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                eventDisableTiming=2,
                getDevice=lambda: self.device,
                getDeviceProperties=lambda device: {"name": b"Fake GPU"},
                deviceSynchronize=lambda: self.log.append(("synchronize",)),
                eventCreateWithFlags=lambda flags: len(self.log) + 1,
                eventRecord=lambda event, stream: self.log.append(("record", event, stream)),
                streamWaitEvent=lambda stream, event: self.log.append(("wait", stream, event)),
                eventDestroy=lambda event: self.log.append(("destroy", event)),
            ),
        )

    def array(self, size: int) -> Array:
        assert self.allocator is not None
        return Array(self.allocator(size), size)


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
