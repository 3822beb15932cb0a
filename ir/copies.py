# SPDX-License-Identifier: Apache-2.0
"""Copies between spaces as pairs of a start and a done: which ops they are, and what lies in the space `host`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .core import Function, Op, Role, Value
from .spaces import ARENA, HOST, DeviceId, Space
from .target import Kind, Target

STARTS = {"offload_start": "offload_done", "prefetch_start": "prefetch_done"}
"""The op that waits for the copy that an op begins."""

DONES = frozenset(STARTS.values())

DESTINATIONS = {"offload_start": HOST, "prefetch_start": ARENA}
"""The space that a copy writes to."""

HOSTS: dict[Kind, DeviceId] = {"llvm": DeviceId("cpu"), "cuda": DeviceId("cuda_host")}
"""Where the space `host` of each kind of target lies by itself."""


def is_start(op: Op) -> bool:
    """Whether the op begins a copy."""
    return op.name in STARTS


def is_done(op: Op) -> bool:
    """Whether the op waits for a copy."""
    return op.name in DONES


def is_copy(op: Op) -> bool:
    """Whether the op begins a copy or waits for one."""
    return is_start(op) or is_done(op)


def has_copies(function: Function) -> bool:
    """Whether any op of the function begins a copy or waits for one."""
    return any(is_copy(op) for op in function.ops)


def start_of(done: Op) -> Op | None:
    """The op that began the copy which `done` waits for; None where the IR is not valid."""
    start = done.operands[0].op if done.operands else None
    return start if start is not None and STARTS.get(start.name) == done.name else None


def is_host_value(value: Value) -> bool:
    """Whether a result is a copy in the space `host`: what `offload_start` or `offload_done` gives."""
    return value.op is not None and value.op.name in ("offload_start", "offload_done")


def host_params(function: Function) -> list[Value]:
    """Weights and states that lie in the space `host`, in their order: those that a `prefetch_start` reads."""
    read = {op.operands[0] for op in function.ops if op.name == "prefetch_start" and op.operands}
    return [p for p in function.params if p in read and p.role in (Role.WEIGHT, Role.STATE)] if read else []


def arena_states(function: Function) -> list[Value]:
    """States that lie in the arena when a run begins and ends, in their order: those that an `offload_start` reads. Their bytes are
    free from its done to the `prefetch_start` that writes them again, which aliases the state."""
    read = {op.operands[0] for op in function.ops if op.name == "offload_start" and op.operands}
    return [p for p in function.params if p in read and p.role is Role.STATE] if read else []


def is_brought_back(value: Value) -> bool:
    """Whether a value is what an arena state has again after its absence: of the copy from the host, or of its done."""
    if value.op is None or value.op.name not in ("prefetch_start", "prefetch_done"):
        return False
    return value.alias is not None and value.alias.root.role is Role.STATE


def is_written_back(value: Value) -> bool:
    """Whether a value is the new content of a state in the space `host`, which a copy to there writes: of a start or of its done."""
    return is_host_value(value) and value.alias is not None and value.alias.root.role is Role.STATE


def with_host_space(target: Target, functions: Iterable[Function]) -> Target:
    """The target of functions, with a space `host` where they have copies; one that the target has is kept."""
    if any(space.name == HOST for space in target.spaces) or not any(map(has_copies, functions)):
        return target
    return replace(target, spaces=(*target.spaces, Space(HOST, HOSTS[target.kind], "values")))
