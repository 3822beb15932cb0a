# SPDX-License-Identifier: Apache-2.0
"""Gradients where the operand was recomputed and came out rounded apart from the one that made the result.

Fused into another kernel, or with another workspace, a computation rounds apart; a rule that looks for the elements that equal
the result would find none, and the gradient would vanish.
"""

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value, fresh_names
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import definition
from memc.ir.types import DType, TensorType

POOL = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 0, 1), "dilations": (1, 1)}
SHAPE = (2, 3, 7, 6)
CASES = {
    "max_pool": ("max_pool", 1, POOL),
    "reduce_max": ("reduce_max", 1, {"axes": (1, 3), "keepdims": False}),
    "reduce_min": ("reduce_min", 1, {"axes": (2,), "keepdims": True}),
    "max": ("max", 2, {}),
    "min": ("min", 2, {}),
}


def gradients(name: str, count: int, attrs: dict[str, object], dtype: DType, drift: float) -> list[np.ndarray]:
    """Of the sum of the results, in each operand; each operand that the rule reads is off by `drift` units in the last place."""
    params = [Value(n, TensorType(dtype, SHAPE), role=Role.INPUT) for n in "xyab"[:count] + "ab"[:count]]
    function = Function(params)
    module = Module([function])
    forward = IRBuilder(module, function, function.ops, fresh_names(["x", "y", "a", "b"]))
    result = forward.op(name, params[:count], **attrs)
    ones = np.ones(result.type.shape, dtype.numpy)
    start = len(function.ops)
    found = definition(function.ops[0]).gradient(forward, function.ops[0], [forward.constant(ones)])
    for op in function.ops[start:]:
        op.operands = [dict(zip(params[:count], params[count:])).get(v, v) for v in op.operands]
    function.returns = [v for v in found if v is not None]
    random = np.random.default_rng(3)
    exact = [random.standard_normal(SHAPE).astype(dtype.numpy) for _ in range(count)]
    moved = [(v + np.spacing(v) * np.asarray(drift, v.dtype)).astype(v.dtype) for v in exact]
    return list(evaluate(module, dict(zip((p.name for p in params), exact + moved))).values())


@pytest.mark.parametrize("drift", [-2, -1, 1, 2])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("case", list(CASES))
def test_a_recomputed_operand_keeps_the_gradient(case: str, dtype: DType, drift: float) -> None:
    expected = gradients(*CASES[case], dtype, 0)
    for value, wanted in zip(gradients(*CASES[case], dtype, drift), expected, strict=True):
        assert np.count_nonzero(wanted)
        np.testing.assert_array_equal(value, wanted)
