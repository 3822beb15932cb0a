# SPDX-License-Identifier: Apache-2.0
"""The program's functions that allocate memory: its spaces once, and the outputs of each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from memc.ir.core import Function, Value
from memc.ir.function_footprint import footprint_of
from memc.ir.liveness import updates_state
from memc.ir.spaces import ARENA, IO, WEIGHTS, DeviceId
from memc.runtime.artifact.storages import Storage, devices_of
from memc.runtime.artifact.weight_slab import slab_entries
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen.copies import emit_slab, emit_slab_bytes
from memc.runtime.codegen.emitter import Emitter, Immediate

SMALLEST = 64
"""Bytes of a storage that holds nothing."""

ALWAYS = (ARENA, WEIGHTS, IO)
"""Spaces of every program; it has others where something lies in them."""


def storages_of(function: Function, target: CodeTarget) -> tuple[Storage, ...]:
    """The spaces of a planned function's program, in the order in which it is given their storages."""
    found = footprint_of(function, target.target)
    return tuple(
        Storage(
            space.name,
            space.device,
            space.holds,
            target.kernel_alignment if space.holds == "io" else target.alignment,
            found[space.name],
        )
        for space in target.target.spaces
        if space.name in ALWAYS or found[space.name]
    )


def given_back(function: Function) -> list[Value]:
    """The returned values that callers get: not the new contents of states, which stay where the states are."""
    return [value for value in function.returns if not updates_state(value)]


def emit_allocation(emitter: Emitter, storages: Sequence[Storage]) -> None:
    """The functions that allocate the spaces and the outputs, and those that give the bytes of weights."""
    devices = devices_of(storages)
    filled = {entry.space for entry in slab_entries(emitter.function, emitter.target.alignment)}
    filled |= {storage.name for storage in storages if storage.holds == "weights"}
    for storage in storages:
        pinned = storage.is_pinned
        if pinned:
            emit_slab(emitter, storage)
        elif storage.is_allocated:
            emit_storage(emitter, storage, devices)
        if storage.name in filled:
            (emit_slab_bytes if pinned else emit_bytes)(emitter, storage)
    device = next(storage.device for storage in storages if storage.name == IO)
    emit_outputs(emitter, devices.index(device))


def storage_arguments(emitter: Emitter, nbytes: int, device: int) -> list[Any]:
    """What allocates so many bytes on a device, given by its number among the virtual machine's."""
    b = emitter.builder
    scope = b.convert_constant("global")
    return [b.vm_state(), (max(nbytes, SMALLEST),), Immediate(device), tvm.DataType("uint8"), scope]


def emit_storage(emitter: Emitter, storage: Storage, devices: Sequence[DeviceId]) -> None:
    emitter.next_register = 0
    arguments = storage_arguments(emitter, storage.bytes, devices.index(storage.device))
    with emitter.builder.function(storage.maker, 0, []):
        register = emitter.call("vm.builtin.alloc_storage", arguments, result=True)
        emitter.builder.emit_ret(emitter.builder.r(register))


def emit_bytes(emitter: Emitter, storage: Storage) -> None:
    emitter.next_register = 1
    with emitter.builder.function(storage.viewer, 1, ["storage"]):
        dtype = tvm.DataType("uint8")
        arguments = [emitter.builder.r(0), Immediate(0), (storage.bytes,), dtype]
        register = emitter.call("vm.builtin.alloc_tensor", arguments, result=True)
        emitter.builder.emit_ret(emitter.builder.r(register))


def emit_outputs(emitter: Emitter, device: int) -> None:
    for n, value in enumerate(given_back(emitter.function)):
        emitter.next_register = 0
        with emitter.builder.function(f"output.{n}", 0, []):
            arguments = storage_arguments(emitter, value.type.nbytes, device)
            storage = emitter.call("vm.builtin.alloc_storage", arguments, result=True)
            dtype = tvm.DataType(value.type.dtype.numpy.name)
            arguments = [emitter.builder.r(storage), Immediate(0), tuple(value.type.shape), dtype]
            register = emitter.call("vm.builtin.alloc_tensor", arguments, result=True)
            emitter.builder.emit_ret(emitter.builder.r(register))
