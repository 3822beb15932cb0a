# SPDX-License-Identifier: Apache-2.0
"""binary_cross_entropy, binary_cross_entropy_with_logits: the loss of probabilities, and of what sigmoid makes them of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.casts import cast, widen
from .shared.common import compute_dtype, count, elementwise, elementwise_in_place
from .shared.common import widen as widened
from .shared.derivatives import one_minus, widen_again
from .shared.op_def import Attrs, Builder, Expr, OpDef, Trait, register
from .shared.window import accumulator

LEAST_LOG = -100.0
"""What logarithms of probabilities are cut off at, as in PyTorch: so a probability of 0 has a finite loss."""

LEAST_VARIANCE = 1e-12
"""What p (1 - p), by which the gradient divides, is cut off at, as in PyTorch."""


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    x, target = operands
    if x != target or not x.dtype.is_float:
        raise OpError(f"expected a target of the prediction's type {x}, got {target}")
    return [TensorType(accumulator(x.dtype), x.shape)]


def _numpy_of_probabilities(p: Any, t: Any) -> Any:
    least = p.dtype.type(LEAST_LOG)
    return -(t * np.maximum(np.log(p), least) + (1 - t) * np.maximum(np.log(1 - p), least))


def _numpy_of_logits(z: Any, t: Any) -> Any:
    return np.maximum(z, 0) - z * t + np.log1p(np.exp(-np.abs(z)))


def _of_probabilities(b: Builder, p: Expr, t: Expr, dtype: DType) -> Expr:
    one, least = b.const(1, dtype), b.const(LEAST_LOG, dtype)
    yes = b.maximum(b.unary("log", p), least)
    no = b.maximum(b.unary("log", one - p), least)
    return (t * yes + (one - t) * no) * b.const(-1, dtype)


def _of_logits(b: Builder, z: Expr, t: Expr, dtype: DType) -> Expr:
    # log(1 + 1 / v) = 2 atanh(1 / (2 v + 1)) keeps the digits of a small 1 / v = e^-|z|.
    one, two = b.const(1, dtype), b.const(2, dtype)
    large = b.unary("exp", b.unary("abs", z))
    tail = b.unary("atanh", b.divide(one, large * two + one)) * two
    return b.maximum(z, b.const(0, dtype)) - z * t + tail


def _probability_slope(b: IRBuilder, p: Value, t: Value) -> Value:
    """(p - t) / max(p (1 - p), 1e-12); nan for what is no probability, as its loss is."""
    dtype = p.type.dtype
    variance = b.op("mul", [p, one_minus(b, p)])
    below = b.op("less", [variance, b.scalar(0, dtype)])
    least = b.op("max", [variance, b.scalar(LEAST_VARIANCE, dtype)])
    divisor = b.op("select", [below, b.scalar(np.nan, dtype), least])
    return b.op("div", [b.op("sub", [p, t]), divisor])


def _logit_slope(b: IRBuilder, z: Value, t: Value) -> Value:
    """sigmoid(z) - t as (1 - t) sigmoid(z) - t sigmoid(-z), which loses no digits where sigmoid(z) rounds to 1."""
    off = b.op("mul", [one_minus(b, t), b.op("sigmoid", [z])])
    return b.op("sub", [off, b.op("mul", [t, b.op("sigmoid", [b.op("neg", [z])])])])


def _target_slope(b: IRBuilder, x: Value, logits: bool) -> Value:
    """How the loss falls with the target."""
    if logits:
        return b.op("neg", [x])
    least = b.scalar(LEAST_LOG, x.type.dtype)
    yes, no = (b.op("max", [b.op("log", [p]), least]) for p in (x, one_minus(b, x)))
    return b.op("sub", [no, yes])


Formula = Callable[[Any, Any], Any]


def _define(name: str, logits: bool, summary: str, formula: Formula) -> None:
    scalar = _of_logits if logits else _of_probabilities
    slope = _logit_slope if logits else _probability_slope

    def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(formula(*map(widened, inputs))).astype(results[0].dtype.numpy)]

    def element(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
        return scalar(b, x[0], x[1], compute_dtype(op.operands[0].type.dtype))

    def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        """Reads both operands."""
        (g,) = grads
        if g is None:
            return [None, None]
        x, target = (widen_again(b, v, 1) for v in op.operands)
        found = [b.op("mul", [widen(b, g), slope(b, x, target)])]
        found.append(b.op("mul", [widen(b, g), _target_slope(b, x, logits)]))
        return [cast(b, v, op.operands[0].type.dtype) for v in found]

    register(
        OpDef(
            name=name,
            doc=summary,
            spec="https://docs.pytorch.org/docs/stable/generated/torch.nn.BCE"
            + ("WithLogitsLoss.html" if logits else "Loss.html"),
            infer=infer,
            evaluate=evaluate,
            gradient=gradient,
            in_place=elementwise_in_place,
            view=None,
            slices=None,
            flops=lambda op: 8 * op.result.type.elements,
            lower=elementwise(element),
            library=(),
            traits=frozenset({Trait.ELEMENTWISE}),
        )
    )


_TYPES = (
    "Operands: {}, and targets from 0 to 1 of the same type. The result has their shape, and is f32 for half precision."
)

_define(
    "binary_cross_entropy",
    False,
    "-(t log(p) + (1 - t) log(1 - p)) of probabilities p and targets t.\n\n"
    + _TYPES.format("probabilities")
    + "\nLogarithms are at least -100, and the gradient is (p - t) / max(p (1 - p), 1e-12), as in PyTorch. What is below 0 or\n"
    "above 1 has nan as its loss and its gradient.",
    _numpy_of_probabilities,
)
_define(
    "binary_cross_entropy_with_logits",
    True,
    "max(z, 0) - z t + log(1 + exp(-|z|)): the loss of the probabilities sigmoid(z) for targets t.\n\n"
    + _TYPES.format("numbers z"),
    _numpy_of_logits,
)
