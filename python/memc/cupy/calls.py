# SPDX-License-Identifier: Apache-2.0
"""The calls of `cpp/replay/replay.h` that an allocator makes for each block, and a device as its engine needs one."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_int, c_int64, c_uint64, c_void_p
from threading import get_ident
from typing import Any

from memc import native

_ALLOCATE = CFUNCTYPE(c_void_p, c_void_p, c_int64)
_FREE = CFUNCTYPE(None, c_void_p, c_void_p, c_int64)
_SYNCHRONIZE = CFUNCTYPE(None, c_void_p)
_RECORD = CFUNCTYPE(c_uint64, c_void_p, c_uint64, c_uint64)
_WAIT = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)
_DESTROY = CFUNCTYPE(None, c_void_p, c_uint64)


class _Backend(Structure):
    _fields_ = [
        ("context", c_void_p),
        ("allocate_arena", _ALLOCATE),
        ("free_arena", _FREE),
        ("synchronize", _SYNCHRONIZE),
        ("record_event", _RECORD),
        ("wait_event", _WAIT),
        ("destroy_event", _DESTROY),
    ]


class _Block(Structure):
    _fields_ = [("address", c_void_p), ("ticket", c_uint64)]
    address: int | None
    ticket: int


@functools.cache
def library() -> Any:
    """The native library, never unloaded: blocks may be freed until the process ends."""
    found = ctypes.CDLL(str(native.library_path()))
    for name, result, arguments in (
        ("create", c_void_p, [POINTER(_Backend)]),
        ("destroy", c_int, [c_void_p]),
        ("abandon", None, [c_void_p]),
        ("allocate", c_int, [c_void_p, c_int64, c_uint64, c_int, POINTER(_Block)]),
        ("free", None, [c_uint64]),
    ):
        function = getattr(found, f"memc_replay_{name}")
        function.restype, function.argtypes = result, arguments
    return found


class Device:
    """What an engine asks a device for, through CuPy: an arena of CuPy's own allocator, and events."""

    def __init__(self, cupy: Any, malloc: Callable[[int], Any]) -> None:
        self._cupy = cupy
        self._malloc = malloc
        self._arenas: dict[int, Any] = {}
        self.backend = _Backend(
            None,
            _ALLOCATE(self._allocate_arena),
            _FREE(self._free_arena),
            _SYNCHRONIZE(lambda _: cupy.cuda.runtime.deviceSynchronize()),
            _RECORD(self._record_event),
            _WAIT(self._wait_event),
            _DESTROY(lambda _, event: cupy.cuda.runtime.eventDestroy(event)),
        )

    def _allocate_arena(self, _: int | None, nbytes: int) -> int | None:
        pool: Any = getattr(self._malloc, "__self__", None)
        if hasattr(pool, "free_all_blocks"):  # What the watched steps have left would lie beside the arena.
            pool.free_all_blocks()
        try:
            memory = self._malloc(nbytes)
        except MemoryError:
            return None
        self._arenas[memory.ptr] = memory
        return int(memory.ptr)

    def _free_arena(self, _: int | None, address: int, nbytes: int) -> None:
        self._arenas.pop(address, None)

    def _record_event(self, _: int | None, stream: int, event: int) -> int:
        runtime = self._cupy.cuda.runtime
        try:
            event = event or runtime.eventCreateWithFlags(runtime.eventDisableTiming)
            runtime.eventRecord(event, stream)
        except runtime.CUDARuntimeError:
            return 0
        return int(event)

    def _wait_event(self, _: int | None, stream: int, event: int) -> int:
        try:
            self._cupy.cuda.runtime.streamWaitEvent(stream, event)
        except self._cupy.cuda.runtime.CUDARuntimeError:
            return -1
        return 0


def slot_class(free: Callable[[int], None]) -> Any:
    """What owns a block of the engine's: the block is free when it is gone. It has few words, as one is made for each block."""

    class Slot:
        __slots__ = ("memory", "ticket")
        ticket: int
        memory: object
        """What holds the bytes, if they are native."""

        def __del__(self) -> None:
            free(self.ticket)

    return Slot


class Allocator:
    """What CuPy calls for each block: a slot of the engine's, or CuPy's own memory."""

    def __init__(self, cupy: Any, malloc: Callable[[int], Any]) -> None:
        self._library = library()
        self._malloc = malloc
        self._number = cupy.cuda.runtime.getDevice()
        self.device = Device(cupy, malloc)
        self.address: int = self._library.memc_replay_create(byref(self.device.backend))
        self.leader = 0
        """The thread whose requests make the sequence of the step."""
        # Each look-up of a name counts here: an allocation is some microseconds.
        self._allocate = self._library.memc_replay_allocate
        self._free = self._library.memc_replay_free
        self._slot = slot_class(self._free)
        self._current_device = cupy.cuda.runtime.getDevice
        self._current_stream = cupy.cuda.get_current_stream
        self._pointer = cupy.cuda.MemoryPointer
        self._unowned = cupy.cuda.UnownedMemory

    def __call__(self, nbytes: int) -> Any:
        """A CuPy MemoryPointer. Raises what CuPy's own allocator does."""
        if nbytes <= 0 or self._current_device() != self._number:
            return self._malloc(nbytes)
        block = _Block()
        other = get_ident() != self.leader
        if self._allocate(self.address, nbytes, self._current_stream().ptr, other, byref(block)) == 1:
            owner = self._slot()
            owner.ticket = block.ticket
            return self._pointer(self._unowned(block.address, nbytes, owner, self._number), 0)
        if not block.ticket:
            return self._malloc(nbytes)
        try:
            memory = self._malloc(nbytes)
        except BaseException:
            self._free(block.ticket)
            raise
        owner = self._slot()
        owner.ticket, owner.memory = block.ticket, memory
        return self._pointer(self._unowned(memory.ptr, nbytes, owner, self._number), 0)

    def abandon(self) -> None:
        """Touch the device no more, which may be gone before the process's last blocks."""
        self._library.memc_replay_abandon(self.address)

    def close(self) -> None:
        """End the service. The arena goes back with its last block."""
        if self._library.memc_replay_destroy(self.address):
            _KEPT.append(self.device)


_KEPT: list[Device] = []
"""Devices whose engines ended while blocks were in use: the last of these gives the arena back to them."""
