# SPDX-License-Identifier: Apache-2.0
"""Converters at the values where a short formula goes wrong: nan, infinities, -0, cancellation, and rounded quotients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from memc.frontend.torch.graph import LITERAL, Graph, Input, Meta, Node, Output, Ref
from memc.frontend.torch.importer import import_torch
from memc.ir.core import Array
from memc.ir.evaluate import evaluate
from memc.ir.types import DType

NAN, INF = math.nan, math.inf


def result(target: str, *operands: Array, names: tuple[str, ...] = ("self", "other"), **named: Any) -> Array:
    """What an overload gives for operands."""
    inputs = {f"x{n}": np.asarray(a) for n, a in enumerate(operands)}
    metas = {n: Meta(DType.from_numpy(a.dtype), a.shape) for n, a in inputs.items()}
    args = {**{name: Ref(n) for name, n in zip(names, inputs)}, **named}
    program = Graph([Input(n, "input") for n in inputs], [Node("y", target, args, ["y"])], [Output(Ref("y"))], metas)
    found: Array = evaluate(import_torch(program), inputs)["output"]
    return found


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize("target", ["aten.floor_divide.default", "aten.div.Tensor_mode"])
def test_floors_of_exact_quotients(target: str) -> None:
    named = {"rounding_mode": "floor"} if "mode" in target else {}
    x = f32(1, -1, 6, 1, 5, -5, 0, 7, -7, 3, 5)
    y = f32(0.1, 0.1, 0.2, -0.1, INF, INF, 3, 2, 2, NAN, 0)
    # What PyTorch gives.
    wanted = f32(9, -10, 29, -10, 0, -1, 0, 3, -4, NAN, INF)
    np.testing.assert_array_equal(result(target, x, y, **named), wanted)


def test_extrema_pass_over_nan() -> None:
    x, y = f32(NAN, 1, -2, INF, NAN), f32(0, NAN, 3, 4, NAN)
    np.testing.assert_array_equal(result("aten.fmax.default", x, y), np.fmax(x, y))
    np.testing.assert_array_equal(result("aten.fmin.default", x, y), np.fmin(x, y))
    assert np.isnan(result("aten.maximum.default", x, y)[:2]).all()
    whole = np.array([3, -1]), np.array([2, 5])
    np.testing.assert_array_equal(result("aten.fmin.default", *whole), [2, -1])


@pytest.mark.parametrize("target", ["aten.sign.default", "aten.sgn.default"])
def test_signs(target: str) -> None:
    np.testing.assert_array_equal(result(target, f32(NAN, 2, -3, 0, -INF)), [0, 1, -1, 0, -1])
    np.testing.assert_array_equal(result(target, np.array([True, False])), [True, False])
    np.testing.assert_array_equal(result(target, np.array([4, -4, 0])), [1, -1, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_of_every_direction(dtype: type) -> None:
    values = np.array([0.0, -0.0, 1, -1, 2.5, -1e-3, INF, -INF, NAN], dtype)
    y, x = (a.reshape(-1) for a in np.meshgrid(values, values))
    found, wanted = result("aten.atan2.default", y, x), np.arctan2(y, x)
    np.testing.assert_allclose(found, wanted, rtol=3e-7)
    seen = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[seen]), np.signbit(wanted[seen]))


def test_what_is_left_of_the_error_function() -> None:
    x = np.linspace(-9, 9, 1001).astype(np.float32)
    wanted = np.array([math.erfc(float(n)) for n in x])
    np.testing.assert_allclose(result("aten.erfc.default", x), wanted, rtol=1e-5)
    np.testing.assert_array_equal(result("aten.erfc.default", f32(INF, -INF, NAN)), [0, 2, NAN])
    wide = np.linspace(-5, 5, 101)
    wanted = np.array([math.erfc(n) for n in wide])
    np.testing.assert_allclose(result("aten.erfc.default", wide), wanted, rtol=2e-7)
    np.testing.assert_allclose(result("aten.erfc.default", wide[wide < 2]), wanted[wide < 2], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("log2", np.log2), ("log10", np.log10), ("log1p", np.log1p), ("expm1", np.expm1), ("exp2", np.exp2)],
)
def test_functions_of_integers_are_f32(name: str, wanted: Any) -> None:
    x = np.array([1, 8, 3])
    found = result(f"aten.{name}.default", x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted(x.astype(np.float64)), rtol=1e-5)


def test_integers_are_finite_numbers() -> None:
    x = np.array([[3, -1]])
    for name, wanted in (("isnan", False), ("isinf", False), ("isfinite", True)):
        np.testing.assert_array_equal(result(f"aten.{name}.default", x), [[wanted, wanted]])
    np.testing.assert_array_equal(result("aten.nan_to_num.default", x), x)


@pytest.mark.parametrize(("dim", "wanted"), [([], [[True, False]]), (None, True), ([0], [True, False])])
def test_any_over_no_axis(dim: list[int] | None, wanted: Any) -> None:
    found = result("aten.any.dims", np.array([[2, 0]]), dim=dim)
    np.testing.assert_array_equal(found, np.array(wanted), strict=True)


@pytest.mark.parametrize("keep", [False, True])
def test_the_place_of_the_greatest_of_all(keep: bool) -> None:
    found = result("aten.argmax.default", f32(1, 5, 2, 3).reshape(2, 2), keepdim=keep)
    np.testing.assert_array_equal(found, np.array([[1]] if keep else 1), strict=True)


@pytest.mark.parametrize("boolean", [True, False])
@pytest.mark.parametrize("kind", ["scaled_dot_product_attention", "_scaled_dot_product_efficient_attention"])
def test_rows_of_attention_that_see_nothing_are_0(kind: str, boolean: bool) -> None:
    q = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    seen = np.array([[True, False], [False, False]])
    mask = seen if boolean else np.where(seen, 0, -INF).astype(np.float32)
    names = ("query", "key", "value", "attn_bias" if "efficient" in kind else "attn_mask")
    found = result(f"aten.{kind}.default", q, q, q, mask, names=names)
    np.testing.assert_allclose(found, [[[[0, 1, 2], [0, 0, 0]]]], rtol=1e-6)


@pytest.mark.parametrize("kind", ["Scalar", "Tensor"])
@pytest.mark.parametrize("weight", [0.0, 0.25, 0.75, 1.0])
def test_interpolation_reaches_its_ends(kind: str, weight: float) -> None:
    x, end = f32(1e8, -3e8, 2), f32(1, 2, 6)
    names, extra = ("self", "end", "weight"), [f32(weight)] if kind == "Tensor" else []
    found = result(f"aten.lerp.{kind}", x, end, *extra, names=names, **({} if extra else {"weight": weight}))
    wanted = x + np.float32(weight) * (end - x) if weight < 0.5 else end - (end - x) * np.float32(1 - weight)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("dim", "axes"), [(-1, (0, 1)), (0, (1,)), (1, (0,))])
def test_norms_of_weights(dim: int, axes: tuple[int, ...]) -> None:
    v, g = np.arange(1, 7, dtype=np.float32).reshape(2, 3), np.float32(2)
    found = result("aten._weight_norm.default", v, g, names=("v", "g"), dim=dim)
    np.testing.assert_allclose(found, v * 2 / np.sqrt((v**2).sum(axis=axes, keepdims=True)), rtol=1e-6)


def test_literals_are_constants() -> None:
    held = f32(1, 2, 3)
    nodes = [
        Node("held", LITERAL, {"value": held}, ["held"]),
        Node("y", "aten.add.Tensor", {"self": Ref("x"), "other": Ref("held")}, ["y"]),
    ]
    program = Graph([Input("x", "input")], nodes, [Output(Ref("y"))], {"x": Meta(DType.F32, (3,), (1,))})
    np.testing.assert_array_equal(evaluate(import_torch(program), {"x": held * 10})["output"], held * 11)


def test_numbers_are_taken_in_as_many_bits_as_the_tensor_has() -> None:
    x = np.array([1, 250], np.uint8)
    np.testing.assert_array_equal(result("aten.add.Scalar", x, other=-1), np.array([0, 249], np.uint8))
    np.testing.assert_array_equal(result("aten.bitwise_and.Scalar", x, other=300), np.array([0, 40], np.uint8))


def test_quotients_of_unlike_integers_are_floats_of_each() -> None:
    """Bytes and numbers below 0 have no other type in common."""
    x, y = np.array([6, 200], np.uint8), np.array([-2, -4], np.int8)
    np.testing.assert_array_equal(result("aten.div.Tensor", x, y), f32(-3, -50))
    np.testing.assert_array_equal(result("aten.div.Scalar", x, other=-2), f32(-3, -100))


@pytest.mark.parametrize("kind", ["left", "right"])
def test_shifts_by_more_bits_than_there_are(kind: str) -> None:
    x, by = np.array([5, -5, 5, -5], np.int32), np.array([32, 40, -1, 1], np.int32)
    wanted = [0, 0, 0, -10] if kind == "left" else [0, -1, 0, -3]
    np.testing.assert_array_equal(result(f"aten.bitwise_{kind}_shift.Tensor", x, by), wanted)
