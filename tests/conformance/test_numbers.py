# SPDX-License-Identifier: Apache-2.0
"""What docs/numerics.md promises: rounding errors of long sums, exact integers, signs of zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import memc

Arrays = Mapping[str, np.ndarray]


def model(nodes: Sequence[onnx.NodeProto], inputs: Arrays, outputs: Arrays, constants: Arrays) -> onnx.ModelProto:
    """Outputs are given by arrays of their types."""

    def info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        nodes,
        "g",
        [info(*item) for item in inputs.items()],
        [info(*item) for item in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def results(proto: onnx.ModelProto, inputs: Arrays, level: int) -> dict[str, np.ndarray]:
    return memc.compile(proto, opt_level=level).load().run_numpy(dict(inputs))


def check(
    nodes: Sequence[onnx.NodeProto], inputs: Arrays, expected: Arrays, constants: Arrays, level: int, error: float = 0
) -> None:
    """`error`: of what the largest element is, in any element; 0 for the same numbers, signs of zeros included."""
    found = results(model(nodes, inputs, expected, constants), inputs, level)
    for name, wanted in expected.items():
        assert found[name].dtype == wanted.dtype and found[name].shape == wanted.shape, name
        if error:
            off = np.abs(found[name].astype(np.float64) - wanted).max() / np.abs(wanted).max()
            assert off <= error, f"{name}: {off}"
            continue
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)
        if wanted.dtype.kind == "f":
            number = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(found[name][number]), np.signbit(wanted[number]), err_msg=name)


node = helper.make_node
RNG = np.random.default_rng(7)


def uniform(*shape: int) -> np.ndarray:
    """Positive numbers, whose sums lose most to rounding."""
    return RNG.random(shape, np.float32)


# Long sums. An error of 2e-6 is less than what adding up in a row gives for these extents: 5e-6 and more.


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (1, 262_144, 1),
        (1, 2_000_000, 1),
        (1, 262_144, 16),
        (16, 262_144, 1),
        (3, 262_144, 1),
        (16, 100_000, 16),
        (64, 20_000, 64),
    ]
    + [(2, 200_000, 2), (1, 20_000, 1030), (1030, 20_000, 1), (12, 4096, 16)],
)
def test_products_of_many_terms(m: int, k: int, n: int, constant: bool) -> None:
    a, b = uniform(m, k), uniform(k, n)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    expected = {"y": exact.astype(np.float32)}
    inputs, constants = ({"a": a}, {"b": b}) if constant else ({"a": a, "b": b}, {})
    check([node("MatMul", ["a", "b"], ["y"])], inputs, expected, constants, 2, error=2e-6)


@pytest.mark.parametrize(("left", "right"), [(0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(("m", "n"), [(1, 3), (3, 1), (5, 4)])
def test_transposed_products_of_many_terms(m: int, n: int, left: int, right: int) -> None:
    a, b = uniform(m, 262_144), uniform(262_144, n)
    expected = {"y": (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)}
    inputs = {"a": np.ascontiguousarray(a.T) if left else a, "b": np.ascontiguousarray(b.T) if right else b}
    check([node("Gemm", ["a", "b"], ["y"], transA=left, transB=right)], inputs, expected, {}, 2, error=2e-6)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("x", "w", "group"),
    [
        ((1, 65536, 1, 2), (3, 65536, 1, 1), 1),
        ((1, 16, 96, 96), (4, 16, 96, 96), 1),
        ((1, 4, 256, 256), (4, 1, 256, 256), 4),
    ]
    + [((1, 2, 1, 66000), (2, 1, 1, 65536), 2)],
)
def test_convolutions_of_many_terms(x: tuple[int, ...], w: tuple[int, ...], group: int, constant: bool) -> None:
    image, weights = uniform(*x), uniform(*w)
    windows = np.lib.stride_tricks.sliding_window_view(image[0].astype(np.float64), w[2:], axis=(1, 2))
    if group == 1:
        exact = np.einsum("chwij,mcij->mhw", windows, weights.astype(np.float64), optimize=True)
    else:
        exact = np.einsum("chwij,cij->chw", windows, weights[:, 0].astype(np.float64), optimize=True)
    inputs, constants = ({"x": image}, {"w": weights}) if constant else ({"x": image, "w": weights}, {})
    check(
        [node("Conv", ["x", "w"], ["y"], group=group)],
        inputs,
        {"y": exact[None].astype(np.float32)},
        constants,
        2,
        2e-6,
    )


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("extent", [513, 640, 200_000])
def test_long_running_sums(extent: int, reverse: int, exclusive: int, level: int) -> None:
    x = uniform(extent)
    steps = x.astype(np.float64)[::-1] if reverse else x.astype(np.float64)
    exact = np.cumsum(steps) - (steps if exclusive else 0)
    expected = {"y": (exact[::-1] if reverse else exact).astype(np.float32)}
    nodes = [node("CumSum", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)]
    check(nodes, {"x": x}, expected, {"axis": np.array(0)}, level, error=2e-7)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.float64])
def test_long_running_sums_of_other_types(dtype: type) -> None:
    x = RNG.integers(0, 2**31, (2, 1000, 3)).astype(dtype)
    expected = {"y": np.cumsum(x, axis=1, dtype=dtype)}
    check([node("CumSum", ["x", "axis"], ["y"])], {"x": x}, expected, {"axis": np.array(1)}, 2)


# Integers.


def exact_mean(x: np.ndarray, axis: int) -> np.ndarray:
    """In Python's integers, towards zero."""
    rows = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    sums = [sum(int(v) for v in row) for row in rows]
    means = [abs(s) // x.shape[axis] * (1 if s >= 0 else -1) for s in sums]
    return np.array(means, x.dtype).reshape(np.delete(x.shape, axis))


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_integer_means_do_not_wrap(dtype: type, axis: int, level: int) -> None:
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, (7, 9), dtype=dtype, endpoint=True)
    x[0], x[1], x[2] = info.max, info.min, [info.max] * 8 + [1]
    x[3] = [-1 if info.min else 1] + [0] * 8
    nodes = [node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)]
    check(nodes, {"x": x}, {"y": exact_mean(x, axis)}, {"axes": np.array([axis])}, level)


def test_the_evaluator_agrees_on_integer_means() -> None:
    from memc.ir.evaluate import plain as evaluate
    from memc.ir.text import parser

    for dtype in (np.int32, np.int64, np.uint32, np.uint64):
        info = np.iinfo(dtype)
        x = np.array([[info.max, info.max, info.min], [info.min, info.min, info.min], [7, 1, 0]], dtype)
        name = f"{'i' if info.min else 'u'}{info.bits}"
        text = f"""func @main(%x: {name}[3,3] {{role = input}}) -> {name}[3] {{
          %y = reduce_mean(%x) {{axes = [1], keepdims = false}} : {name}[3]
          return %y
        }}"""
        (found,) = evaluate.evaluate(parser.parse(text), {"x": x}).values()
        np.testing.assert_array_equal(found, exact_mean(x, 1))


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_powers(dtype: type, level: int) -> None:
    base = np.array([7, 3, -3, 2, -1, 1, 0, 5, -2, 10], dtype)
    power = np.array([20 if dtype is np.int64 else 11, 19, 19, 30, 101, -5, 0, -1, 31, 9], dtype)
    powers = [
        int(b) ** int(p) if p >= 0 else {1: 1, -1: 1 if p % 2 == 0 else -1}.get(int(b), 0) for b, p in zip(base, power)
    ]
    check([node("Pow", ["a", "b"], ["y"])], {"a": base, "b": power}, {"y": np.array(powers, dtype)}, {}, level)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_beyond_unsigned_integers(dtype: type, level: int) -> None:
    """As numpy converts on x86, and at every level alike; the standard leaves it open."""
    with np.errstate(over="ignore"):
        x = np.array([np.nan, np.inf, -np.inf, 1e30, -1.0, 2.0**63, 3e9, -0.5], np.float64).astype(dtype)
    expected = [
        2**63,
        0,
        2**63,
        0,
        2**64 - 1,
        2**63 if np.isfinite(x[5]) else 0,
        3 * 10**9 if np.isfinite(x[6]) else 0,
        0,
    ]
    nodes = [node("Cast", ["x"], ["y"], to=TensorProto.UINT64)]
    check(nodes, {"x": x}, {"y": np.array(expected, np.uint64)}, {}, level)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_integers_are_resized_to_the_nearest(dtype: type, mode: str) -> None:
    """Half to even, and to the limits: as the reference, where onnxruntime truncates."""
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, (1, 2, 9, 7), dtype=dtype, endpoint=True)
    proto = model(
        [node("Resize", ["x", "", "scales"], ["y"], mode=mode)],
        {"x": x},
        {"y": np.zeros((1, 2, 18, 14), dtype)},
        {"scales": np.array([1, 1, 2, 2], np.float32)},
    )
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(results(proto, {"x": x}, 2)["y"], expected)


# Zeros have signs.

ZEROS = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 1.5, -3e38], np.float32)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("behind", ["Identity", "Neg"])
def test_signs_of_zeros(behind: str, dtype: type, level: int) -> None:
    with np.errstate(all="ignore"):
        x = ZEROS.astype(dtype)
        t = -x if behind == "Neg" else x
        zero, minus, one = (np.array(v, dtype) for v in (0.0, -0.0, 1.0))
        expected = {
            "a": t + zero,
            "b": zero + t,
            "c": t + minus,
            "d": t - zero,
            "e": t - minus,
            "f": zero - t,
            "g": t * zero,
            "h": t * minus,
            "i": t * one,
            "j": t / one,
            "k": t - t,
            "l": t,
            "m": t + zero + zero,
            "n": t,
            "o": t,
        }
    operands = [("Add", "t", "zero"), ("Add", "zero", "t"), ("Add", "t", "minus"), ("Sub", "t", "zero")]
    operands += [("Sub", "t", "minus"), ("Sub", "zero", "t"), ("Mul", "t", "zero"), ("Mul", "t", "minus")]
    operands += [("Mul", "t", "one"), ("Div", "t", "one"), ("Sub", "t", "t")]
    nodes = [node(behind, ["x"], ["t"]), *(node(op, [p, q], [y]) for (op, p, q), y in zip(operands, "abcdefghijk"))]
    nodes += [node("Neg", ["t"], ["u"]), node("Neg", ["u"], ["l"]), node("Add", ["a", "zero"], ["m"])]
    nodes += [node("Unsqueeze", ["t", "axes"], ["v"]), node("ReduceSum", ["v", "axes"], ["n"], keepdims=0)]
    nodes += [node("ReduceMean", ["v", "axes"], ["o"], keepdims=0)]
    constants = {"zero": zero, "minus": minus, "one": one, "axes": np.array([1])}
    check(nodes, {"x": x}, expected, constants, level)
