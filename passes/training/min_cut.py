# SPDX-License-Identifier: Apache-2.0
"""The mirror counts of policy `min-cut`: which forward results to keep for the gradients, as a minimum cut.

A value that the backward pass reads is kept, or recomputed from others by an op that costs little more than moving its bytes. For
each value there are two nodes, `made` and `read`:

    made -> read     its bytes               cut: the value is kept; nothing if it is live at the end anyway
    read -> made     of each cheap reader    uncuttable: to recompute a result, its operands are needed
    source -> made   bytes for the time that recomputing takes; uncuttable where the op is not cheap
    read -> sink     uncuttable where the backward pass reads the value

So a cut of least cost is the least sum of bytes kept and of time at a price, and of all such the one that recomputes least. The price
is the lowest tried at which the recomputed ops take no more than a share of the step's time. As in the partitioner of PyTorch's
AOTAutograd, but with a price of time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from memc.ir.core import Function, Op, Value
from memc.ir.cost_model import DEVICES, Device, moved_bytes
from memc.ir.op_queries import flops, has, view_offset
from memc.ir.ops.shared.casts import HALF
from memc.ir.ops.shared.op_def import Trait
from memc.solvers.min_cut import UNCUT, Edge, sink_side

CHEAP = frozenset({"batch_norm", "layer_norm", "max_pool", "avg_pool", "sum_pool", "dropout"})
"""Ops that are cheap to compute again although they are not marked so: a few operations for each byte."""

MOST_TIME = 0.05
"""The share of a step's time that recomputing may add."""

PRICES = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4, 0.6, 1.0, 2.0)
"""Bytes kept in place of each byte moved to recompute, from low to high. At the last one next to nothing is recomputed."""

HALF_SPEED = 8
"""How many times faster than in f32 tensor cores compute halves."""

BACKWARD = 2
"""Operations and bytes of the backward pass for each of the forward pass."""


def is_cheap(op: Op) -> bool:
    """Whether an op costs little more than reading its operands and writing its result."""
    if op.name in ("constant", "assign") or has(op, Trait.ONCE) or has(op, Trait.COPY):
        return False
    if op.name in CHEAP:
        return True
    if has(op, Trait.RANDOM):
        return False
    return has(op, Trait.CHEAP) or has(op, Trait.ELEMENTWISE) or view_offset(op) is not None or op.name in MOVES


MOVES = frozenset({"transpose", "slice", "concat", "broadcast"})
"""Ops that only move elements."""


def min_cut_counts(
    function: Function, needed: Mapping[Value, bool], device: Device = DEVICES["cuda"], share: float = MOST_TIME
) -> dict[Op, int]:
    """1 for the ops whose results are dropped, 0 for all others.

    Args:
        needed: the function's values that its backward pass reads, and whether they have to be written for it.
        device: what the time of ops is modelled by.
        share: of the step's time, what recomputing may take at most.
    """
    kept = _Kept(function, needed)
    limit = round(share * step_seconds(function, device) * device.bandwidth)
    best: set[Op] = set()
    for price in PRICES:
        dropped = kept.dropped(price)
        fits = added_bytes(function, dropped, needed) <= limit
        chosen = dropped if fits else _within(function, dropped, needed, limit)
        if kept_bytes(function, chosen, needed) < kept_bytes(function, best, needed):
            best = chosen
        if fits:
            break
    return {op: int(op in best) for op in function.ops}


def _within(function: Function, dropped: Collection[Op], needed: Mapping[Value, bool], limit: int) -> set[Op]:
    """Of the ops, which are recomputed in parts that read nothing of each other, the parts that keep the most bytes from being kept for
    each that they move, up to `limit` bytes moved."""
    parts = _parts(function, dropped)
    moved = [added_bytes(function, part, needed) for part in parts]
    saved = [sum(v.type.nbytes for op in part for v in op.results if v in needed) for part in parts]
    taken: set[Op] = set()
    for index in sorted(range(len(parts)), key=lambda i: (moved[i] / max(saved[i], 1), i)):
        if moved[index] <= limit:
            limit -= moved[index]
            taken |= parts[index]
    return taken


def _parts(function: Function, dropped: Collection[Op]) -> list[set[Op]]:
    """The ops, apart where no value of one is read by another."""
    part: dict[Op, set[Op]] = {}
    for op in function.ops:
        if op not in dropped:
            continue
        own = part[op] = {op}
        for maker in [v.op for v in op.operands if v.op in part]:
            joined = part[maker] if maker is not None else own
            if joined is not own:
                large, small = (joined, own) if len(joined) >= len(own) else (own, joined)
                large |= small
                part.update(dict.fromkeys(small, large))
                own = large
    return list({id(found): found for found in part.values()}.values())


def kept_bytes(function: Function, dropped: Collection[Op], needed: Mapping[Value, bool]) -> int:
    """Bytes of the function's values that are kept for the backward pass, if `dropped` are recomputed in it."""
    read = dict.fromkeys([*needed, *(v for op in function.ops if op in dropped for v in op.operands)])
    roots: dict[Value, Value] = {}
    for op in function.ops:
        is_view = view_offset(op) is not None
        roots.update((v, roots.get(op.operands[0], op.operands[0]) if is_view else v) for v in op.results)
    kept = {roots[v] for v in read if v.op is not None and v.op not in dropped and v in roots}
    return sum(v.type.nbytes for v in kept if v.op is not None and v.op.name != "constant")


@dataclass(frozen=True)
class _Kept:
    """A function's values as a network."""

    function: Function
    needed: Collection[Value]

    def dropped(self, price: float) -> set[Op]:
        """The ops that are recomputed, at `price` bytes for each byte that they move."""
        made: dict[Value, int] = {}
        edges: list[Edge] = []
        last = _read_last(self.function)
        for op in self.function.ops:
            if op.name == "constant":
                continue
            cost = self._price(op, price)
            for value in op.results:
                node = made[value] = 2 + 2 * len(made)
                size = UNCUT if view_offset(op) is not None and is_cheap(op) else value.type.nbytes
                size = 0 if value in last else size
                edges += [(0, node, cost), (node, node + 1, size)]
                if value in self.needed:
                    edges.append((node + 1, 1, UNCUT))
                if cost < UNCUT:
                    edges += [(made[v] + 1, node, UNCUT) for v in dict.fromkeys(op.operands) if v in made]
        side = sink_side(2 + 2 * len(made), edges)
        return {value.op for value, node in made.items() if node in side and value.op is not None}

    @staticmethod
    def _price(op: Op, price: float) -> int:
        if not is_cheap(op):
            return UNCUT
        return 0 if view_offset(op) is not None else round(price * moved_bytes(op))


def _read_last(function: Function) -> set[Value]:
    """What the last op that is not cheap and those behind it read: it is live where the backward pass begins, kept or not."""
    found: set[Value] = set()
    for op in reversed(function.ops):
        found.update(op.operands)
        if not is_cheap(op) and op.name != "constant":
            break
    for op in reversed(function.ops):
        if op.results and op.results[0] in found and view_offset(op) is not None:
            found.add(op.operands[0])
    return found


def added_bytes(function: Function, dropped: Collection[Op], needed: Mapping[Value, bool]) -> int:
    """Bytes that the kernels of `dropped` move: each reads what is kept, and writes a result that several ops read or one that no
    kernel computes for itself. What the backward pass recomputes in the kernel of its reader moves nothing more."""
    total = 0
    leaves: dict[Value, dict[Value, None]] = {}
    readers: dict[Value, int] = {}
    for op in dropped:
        for value in dict.fromkeys(op.operands):
            readers[value] = readers.get(value, 0) + (not _is_free(op))
    for op in function.ops:
        if op not in dropped:
            continue
        found: dict[Value, None] = {}
        for value in op.operands:
            found.update(leaves.get(value, {value: None}))
        for result in op.results:
            leaves[result] = found
            if not _is_free(op) and (needed.get(result, False) or readers.get(result, 0) > 1):
                total += result.type.nbytes + sum(v.type.nbytes for v in found)
                leaves[result] = {result: None}
    return total


def _is_free(op: Op) -> bool:
    """Whether an op is a view, or a cast of halves to f32, which each reader makes for itself."""
    return view_offset(op) is not None or (op.name == "cast" and op.operands[0].type.dtype in HALF)


def step_seconds(function: Function, device: Device) -> float:
    """Seconds, at least, of a training step of the function: those of its products, and of writing and reading all other results."""
    total = 0.0
    for op in function.ops:
        if op.name == "constant":
            continue
        if is_cheap(op):
            total += 0.0 if view_offset(op) is not None else sum(v.type.nbytes for v in op.results) / device.bandwidth
            continue
        half = op.operands and op.operands[0].type.dtype in HALF and device is DEVICES["cuda"]
        total += device.least_seconds(flops(op) // (HALF_SPEED if half else 1), moved_bytes(op))
    return total * (1 + BACKWARD)


def read_by(ops: Iterable[Op], forward: Collection[Op]) -> dict[Value, bool]:
    """The results of `forward` that others of `ops` read, and whether they have to be written for them: whether several read one, or
    one that is no elementwise op and no reduction of what it computes itself."""
    origin = {v: v for op in forward for v in op.results}
    for op in forward:
        if _is_free(op) and op.operands[0] in origin:
            origin[op.result] = origin[op.operands[0]]
    found: dict[Value, bool] = {}
    readers: dict[Value, int] = {}
    for op in ops:
        if op in forward:
            continue
        for value in [v for v in dict.fromkeys(op.operands) if v in origin]:
            source = origin[value]
            if value.op in forward:
                found.setdefault(value, False)
            if _is_free(op):
                origin[op.result] = source
                continue
            readers[source] = readers.get(source, 0) + 1
            alone = has(op, Trait.ELEMENTWISE) or op.name.startswith("reduce_")
            found[source] = found.get(source, False) or not alone or readers[source] > 1
    return found
