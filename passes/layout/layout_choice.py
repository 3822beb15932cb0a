# SPDX-License-Identifier: Apache-2.0
"""Which ops take images with their channels last: a minimum cut between what convolutions gain and what transposes cost.

Each op is on one of two sides. A convolution with channels first pays for what its library copies, each value that ops of both
sides touch for a transpose, read by one op or by many:

    first | last        the value of p that q and r read is transposed once, if p is first and either of them last:
      p --a--> q        p -> a costs that, a -> q and a -> r cannot be cut
          '--> r
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from memc.ir.core import Function, Op, Value
from memc.ir.cost_model import DEVICES
from memc.ir.module import Module
from memc.ir.op_queries import slice_offsets
from memc.ir.ops.library.cuda_conv import images_of, weights_of
from memc.ir.types import TensorType
from memc.passes.layout.layout_forms import (
    CONVOLUTIONS,
    RANKS,
    WEIGHTED,
    has_last_form,
    is_constant,
    is_free,
    known_data,
    reads_image,
    vector,
)
from memc.solvers.min_cut import UNCUT, Edge, sink_side

DEVICE = DEVICES["cuda"]

UNSURE = 3e-6
"""Seconds that a convolution must gain: with few bytes to copy, and the kernels for them, it may as well be slower."""

SCATTERED = 3.0
"""How much longer a transpose of many channels takes than a copy: it reads single elements of lines."""

FEW_CHANNELS = 8
"""Of so many, a line of memory has several pixels."""


def choose_last(module: Module, function: Function, tf32: bool) -> set[Op]:
    """The ops that are to be written for channels last; none if there is nothing to gain."""
    uses, returned = function.uses(), set(function.returns)
    ops = [op for op in function.ops if has_last_form(op, tf32) and _rounds_at_once(op, uses, returned)]
    cut = _Cut({op: 2 + number for number, op in enumerate(ops)}, 2 + len(ops))
    gains = {op: picoseconds(gain_seconds(module, op, uses)) for op in ops}
    if not any(gain > 0 for gain in gains.values()):
        return set()
    for op, gain in gains.items():
        cut.edges.append((cut.node[op], SINK, gain) if gain > 0 else (SOURCE, cut.node[op], -gain))
    for value in [*function.params, *(v for op in function.ops for v in op.results)]:
        if value.type.rank in RANKS and not is_constant(value):
            readers = [cut.node.get(op, SOURCE) if reads_image(value, op) else SOURCE for op in uses.get(value, ())]
            cut.add_value(value, [*readers, *([SOURCE] if value in returned else [])])
    side = sink_side(cut.nodes, cut.edges, SOURCE, SINK)
    return {op for op in ops if cut.node[op] in side}


SOURCE, SINK = 0, 1
"""The sides of channels first and of channels last."""


@dataclass
class _Cut:
    """A network whose cuts are choices of layouts."""

    node: Mapping[Op, int]
    nodes: int
    edges: list[Edge] = field(default_factory=list)

    def add_value(self, value: Value, readers: Sequence[int]) -> None:
        """Add what the transposes of a value cost, made by an op and read by those of `readers`."""
        maker = SOURCE if value.op is None else self.node.get(value.op, SOURCE)
        others = sorted(set(readers) - {maker})
        cost = picoseconds(transpose_seconds(value.type))
        if not others or not cost:
            return
        if any(reader != SOURCE for reader in others):
            to_last, self.nodes = self.nodes, self.nodes + 1
            self.edges.append((maker, to_last, cost))
            self.edges += [(to_last, reader, UNCUT) for reader in others if reader != SOURCE]
        if maker != SOURCE:
            to_first, self.nodes = self.nodes, self.nodes + 1
            self.edges.append((to_first, maker, cost))
            self.edges += [(reader, to_first, UNCUT) for reader in others]


def _rounds_at_once(op: Op, uses: Mapping[Value, Sequence[Op]], returned: Collection[Value]) -> bool:
    """Whether a convolution of halves is rounded by what follows, as the library does in the same call."""
    if op.name not in CONVOLUTIONS or op.result.type.dtype is op.operands[0].type.dtype:
        return True
    readers = uses.get(op.result, ())
    rounded = len(readers) == 1 and readers[0].name == "cast" and op.result not in returned
    return rounded and readers[0].result.type.dtype is op.operands[0].type.dtype


def picoseconds(seconds: float) -> int:
    """Whole numbers, so that choices do not depend on rounding."""
    return round(seconds * 1e12)


def transpose_seconds(type: TensorType) -> float:
    """What it takes to turn an image with channels first into one with channels last, or back."""
    if is_free(type):
        return 0.0
    slower = 1.0 if type.shape[1] <= FEW_CHANNELS else SCATTERED
    return DEVICE.start + slower * 2 * type.nbytes / DEVICE.bandwidth


def gain_seconds(module: Module, op: Op, uses: Mapping[Value, Sequence[Op]]) -> float:
    """What an op with a form for channels last gains by it; a loss is negative."""
    if op.name in CONVOLUTIONS:
        weights = op.operands[1] if op.name in WEIGHTED else None
        lost = 0.0 if weights is None or known_data(module, weights) is not None else transpose_seconds(weights.type)
        return _saved_bytes(op, uses) / DEVICE.bandwidth - UNSURE - lost
    if op.name == "concat" and all(at is not None for at in slice_offsets(op)):
        return -DEVICE.start - 2 * op.result.type.nbytes / DEVICE.bandwidth  # No longer written in place.
    return 0.0


def _saved_bytes(op: Op, uses: Mapping[Value, Sequence[Op]]) -> int:
    """Bytes of the library's copies of images to channels last and back; or, of a convolution that it computes as products of the
    images as they are, of its passes for bias and ReLU, which products with channels last add at once."""
    x, y = images_of(op)
    size = op.operands[0].type.dtype.itemsize
    copied = 2 * size * (x.elements + y.elements)
    w = weights_of(op)
    missing = -w.shape[1] % vector(op.operands[0].type.dtype)
    if missing:  # Not copied, but filled up.
        return -2 * size * x.elements // x.shape[1] * (x.shape[1] + missing)
    if set(w.shape[2:]) == {1} and y.shape[2:] == x.shape[2:]:
        passes = len(op.operands) - 2 + _has_relu(op, uses) if op.name == "conv" else 0
        return min(copied, 2 * size * y.elements * passes)
    return copied


def _has_relu(op: Op, uses: Mapping[Value, Sequence[Op]]) -> bool:
    """Whether a ReLU follows, maybe behind a cast."""
    readers = uses.get(op.result, ())
    while len(readers) == 1 and readers[0].name in ("cast", "add"):
        readers = uses.get(readers[0].result, ())
    return len(readers) == 1 and readers[0].name == "relu"
