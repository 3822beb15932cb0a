# SPDX-License-Identifier: Apache-2.0
"""Copies between spaces in a program: on the CPU by tickets, on CUDA between the arena and the slab that the space `host` is."""

from __future__ import annotations

from memc.ir.copies import DESTINATIONS, STARTS, is_start
from memc.ir.core import Op
from memc.ir.spaces import HOST
from memc.runtime.artifact.manifest import COPY_DONE, COPY_START, SLAB_BYTES, SLAB_DONE, SLAB_OPEN, SLAB_START
from memc.runtime.artifact.storages import Storage
from memc.runtime.codegen.emitter import Emitter, Immediate

FORKED = 2
"""Beside the direction of a copy: its lane has waited for the kernels already."""


def emit_copy(emitter: Emitter, op: Op) -> list[str]:
    """Begin a copy on its lane, or wait for it. Returns the function that does so; none where nothing need wait."""
    on_cuda = emitter.target.kind == "cuda"
    if on_cuda and not is_start(op) and op not in emitter.copies.joins:
        return []
    name = emit_slab_copy(emitter, op) if on_cuda else emit_ticket(emitter, op)
    emitter.symbols.add(name)
    return [name]


def emit_ticket(emitter: Emitter, op: Op) -> str:
    """A copy within the host's memory."""
    if not is_start(op):
        emitter.call(COPY_DONE, [emitter.builder.r(emitter.tickets[op.operands[0]])])
        return COPY_DONE
    tensors = [emitter.builder.r(emitter.register_of(v)) for v in (op.operands[0], op.results[0])]
    lane = emitter.builder.convert_constant(op.attrs["lane"])
    ticket = emitter.call(COPY_START, [*tensors, lane], result=True)
    assert ticket is not None
    emitter.tickets[op.results[0]] = ticket
    return COPY_START


def emit_slab_copy(emitter: Emitter, op: Op) -> str:
    """A copy between the device's memory and the slab."""
    copies = emitter.copies
    if not is_start(op):
        pending = op.operands[0]
        on_host = pending if op.name == STARTS["offload_start"] else op.operands[1]
        register, _ = emitter.storages[on_host.root]
        emitter.call(SLAB_DONE, [emitter.builder.r(register), Immediate(copies.slots[pending])])
        return SLAB_DONE
    out = DESTINATIONS[op.name] == HOST
    source, pending = op.operands[0], op.results[0]
    on_device, on_host = (source, pending) if out else (pending, source)
    register, base = emitter.storages[on_host.root]
    offset = base + on_host.offset_in_root
    way = int(out) + (0 if op in copies.forks else FORKED)
    numbers = (offset, way, copies.lanes[str(op.attrs["lane"])], copies.slots[pending])
    tensor = emitter.builder.r(emitter.register_of(on_device))
    emitter.call(SLAB_START, [emitter.builder.r(register), tensor, *map(Immediate, numbers)])
    return SLAB_START


def emit_slab(emitter: Emitter, storage: Storage) -> None:
    """The function that makes a slab, with a stream for each lane and an event for each slot."""
    emitter.next_register = 0
    copies = emitter.copies
    numbers = (storage.device.index, storage.bytes, len(copies.lanes), copies.count)
    emitter.symbols.add(SLAB_OPEN)
    with emitter.builder.function(storage.maker, 0, []):
        register = emitter.call(SLAB_OPEN, list(map(Immediate, numbers)), result=True)
        emitter.builder.emit_ret(emitter.builder.r(register))


def emit_slab_bytes(emitter: Emitter, storage: Storage) -> None:
    """The function that gives the slab's memory."""
    emitter.next_register = 1
    emitter.symbols.add(SLAB_BYTES)
    with emitter.builder.function(storage.viewer, 1, ["storage"]):
        register = emitter.call(SLAB_BYTES, [emitter.builder.r(0)], result=True)
        emitter.builder.emit_ret(emitter.builder.r(register))
