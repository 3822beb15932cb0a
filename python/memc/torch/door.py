# SPDX-License-Identifier: Apache-2.0
"""The native side of planned memory in PyTorch: the allocator in front of PyTorch's own."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_void_p

import torch

from memc import native
from memc.ir.errors import UnsupportedError

from .build import NAME, VARIABLE, allocator_library, built_for


@functools.cache
def library() -> ctypes.CDLL:
    """The library, never unloaded: blocks may be freed until the process ends.

    Raises UnsupportedError for one that is built for another PyTorch or another memc, and as `allocator_library`.
    """
    path = allocator_library()
    native.load()
    try:
        # The engine in there is what the library calls.
        ctypes.CDLL(str(native.library_path()), mode=ctypes.RTLD_GLOBAL)
        found = ctypes.CDLL(str(path))
        found.memc_torch_built_for.restype = c_char_p
        other = found.memc_torch_built_for().decode()
    except (OSError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UnsupportedError(f"{path}: cannot load: {reason}; remove it, or unset {VARIABLE}") from None
    if other != built_for():
        raise UnsupportedError(
            f"{path}: expected {NAME} for PyTorch {built_for()}, got one for {other}; remove it, or unset {VARIABLE}"
        )
    for name, result, arguments in (
        ("memc_torch_install", c_char_p, []),
        ("memc_torch_uninstall", c_char_p, []),
        ("memc_torch_abandon", None, []),
        ("memc_torch_engine", c_void_p, [c_int]),
        ("memc_torch_lead_step", None, []),
        ("memc_torch_pool_open", c_int, [c_int]),
        ("memc_torch_in_arena", c_int, [c_int, c_void_p]),
        ("memc_torch_reserved", None, [c_int, POINTER(c_int64), POINTER(c_int64)]),
        ("memc_torch_swap_storages", None, [c_void_p, c_void_p]),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def install() -> str:
    """Put the allocator in front of PyTorch's. Empty, or why that cannot be."""
    answer = library().memc_torch_install()
    return answer.decode() if answer else ""


def uninstall() -> str:
    """Put PyTorch's back. Empty, or why that cannot be: then the other stays, and passes all on."""
    answer = library().memc_torch_uninstall()
    return answer.decode() if answer else ""


def abandon() -> None:
    """Touch no device any more, which may be gone before the process's last blocks."""
    library().memc_torch_abandon()


def lead_step() -> None:
    """This thread's requests make the sequence of the step that begins."""
    library().memc_torch_lead_step()


def engine_address(device: int) -> int:
    """Of a device's engine, while the allocator is installed."""
    return int(library().memc_torch_engine(device))


def pool_open(device: int) -> bool:
    """Whether requests go to a private pool, as while a graph is captured."""
    return bool(library().memc_torch_pool_open(device))


def in_arena(device: int, address: int) -> bool:
    """Whether an arena has the byte at the address."""
    return bool(library().memc_torch_in_arena(device, address))


def reserved(device: int) -> tuple[int, int]:
    """Bytes that PyTorch's allocator has got of the device, and of these bytes in blocks that are in use; an arena is one."""
    of_device, in_use = c_int64(), c_int64()
    library().memc_torch_reserved(device, byref(of_device), byref(in_use))
    return of_device.value, in_use.value


def swap_storages(one: torch.UntypedStorage, other: torch.UntypedStorage) -> None:
    """Exchange their bytes, for all tensors that are views of them."""
    library().memc_torch_swap_storages(one._cdata, other._cdata)
