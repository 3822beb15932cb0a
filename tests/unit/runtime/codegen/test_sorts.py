# SPDX-License-Identifier: Apache-2.0
"""Sorts and running products in compiled programs: values, by what kernels, in what memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import memc
from memc.ir.core import Array
from memc.ir.evaluate import evaluate
from memc.ir.text.parser import parse
from memc.runtime.execute.executable import Executable

RNG = np.random.default_rng(2)

TOP_K = """
func @main(%x: {type} {{role = input}}) -> ({values}, {positions}) {{
  %v, %p = top_k(%x) {{axis = {axis}, k = {k}, largest = {largest}}} : {values}, {positions}
  return %v, %p
}}
"""
NAMES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i32": np.int32}


def top_k(dtype: str, shape: tuple[int, ...], axis: int, k: int, largest: bool) -> str:
    kept = ",".join(str(k if a == axis else n) for a, n in enumerate(shape))
    return TOP_K.format(
        type=f"{dtype}[{','.join(map(str, shape))}]",
        values=f"{dtype}[{kept}]",
        positions=f"i64[{kept}]",
        axis=axis,
        k=k,
        largest=str(largest).lower(),
    )


def compiled(text: str, **options: object) -> Executable:
    return memc.compile(parse(text), **options).load()  # type: ignore[arg-type]


def expected(x: Array, axis: int, k: int, largest: bool) -> tuple[Array, Array]:
    wide = x.astype(np.float64)
    order = np.argsort(-wide if largest else wide, axis=axis, kind="stable")
    positions = np.take(order, range(k), axis=axis)
    return np.take_along_axis(x, positions, axis), positions


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", NAMES)
def test_top_k(dtype: str, opt_level: int) -> None:
    for shape, axis, k, largest in [((3, 700), 1, 5, True), ((600, 3), 0, 600, False), ((2, 900), 1, 700, True)]:
        x = RNG.integers(-40, 40, shape).astype(NAMES[dtype])
        executable = compiled(top_k(dtype, shape, axis, k, largest), opt_level=opt_level)
        assert executable.manifest.library_functions == ("memc.cpu.top_k",)
        for found, wanted in zip(executable(x=x).values(), expected(x, axis, k, largest)):
            np.testing.assert_array_equal(found, wanted)


def test_generated_kernels_say_the_same() -> None:
    x = RNG.integers(-9, 9, (4, 80)).astype(np.float32)
    executable = compiled(top_k("f32", (4, 80), 1, 30, True), kernels="generated")
    assert not executable.manifest.library_functions
    for found, wanted in zip(executable(x=x).values(), expected(x, 1, 30, True)):
        np.testing.assert_array_equal(found, wanted)


def test_nan_is_the_greatest_and_the_first_of_equal_ones_counts() -> None:
    x = np.array([0.0, np.nan, -0.0, np.inf, -np.inf, -np.nan, 0.0], np.float32)
    for largest, wanted in ((True, [1, 5, 3, 0, 2, 6, 4]), (False, [4, 0, 2, 6, 3, 1, 5])):
        values, positions = compiled(top_k("f32", (7,), 0, 7, largest))(x=x).values()
        np.testing.assert_array_equal(positions, wanted)
        np.testing.assert_array_equal(values.view(np.uint32), x[wanted].view(np.uint32))


@pytest.mark.parametrize("shape, k", [((100_000,), 10), ((100_000,), 100_000), ((1000, 100), 100)])
def test_a_line_is_sorted_in_the_bytes_of_its_results(shape: tuple[int, ...], k: int) -> None:
    report = memc.compile(parse(top_k("f32", shape, len(shape) - 1, k, True)), plan_only=True).report
    assert report.arena_bytes == 0


def test_ranks() -> None:
    text = """
    func @main(%x: f32[5000] {role = input}) -> (i64[5000], i64[4000]) {
      %r = sort_ranks(%x) {axis = 0, descending = false} : i64[5000]
      %p = rank_positions(%r) {axis = 0, count = 4000} : i64[4000]
      return %r, %p
    }
    """
    x = RNG.integers(0, 900, 5000).astype(np.float32)
    executable = compiled(text)
    assert set(executable.manifest.library_functions) == {"memc.cpu.sort_ranks", "memc.cpu.rank_positions"}
    ranks, positions = executable(x=x).values()
    order = np.argsort(x, kind="stable")
    np.testing.assert_array_equal(ranks[order], np.arange(5000))
    np.testing.assert_array_equal(positions, order[:4000])


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
def test_running_products(dtype: str, reverse: bool, exclusive: bool) -> None:
    text = f"""
    func @main(%x: {dtype}[3,2000] {{role = input}}) -> {dtype}[3,2000] {{
      %y = cumprod(%x) {{axis = 1, exclusive = {str(exclusive).lower()}, reverse = {str(reverse).lower()}}} : {dtype}[3,2000]
      return %y
    }}
    """
    x = (RNG.integers(0, 4, (3, 2000)) * 2 - 3 if dtype == "i32" else RNG.uniform(0.97, 1.03, (3, 2000))).astype(
        NAMES[dtype]
    )
    (found,) = compiled(text)(x=x).values()
    turned = x[:, ::-1] if reverse else x
    wanted = np.cumprod(turned, axis=1, dtype=x.dtype)
    if exclusive:
        wanted = np.concatenate([np.ones((3, 1), x.dtype), wanted[:, :-1]], axis=1)
    np.testing.assert_array_equal(found, wanted[:, ::-1] if reverse else wanted)
    (slow,) = compiled(text, kernels="generated")(x=x).values()
    np.testing.assert_allclose(found, slow, rtol=1e-4 if dtype == "f32" else 1e-12)


@pytest.mark.parametrize("opt_level", [0, 2])
def test_suppression(opt_level: int) -> None:
    text = """
    func @main(%b: f32[2,500,4] {role = input}, %c: i64[2,3,500] {role = input}, %t: f32[] {role = input}) -> i64[2,3,400] {
      %y = non_max_suppression(%b, %c, %t) {center = true, count = 400} : i64[2,3,400]
      return %y
    }
    """
    given = {
        "b": RNG.uniform(0.1, 2, (2, 500, 4)).astype(np.float32),
        "c": np.array([[RNG.permutation(500) for _ in range(3)] for _ in range(2)]),
        "t": np.array(0.4, np.float32),
    }
    executable = compiled(text, opt_level=opt_level)
    assert executable.manifest.library_functions == ("memc.cpu.non_max_suppression",)
    (wanted,) = evaluate(parse(text), given).values()
    assert 10 < (wanted >= 0).sum() < wanted.size
    np.testing.assert_array_equal(next(iter(executable(**given).values())), wanted)
    np.testing.assert_array_equal(next(iter(compiled(text, kernels="generated")(**given).values())), wanted)
