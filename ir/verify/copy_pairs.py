# SPDX-License-Identifier: Apache-2.0
"""Structure of copies between spaces: starts and dones in pairs, pending values that nobody else reads, and what lies where.

That the bytes of a copy are left alone while it runs is what `copies` checks, on plans.
"""

from __future__ import annotations

from ..copies import (
    DESTINATIONS,
    STARTS,
    arena_states,
    has_copies,
    host_params,
    is_brought_back,
    is_copy,
    is_done,
    is_host_value,
    is_start,
    start_of,
)
from ..core import UNPLANNED, Block, Function, Op, Role, Value
from ..liveness import covers_root, updates_state
from ..spaces import HOST, is_shared_buffer
from ..text.printer import print_name
from .error_location import Where


def verify_copy_pairs(function: Function) -> None:
    """Raise InvalidError unless the copies of a function, which is valid otherwise, are sound."""
    if not has_copies(function):
        _no_copies_inside(function)
        return
    _no_copies_inside(function)
    waiting: dict[Value, tuple[int, Op]] = {}
    """Copies that have begun, by their pending value."""
    in_host, in_arena = set(host_params(function)), set(arena_states(function))
    for index, op in enumerate(function.ops):
        where = Where(function.name, index, op)
        if is_copy(op) and (op.plan != UNPLANNED or op.workspace is not None):
            where.fail("expected no plan and no workspace on a copy, which no kernel computes")
        for number, operand in enumerate(op.operands):
            _operand(where, op, number, operand, waiting, in_host)
        if is_start(op):
            _start(where, op, in_host, in_arena)
            waiting[op.results[0]] = (index, op)
        elif is_done(op):
            _done(where, op)
            if waiting.pop(op.operands[0], None) is None:
                where.fail(f"expected one {op.name} of each copy, got it again", op.operands[0])
    for value in function.returns:
        _returned(Where(function.name), value, in_host)
    for index, op in waiting.values():
        Where(function.name, index, op).fail(
            f"expected {STARTS[op.name]} of the copy before the function returns, got none", op.results[0]
        )


def _no_copies_inside(function: Function) -> None:
    """A group is one kernel, which neither begins copies nor waits for them."""
    for index, op in enumerate(function.ops):
        region: Block | None = op.region
        inner = None if region is None else next(filter(is_copy, region.ops), None)
        if inner is not None:
            Where(function.name, index, op).fail(
                f"expected no copy inside a region, which is one kernel, got {inner.name}"
            )


def _operand(
    where: Where, op: Op, number: int, operand: Value, waiting: dict[Value, tuple[int, Op]], in_host: set[Value]
) -> None:
    """Pending values are read by their done alone, and what lies in `host` by prefetches."""
    maker = operand.op
    if maker is not None and is_start(maker) and not (is_done(op) and number == 0):
        where.fail(f"expected a pending copy to be read by its {STARTS[maker.name]} alone, got {op.name}", operand)
    if (is_host_value(operand) or operand in in_host) and op.name not in ("prefetch_start", "prefetch_done"):
        if not (op.name == "offload_done" and number == 0):
            where.fail(f"expected a value in the space {HOST} to be read by prefetches alone, got {op.name}", operand)


def _start(where: Where, op: Op, in_host: set[Value], in_arena: set[Value]) -> None:
    source, result = op.operands[0], op.results[0]
    if op.name == "prefetch_start" and not is_host_value(source) and source not in in_host:
        what = "a result of the arena" if source.op is not None else f"an {Role.INPUT.value}"
        where.fail(
            f"expected the result of an offload_done, or a weight or state, as what a prefetch copies, got {what}",
            source,
        )
    if result.alias is not None and _is_state_in_host(result, in_host):
        return
    if is_brought_back(result):
        if result.root not in in_arena or not covers_root(result):
            where.fail(
                f"expected the whole of a state that an offload_start reads, got {print_name(result.root)}", result
            )
        return
    if result.alias is not None and op.name == "offload_start":
        where.fail(f"expected bytes of its own for a copy in {HOST}, got those of {print_name(result.root)}", result)
    place = result.root.placement
    if place is None or is_shared_buffer(place.space):
        return
    if (place.space == HOST) != (op.name == "offload_start"):
        where.fail(f"expected a copy to @{DESTINATIONS[op.name]}, got one to @{place.space}", result)


def _is_state_in_host(value: Value, in_host: set[Value]) -> bool:
    """Whether a copy writes the new content of a state that lies in `host`."""
    return value.op is not None and value.op.name == "offload_start" and value.root in in_host


def _done(where: Where, op: Op) -> None:
    start, result = start_of(op), op.results[0]
    pending = op.operands[0]
    if start is None:
        expected = next(name for name, done in STARTS.items() if done == op.name)
        where.fail(f"expected the result of {expected} as what {op.name} waits for", pending)
    if op.operands[1] is not start.operands[0]:
        where.fail(
            f"expected the source of the copy, {print_name(start.operands[0])}, as operand 1, "
            f"got {print_name(op.operands[1])}",
            op.operands[1],
        )
    tied = result.root is pending.root and result.offset_in_root == pending.offset_in_root
    if not tied and (result.alias is not None or pending.alias is not None or pending.placement is not None):
        where.fail(f"expected an alias of {print_name(pending)}, whose bytes the copy is in", result)


def _returned(where: Where, value: Value, in_host: set[Value]) -> None:
    """Callers are given no bytes that a copy writes: those may be another's at the next run, or not be reached at all."""
    if value.op is not None and is_start(value.op):
        where.fail("expected no pending copy to be returned", value)
    root = value.root
    if root in in_host and updates_state(value):
        return
    if is_host_value(root) or root in in_host or (root.op is not None and is_start(root.op)):
        what = (
            f"a value in the space {HOST}" if is_host_value(root) or root in in_host else "the bytes that a copy writes"
        )
        where.fail(f"expected returned values in buffers of their own, got {what} (run materialize-returns)", value)
    if value.op is not None and is_done(value.op):
        where.fail("expected returned values in buffers of their own, got the bytes that a copy writes", value)
