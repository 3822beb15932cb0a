# SPDX-License-Identifier: Apache-2.0
"""Gradients where the operand was recomputed and came out rounded apart from the one that made the result.

Fused into another kernel, or with another workspace, a computation rounds apart; a rule that looks for the elements that equal
the result would find none, and the gradient would vanish. So would an expansion that looks for the place of a maximum.
"""

from collections.abc import Callable

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Role, Value, fresh_names
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import definition
from memc.ir.types import DType, TensorType
from memc.passes.rewrite.decompose import decompose
from memc.passes.training.backward_pass import append_gradients

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


RNG = np.random.default_rng(5)
INDICES = np.array([[0, 2, 1], [2, 2, 0], [1, 2, 2]])
SCATTER = [RNG.standard_normal((4, 3)), INDICES, RNG.standard_normal((3, 3))]
SLICES = [RNG.standard_normal((4, 3)), np.array([[1], [0], [1]]), RNG.standard_normal((3, 3))]
BOXES = [
    RNG.standard_normal((2, 2, 6, 5)),
    np.array([[0.3, 0.2, 3.4, 2.9], [-0.713, 1.137, 3.219, 7.391]]),
    np.array([1, 0]),
]
REGION = {"size": (2, 2), "sampling_ratio": 2, "spatial_scale": 1.0, "half_pixel": True}
PLANE = [RNG.standard_normal((1, 2, 5, 6)), RNG.uniform(-1.2, 1.2, (1, 3, 4, 2))]
SAMPLE = {"padding_mode": "zeros", "align_corners": False}
X = [RNG.standard_normal(SHAPE)]
DECIDING: dict[str, tuple[str, list[np.ndarray], dict[str, object]]] = {
    "max_pool": ("max_pool", X, POOL),
    **{name: (name, X, {"axes": (1, 3), "keepdims": False}) for name in ("reduce_max", "reduce_min", "reduce_prod")},
    **{name: (name, [*X, RNG.standard_normal((3, 1, 6))], {}) for name in ("max", "min")},
    **{
        f"{name}_{reduction}": (name, operands, {"reduction": reduction, **attrs})
        for name, operands, attrs in (("scatter_elements", SCATTER, {"axis": 0}), ("scatter_nd", SLICES, {}))
        for reduction in ("none", "add", "mul", "max", "min")
    },
    "top_k": ("top_k", X, {"axis": 2, "k": 3, "largest": False}),
    "cumprod": ("cumprod", X, {"axis": 3, "exclusive": False, "reverse": True}),
    "clip": ("clip", X, {"min": -0.5, "max": 0.4}),
    "hard_sigmoid": ("hard_sigmoid", X, {"alpha": 0.2, "beta": 0.5}),
    **{name: (name, X, {}) for name in ("abs", "relu")},
    "softmax": ("softmax", X, {"axis": 1}),
    **{f"roi_align_{mode}": ("roi_align", BOXES, {**REGION, "mode": mode}) for mode in ("avg", "max")},
    **{f"grid_sample_{mode}": ("grid_sample", PLANE, {**SAMPLE, "mode": mode}) for mode in ("linear", "cubic")},
}
"""Ops whose rules compare, with operands and attributes."""


def step(name: str, operands: list[np.ndarray], attrs: dict[str, object]) -> tuple[Module, dict[str, Array]]:
    """The gradients of a weighted sum of the first result in all float operands, expanded; and operands for it."""
    arrays = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in operands]
    params = [Value(f"p{n}", TensorType(DType.from_numpy(a.dtype), a.shape)) for n, a in enumerate(arrays)]
    function = Function(params)
    for param in params:
        param.role = Role.INPUT
    module = Module([function])
    b = IRBuilder(module, function, function.ops, fresh_names(p.name for p in params))
    result = b.multi(name, params, **attrs).results[0]
    weights = b.constant(np.random.default_rng(8).uniform(0.5, 1.5, result.type.shape).astype(np.float32))
    product = b.op("mul", [result, weights])
    loss = b.op("reduce_sum", [product], axes=tuple(range(result.type.rank)), keepdims=False)
    wanted = [p for p in params if p.type.dtype.is_float]
    function.returns = [loss]
    function.returns = list(append_gradients(module, function, loss, wanted, list(function.ops), b.names).values())
    decompose(module, function, "none")
    return module, dict(zip((p.name for p in params), arrays))


@pytest.mark.parametrize("case", list(DECIDING))
def test_operands_recomputed_between_any_two_readers_keep_the_gradient(
    case: str, rounded_apart: Callable[[Module, dict[str, Array], int], list[Array]]
) -> None:
    module, inputs = step(*DECIDING[case])
    expected = list(evaluate(module, inputs).values())
    assert all(map(np.count_nonzero, expected))
    for seed in range(8):
        for found, wanted in zip(rounded_apart(module, inputs, seed), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", ["arg_max", "arg_min"])
def test_the_place_of_an_extremum_is_found_whatever_is_recomputed(
    name: str, last: bool, dtype: DType, rounded_apart: Callable[[Module, dict[str, Array], int], list[Array]]
) -> None:
    array = X[0].astype(dtype.numpy)
    param = Value("x", TensorType(dtype, SHAPE), role=Role.INPUT)
    function = Function([param])
    module = Module([function])
    b = IRBuilder(module, function, function.ops, fresh_names(["x"]))
    shifted = b.op("exp", [b.op("neg", [param])])
    function.returns = [b.op(name, [shifted], axis=2, last=last)]
    decompose(module, function, "none")
    expected = (np.argmin if name == "arg_max" else np.argmax)(array, axis=2)
    for seed in range(20):
        np.testing.assert_array_equal(rounded_apart(module, {"x": array}, seed)[0], expected)


@pytest.mark.parametrize("name", ["reduce_max", "scatter_elements"])
def test_an_infinite_extremum_has_the_gradient(name: str) -> None:
    """As in PyTorch 2: torch.tensor([[1.0, inf, 2.0], [-inf, -inf, -inf]]).amax(1), and the same of scatter_reduce."""
    rows = [np.array([[1, np.inf, 2], [-np.inf] * 3])]
    if name == "scatter_elements":
        rows += [np.array([[0, 1, 2]]), np.array([[np.inf, np.inf, 3]])]
    attrs = {"axes": (1,), "keepdims": False} if name == "reduce_max" else {"axis": 1, "reduction": "max"}
    module, inputs = step(name, rows, attrs)
    weights = np.random.default_rng(8).uniform(0.5, 1.5, 2 if name == "reduce_max" else (2, 3))
    found = list(evaluate(module, inputs).values())
    if name == "reduce_max":
        expected = [np.array([[0, weights[0], 0], [weights[1] / 3] * 3])]
    else:
        of_data = weights.copy()
        of_data[0] = [0, weights[0, 1] / 2, 0]
        expected = [of_data, np.array([[weights[0, 0], weights[0, 1] / 2, weights[0, 2]]])]
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)
