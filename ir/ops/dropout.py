# SPDX-License-Identifier: Apache-2.0
"""dropout: elements set to zero at random, by a counter-based generator whose mask is never stored.

Element i draws from the counter (i, stream) of Philox (`shared/philox.py`) under the key `seed`, so a mask depends on nothing
else: the backward pass and recomputations generate it again, and all targets generate the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import compute_dtype, count, float_attr, int_attr
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .shared.philox import drawn, lowered, require_draw


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    x, seed = operands
    if not x.dtype.is_float:
        raise OpError(f"expected floats, got {x}")
    if not 0 <= float_attr(attrs, "ratio") < 1:
        raise OpError(f"expected attribute `ratio` from 0 to below 1, got {attrs['ratio']}")
    require_draw(seed, attrs)
    return [x]


def _threshold(attrs: Attrs) -> int:
    """Words below it drop their element."""
    return round(float_attr(attrs, "ratio") * 2**32)


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    x, seed = inputs
    word = drawn(seed, int_attr(attrs, "stream"), x.shape)[0]
    wide = compute_dtype(results[0].dtype).numpy
    kept = x.astype(wide) * wide.type(1 / (1 - float_attr(attrs, "ratio")))
    return [np.where(word < np.uint64(_threshold(attrs)), wide.type(0), kept).astype(x.dtype)]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x = op.result.type
    wide = compute_dtype(x.dtype)
    word = lowered(b, inputs[1], int_attr(op.attrs, "stream"), x.shape)[0]

    def element(*index: Expr) -> Expr:
        value = b.cast(inputs[0][index], wide) * b.const(1 / (1 - float_attr(op.attrs, "ratio")), wide)
        dropped = b.cast(word[index], DType.I64) < b.const(_threshold(op.attrs), DType.I64)
        return b.cast(b.select(dropped, b.const(0, wide), value), x.dtype)

    return [b.compute(x, element)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """The same elements of the gradient. Reads the seed only."""
    (g,) = grads
    seed = op.operands[1]
    attrs = {name: op.attrs[name] for name in ("ratio", "stream")}
    return [None if g is None else b.op("dropout", [g, seed], **attrs), None]


register(
    OpDef(
        name="dropout",
        doc="x with each element set to zero with probability `ratio`, else divided by 1 - ratio.\n\n"
        "Operands x (floats) and seed, i64[], for example a step counter. Attributes `ratio`, in [0, 1), and `stream`, the\n"
        "number of the op among those that share a seed. Equal seed and stream give the same mask for one number of\n"
        "elements, on every target: by Philox 4x32-10 with the key seed and the counter (position, stream).",
        spec="https://onnx.ai/onnx/operators/onnx__Dropout.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=lambda op: (0,),
        view=None,
        slices=None,
        flops=lambda op: 2 * op.result.type.elements,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE, Trait.RANDOM, Trait.CHEAP}),
    )
)
