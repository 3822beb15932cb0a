# SPDX-License-Identifier: Apache-2.0
"""The allocator that CuPy calls: two C functions of libmemc_core (`cpp/replay/functions.h`), which ask the engine, and what they need."""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_void_p, cast, py_object
from typing import Any

from memc import native
from memc.ir.errors import UnsupportedError

_WHAT = "memc.cupy.planned_memory"

_ALLOCATE = CFUNCTYPE(c_void_p, c_int64)
_FREE = CFUNCTYPE(None, c_void_p)
_ALLOCATE_ARENA = CFUNCTYPE(c_void_p, c_void_p, c_int64)
_FREE_ARENA = CFUNCTYPE(None, c_void_p, c_void_p, c_int64)
_SYNCHRONIZE = CFUNCTYPE(None, c_void_p)

DRIVER = ("cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy_v2")
"""CUDA's calls, in the order of `memc_functions_host`."""


class _Host(Structure):
    _fields_ = [
        ("device", c_int32),
        ("current_stream", c_void_p),
        ("allocate", _ALLOCATE),
        ("free", _FREE),
        ("allocate_arena", _ALLOCATE_ARENA),
        ("free_arena", _FREE_ARENA),
        ("synchronize", _SYNCHRONIZE),
        ("create_event", c_void_p),
        ("record", c_void_p),
        ("wait", c_void_p),
        ("destroy_event", c_void_p),
        ("raise_error", c_void_p),
    ]


@functools.cache
def library() -> Any:
    """The native library, never unloaded: blocks may be freed until the process ends."""
    found = ctypes.CDLL(str(native.library_path()))
    for name, result, arguments in (
        ("create", c_void_p, [POINTER(_Host)]),
        ("engine", c_void_p, [c_void_p]),
        ("lead", None, [c_void_p]),
        ("pause", None, [c_void_p, c_int]),
        ("explain", None, [c_void_p, c_void_p]),
        ("close", None, [c_void_p]),
        ("abandon", None, [c_void_p]),
        ("live", c_int64, [c_void_p]),
    ):
        function = getattr(found, f"memc_functions_{name}")
        function.restype, function.argtypes = result, arguments
    return found


def address_of(function: Any) -> int:
    """Of a C function."""
    return cast(function, c_void_p).value or 0


def driver() -> list[int]:
    """Addresses of DRIVER. Raises UnsupportedError without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        return [address_of(getattr(cuda, name)) for name in DRIVER]
    except (OSError, AttributeError) as error:
        raise UnsupportedError(f"{_WHAT}: expected CUDA's driver, got: {' '.join(str(error).split())}") from None


def current_stream() -> int:
    """Address of CuPy's C function that tells the calling thread's stream. Raises UnsupportedError for a CuPy without it."""
    stream = importlib.import_module("cupy_backends.cuda.stream")
    capsule = getattr(stream, "__pyx_capi__", {}).get("get_current_stream_ptr")
    if capsule is None:
        raise UnsupportedError(f"{_WHAT}: expected CuPy 13 or 14, got one that does not tell its current stream")
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = c_char_p, [py_object]
    pointer_of.restype, pointer_of.argtypes = c_void_p, [py_object, c_char_p]
    return int(pointer_of(capsule, name_of(capsule)))


class Allocator:
    """What CuPy calls for each block: slots of the engine's, or memory of the allocator that CuPy had before.

    `malloc` is to be given to CuPy. No Python runs for a block that the engine serves.
    """

    def __init__(self, cupy: Any, malloc: Callable[[int], Any]) -> None:
        self._library = library()
        self._native = malloc
        self._blocks: dict[int, Any] = {}
        self._arenas: dict[int, Any] = {}
        self._thread = threading.local()
        self._host = _Host(
            cupy.cuda.runtime.getDevice(),
            current_stream(),
            _ALLOCATE(self._allocate),
            _FREE(self._free),
            _ALLOCATE_ARENA(self._allocate_arena),
            _FREE_ARENA(lambda _, address, nbytes: self._arenas.pop(address, None) and None),
            _SYNCHRONIZE(lambda _: cupy.cuda.runtime.deviceSynchronize()),
            *driver(),
            address_of(ctypes.pythonapi.PyErr_SetObject),
        )
        self._functions: int = self._library.memc_functions_create(byref(self._host))
        self.address: int = self._library.memc_functions_engine(self._functions)
        calls = (self._library.memc_functions_allocate, self._library.memc_functions_free)
        _KEPT.append(self)
        self.malloc: Callable[[int], Any] = cupy.cuda.memory.CFunctionAllocator(
            self._functions, *map(address_of, calls), self
        ).malloc

    def _allocate(self, nbytes: int) -> int | None:
        try:
            memory = self._native(nbytes)
        except Exception as error:
            self._thread.error = error  # It is raised when this has returned.
            self._library.memc_functions_explain(id(type(error)), id(error))
            return None
        self._blocks[memory.ptr] = memory
        return int(memory.ptr)

    def _free(self, address: int) -> None:
        self._blocks.pop(address, None)

    def _allocate_arena(self, _: int | None, nbytes: int) -> int | None:
        pool: Any = getattr(self._native, "__self__", None)
        if hasattr(pool, "free_all_blocks"):  # What the watched steps have left would lie beside the arena.
            pool.free_all_blocks()
        try:
            memory = self._native(nbytes)
        except MemoryError:
            return None
        self._arenas[memory.ptr] = memory
        return int(memory.ptr)

    def lead(self) -> None:
        """This thread's requests make the sequence of the step that begins."""
        self._library.memc_functions_lead(self._functions)

    def pause(self, on: bool) -> None:
        """Requests are native while an arena may be made or given back: that runs Python, for which they could not wait."""
        self._library.memc_functions_pause(self._functions, on)

    def abandon(self) -> None:
        """Touch the device no more, which may be gone before the process's last blocks."""
        self._library.memc_functions_abandon(self._functions)

    def close(self) -> None:
        """End the service. The arena goes back with its last block."""
        self._library.memc_functions_close(self._functions)
        if not self._library.memc_functions_live(self._functions):
            _KEPT.remove(self)


_KEPT: list[Allocator] = []
"""Those that blocks may still call."""
