# SPDX-License-Identifier: Apache-2.0
"""Generated kernels: numpy's semantics where TVM's differ, in-place variants, sharing, no hidden memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest
import tvm

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Op, OpPlan, Value
from memc.ir.errors import OpError
from memc.ir.evaluate import run_op as evaluate_op
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import Trait, definition, registered
from memc.ir.types import DType
from memc.passes.kernels.fuse import expansion
from memc.runtime.codegen import schedule_cpu
from memc.runtime.codegen.debug import run_op
from memc.runtime.codegen.expressions import walk
from memc.runtime.codegen.lower_op import kernel_key, lower_op
from memc.runtime.execute.load import load

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 3e38], np.float32)


def pairs() -> tuple[Array, Array]:
    a, b = np.meshgrid(SPECIAL, SPECIAL)
    return a.copy(), b.copy()


@pytest.mark.parametrize("name", ["min", "max", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_nan_and_infinities_as_in_numpy(name: str, dtype: type, build_op: Callable[..., Op]) -> None:
    with np.errstate(all="ignore"):
        a, b = (x.astype(dtype) for x in pairs())
    numpy_name = {"min": "minimum", "max": "maximum"}.get(name, name)
    with np.errstate(all="ignore"):
        expected = np.asarray(getattr(np, numpy_name)(a, b))
    (found,) = run_op(build_op(name, [a, b]), [a, b])
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_negated_comparison_is_true_for_nan(fused_op: Callable[..., Op]) -> None:
    op = fused_op([("less", (0, 1), {}), ("logical_not", (2,), {})], [SPECIAL, SPECIAL[::-1].copy()])
    (found,) = run_op(op, [SPECIAL, SPECIAL[::-1].copy()])
    np.testing.assert_array_equal(found, ~(SPECIAL < SPECIAL[::-1]))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integer_division_truncates_and_never_traps(dtype: type, build_op: Callable[..., Op]) -> None:
    least = int(np.iinfo(dtype).min)
    a = np.array([7, -7, 7, -7, 5, least, 0, least], dtype)
    b = np.array([2, 2, -2, -2, 0, 3, 0, -1], dtype)
    (found,) = run_op(build_op("div", [a, b]), [a, b])
    np.testing.assert_array_equal(found[[0, 1, 2, 3, 4, 6]], np.array([3, -3, -3, 3, 0, 0], dtype))
    assert found[5] == -(-least // 3)


def test_float_to_integer_truncates_and_half_rounds_to_even(build_op: Callable[..., Op]) -> None:
    x = np.array([-2.7, -0.5, 0.5, 1.5, 2.5, 300.9], np.float32)
    np.testing.assert_array_equal(run_op(build_op("cast", [x], to=DType.I32), [x])[0], x.astype(np.int32))
    np.testing.assert_array_equal(run_op(build_op("round", [x]), [x])[0], np.rint(x))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid", "sqrt", "sin", "atan", "asinh"])
def test_functions_are_accurate(name: str, build_op: Callable[..., Op]) -> None:
    x = np.linspace(-12, 12, 4099).astype(np.float32)
    x = np.concatenate([x, SPECIAL, np.float32([1e-30, -1e-6, 88.7, -87.3, -103.9, 89.0])])
    op = build_op(name, [x])
    with np.errstate(all="ignore"):
        wide = definition(op).evaluate([x.astype(np.float64)], op.attrs, [op.result.type])
    (found,) = run_op(op, [x])
    expected = np.asarray(wide[0], np.float64)
    normal = np.isfinite(expected) & (np.abs(expected) > 1.2e-38) & (np.abs(expected) < 3.4e38)
    error = np.abs(found[normal] - expected[normal]) / np.abs(expected[normal])
    assert error.max() < 1e-6
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_allclose(found[~normal], expected[~normal].astype(np.float32), atol=1.2e-38)


@pytest.mark.parametrize("shape,axes", [((7,), (0,)), ((3, 197), (1,)), ((5, 33), (0,)), ((2, 3, 64), (1, 2))])
@pytest.mark.parametrize("kind", ["sum", "max", "prod"])
def test_reductions_of_any_shape(
    shape: tuple[int, ...], axes: tuple[int, ...], kind: str, build_op: Callable[..., Op]
) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)
    (found,) = run_op(build_op(f"reduce_{kind}", [x], axes=axes, keepdims=False), [x])
    expected = getattr(np, kind)(x.astype(np.float64), axis=axes)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "shape,axes", [((2, 3, 128, 128), (0, 2, 3)), ((3, 30_000), (1,)), ((30_000, 3), (0,)), ((30_000,), (0,))]
)
@pytest.mark.parametrize("fused", [False, True])
def test_the_error_of_a_long_sum_does_not_grow(
    shape: tuple[int, ...], axes: tuple[int, ...], fused: bool, build_op: Callable[..., Op], fused_op: Callable[..., Op]
) -> None:
    x = np.random.default_rng(0).uniform(0, 1, shape).astype(np.float32)
    options = {"axes": axes, "keepdims": False}
    steps = [("mul", (0, 0), {}), ("reduce_sum", (1,), options), ("sqrt", (2,), {})]
    (found,) = run_op(fused_op(steps, [x]) if fused else build_op("reduce_sum", [x], **options), [x])
    wide = x.astype(np.float64)
    expected = np.sqrt((wide * wide).sum(axes)) if fused else wide.sum(axes)
    np.testing.assert_allclose(found, expected, rtol=2e-7)


def test_empty_reduction_gives_the_neutral_element(build_op: Callable[..., Op]) -> None:
    x = np.zeros((3, 0), np.float32)
    np.testing.assert_array_equal(run_op(build_op("reduce_sum", [x], axes=(1,), keepdims=False), [x])[0], np.zeros(3))


@pytest.mark.parametrize("elements", [1, 7, 64, 100_003])
def test_in_place_result_replaces_its_operand(elements: int, build_op: Callable[..., Op]) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=elements).astype(np.float32) for _ in range(2))
    for position in (0, 1):
        (found,) = run_op(build_op("sub", [a, b]), [a, b], in_place=position)
        np.testing.assert_array_equal(found, a - b)


def test_in_place_kernel_may_alias_and_another_may_not(build_op: Callable[..., Op]) -> None:
    a = np.zeros((4, 4), np.float32)
    op = build_op("add", [a, a])
    assert "tirx.noalias" in lower_op(op, "llvm")[0].func.attrs
    assert "tirx.noalias" not in lower_op(op, "llvm", in_place=0)[0].func.attrs


def test_fused_values_used_twice_are_computed_once(fused_op: Callable[..., Op]) -> None:
    """A chain of 24 doublings: without sharing its expression would have 2**24 leaves."""
    x = np.full(16, 1e-6, np.float32)
    op = fused_op([("add", (n, n), {}) for n in range(24)], [x])
    np.testing.assert_allclose(run_op(op, [x])[0], x * 2**24, rtol=1e-6)


def test_kernels_differ_by_attribute_type_literal_and_in_place(build_op: Callable[..., Op]) -> None:
    a = np.zeros((4, 4), np.float32)
    key = kernel_key(build_op("add", [a, a]), None)
    assert key == kernel_key(build_op("add", [a, a]), None)
    assert key != kernel_key(build_op("sub", [a, a]), None)
    assert key != kernel_key(build_op("add", [a, a]), 0)
    assert key != kernel_key(build_op("add", [a, a[:1]]), None)
    first, second = (kernel_key(build_op("leaky_relu", [a], alpha=v), None) for v in (0.1, 0.2))
    assert first != second
    zero, minus = (kernel_key(build_op("leaky_relu", [a], alpha=v), None) for v in (0.0, -0.0))
    assert zero != minus


def test_kernels_do_not_differ_by_what_is_planned(build_op: Callable[..., Op], fused_op: Callable[..., Op]) -> None:
    """But for the operand that is overwritten, which a key names; of ops inside groups as well."""
    x = np.zeros((4, 4), np.float32)
    plain, group = build_op("add", [x, x]), fused_op([("exp", (0,), {})], [x])
    keys = [kernel_key(op, None) for op in (plain, group)]
    assert group.region is not None
    for op in (plain, group, group.region.ops[0]):
        op.plan = OpPlan(1, "memc.cuda.matmul", "tf32", 2, 3, 4, 5, (6,))
    assert [kernel_key(op, None) for op in (plain, group)] == keys


def test_kernels_differ_by_literal_operands(
    make_module: Callable[..., Module], plan: Callable, write: Callable
) -> None:
    """A repeated element is part of a kernel's code, so kernels with other ones, or with none, are others."""
    x = np.arange(8, dtype=np.float32)

    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        numbers = [np.full(8, n, np.float32) for n in (2, 3, 2, -0.0, 0.0)]
        return [b.op("div", [inputs[0], b.constant(n)]) for n in (*numbers, np.arange(1, 9, dtype=np.float32))]

    module = make_module({"x": (DType.F32, (8,))}, body)
    two, three, again, minus, zero, many = (kernel_key(op, None) for op in module.main.ops if op.name == "div")
    assert two == again and len({two, three, minus, zero, many}) == 5
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = [x / d for d in (2, 3, 2, np.float32(-0.0), np.float32(0.0), np.arange(1, 9, dtype=np.float32))]
    found = load(write(plan(module, level=0)))(x)
    for n, value in enumerate(expected):
        np.testing.assert_array_equal(found[f"y{n}"], value)


@pytest.mark.parametrize(
    "name,shapes,attrs",
    [
        ("add", [(64, 100), (100,)], {}),
        ("reduce_sum", [(64, 1000)], {"axes": (1,), "keepdims": False}),
        ("reduce_max", [(1000, 64)], {"axes": (0,), "keepdims": True}),
        ("matmul", [(32, 64), (64, 48)], {"transpose_a": False, "transpose_b": False}),
        ("transpose", [(32, 64, 3)], {"perm": (2, 0, 1)}),
    ],
)
def test_kernels_allocate_nothing_but_small_tiles_on_the_stack(
    name: str, shapes: list[tuple[int, ...]], attrs: dict, build_op: Callable[..., Op]
) -> None:
    op = build_op(name, [np.zeros(s, np.float32) for s in shapes], **attrs)
    (kernel,) = lower_op(op, "llvm")
    built = tvm.tirx.build(schedule_cpu.schedule(kernel.func), target=tvm.target.Target("llvm"))
    assert "AllocWorkspace" not in built.inspect_source("ll")


INTEGERS = [DType.I64, DType.U64, DType.I32, DType.U32, DType.U8, DType.I8, DType.I16]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "steps",
    [
        [("add", (0, 1), {}), ("min", (1, 2), {})],
        [("sub", (0, 1), {}), ("less", (2, 0), {})],
        [("add", (0, 1), {}), ("max", (2, 1), {}), ("greater", (3, 1), {})],
        [("neg", (0,), {}), ("less_equal", (2, 1), {})],
        [
            ("bitwise_xor", (1, 0), {}),
            ("mod", (2, 2), {}),
            ("neg", (2,), {}),
            ("mod", (3, 4), {}),
            ("less", (5, 1), {}),
        ],
        [("sub", (0, 0), {}), ("div", (1, 2), {}), ("min", (3, 2), {}), ("min", (3, 4), {})],
        [("mul", (0, 0), {}), ("mod", (1, 2), {}), ("div", (2, 1), {}), ("less_equal", (4, 3), {})],
        [("div", (0, 1), {}), ("mul", (2, 0), {}), ("less", (3, 1), {})],
    ],
)
def test_fused_integers_wrap(steps: list[object], dtype: DType, fused_op: Callable[..., Op]) -> None:
    info = np.iinfo(dtype.numpy)
    extremes = np.array([info.min, info.min + 1, 0, 1, 2, 5, info.max - 1, info.max], dtype.numpy)
    a, b = (x.copy() for x in np.meshgrid(extremes, extremes))
    op = fused_op(steps, [a, b])
    np.testing.assert_array_equal(run_op(op, [a, b])[0], evaluate_op(op, [a, b])[0])


@pytest.mark.parametrize("dtype", [DType.I32, DType.U8, DType.F32], ids=str)
def test_long_chains_of_values_used_twice_compile(dtype: DType, fused_op: Callable[..., Op]) -> None:
    x = np.arange(64, dtype=dtype.numpy).reshape(4, 16)
    op = fused_op([("mul" if n % 2 else "add", (n, n), {}) for n in range(10)], [x])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run_op(op, [x])[0], evaluate_op(op, [x])[0])


def test_erf_to_the_last_digits(build_op: Callable[..., Op]) -> None:
    """f32 is computed by a quotient of polynomials: 4e-7 at most, odd, 1 at the ends, and NaN stays."""
    x = np.concatenate([np.linspace(-5, 5, 20001), [1e-30, -1e-38, np.inf]]).astype(np.float32)
    found = run_op(build_op("erf", [x]), [x])[0].astype(np.float64)
    exact = np.array([math.erf(v) for v in x.astype(np.float64)])
    np.testing.assert_allclose(found, exact, rtol=4e-7, atol=0)
    assert np.abs(found).max() == 1
    np.testing.assert_array_equal(found[:20001], -found[20000::-1])
    special = np.array([np.nan, -0.0], np.float32)
    found = run_op(build_op("erf", [special]), [special])[0]
    assert np.isnan(found[0]) and found[1] == 0 and np.signbit(found[1])


def reads(expr: object, bound: dict[object, int]) -> int:
    """Elements read by an expression whose bindings are written out."""
    if isinstance(expr, tvm.tirx.Let):
        return reads(expr.body, {**bound, expr.var: reads(expr.value, bound)})
    if isinstance(expr, tvm.tirx.Var):
        return bound.get(expr, 0)
    if isinstance(expr, tvm.ir.TensorLoad):
        return 1
    parts = [getattr(expr, name, None) for name in ("a", "b", "condition", "true_value", "false_value", "value")]
    parts += list(expr.args) if isinstance(expr, tvm.ir.Call) else []
    return sum(reads(part, bound) for part in parts if isinstance(part, tvm.ir.Expr))


SOME_ATTRS = {
    "leaky_relu": {"alpha": 0.1},
    "elu": {"alpha": 1.0},
    "gelu": {"approximate": "none"},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.5},
    "clip": {"min": 0, "max": 1},
    "cast": {"to": DType.I32},
}


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.I32, DType.U8, DType.BOOL], ids=str)
def test_the_fuser_knows_how_large_kernels_get(dtype: DType, build_op: Callable[..., Op]) -> None:
    seen = 0
    for known in registered():
        if Trait.ELEMENTWISE not in known.traits:
            continue
        for count in (1, 2, 3):
            arrays = [np.zeros(4, dtype.numpy)] * count
            if known.name == "select":
                arrays = [np.zeros(4, np.bool_), *arrays[1:]]
            try:
                op = build_op(known.name, arrays, **SOME_ATTRS.get(known.name, {"to": dtype}))
            except OpError:
                continue
            (kernel,) = lower_op(op, "llvm")
            stored = [node.value for node in walk(kernel.func.body, tvm.tirx.BufferStore)]
            # The rounding at the end comes on top.
            allowed = expansion([op]) * (4 if op.result.type.dtype is DType.BF16 else 1)
            assert max(reads(value, {}) for value in stored) <= allowed, op
            seen += 1
    assert seen >= 5
