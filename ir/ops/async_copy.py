# SPDX-License-Identifier: Apache-2.0
"""offload_start, offload_done, prefetch_start, prefetch_done: copies between spaces that run beside the other ops."""

from __future__ import annotations

from collections.abc import Sequence

from ..core import Array
from ..errors import OpError
from ..types import TensorType
from .shared.common import count
from .shared.op_def import Asynchronous, Attrs, OpDef, Trait, no_flops, register


def infer_start(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    lane = attrs.get("lane")
    if not isinstance(lane, str) or not lane:
        raise OpError(f'expected the name of a lane, such as {{lane = "d2h"}}, got {lane!r}')
    if operands[0].nbytes == 0:
        raise OpError(f"expected a tensor with bytes to copy, got {operands[0]}, which has none")
    return [operands[0]]


def infer_done(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    if operands[0] != operands[1]:
        raise OpError(f"expected a pending copy and its source of one type, got {operands[0]} and {operands[1]}")
    return [operands[0]]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [inputs[0].copy()]


def _register_pair(name: str, what: str, source: str) -> None:
    register(
        OpDef(
            name=f"{name}_start",
            doc=f"Begin to copy {what}.\n\n"
            f"Operand 0 is {source}. The copy runs on the lane that the attribute `lane` names, in the sequence of that lane's\n"
            f"starts, at any time until `{name}_done`, the only op that may read the result. The result's bytes count from here.",
            spec=None,
            infer=infer_start,
            evaluate=evaluate,
            gradient=None,
            in_place=None,
            view=None,
            slices=None,
            flops=no_flops,
            lower=Asynchronous(),
            library=(),
            traits=frozenset({Trait.COPY}),
        )
    )
    register(
        OpDef(
            name=f"{name}_done",
            doc=f"Wait for a copy that `{name}_start` began.\n\n"
            "Operand 0 is the start's result, whose bytes the result is; operand 1 is the source of the copy, which is in use\n"
            "until here and is written by nobody before.",
            spec=None,
            infer=infer_done,
            evaluate=evaluate,
            gradient=None,
            in_place=None,
            view=lambda op: 0,
            slices=None,
            flops=no_flops,
            lower=Asynchronous(),
            library=(),
            traits=frozenset({Trait.COPY}),
        )
    )


_register_pair("offload", "a value into the space `host`", "any value that is not in `host`")
_register_pair(
    "prefetch",
    "a value of the space `host` into the arena",
    "the result of an `offload_done`, or a weight or state that lies in `host`: one that prefetches alone read",
)
