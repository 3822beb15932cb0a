# SPDX-License-Identifier: Apache-2.0
"""Scatters and gradients of embeddings in compiled programs: values, by what kernels, in what memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import memc
from memc.ir.core import Array
from memc.ir.evaluate import evaluate
from memc.ir.text.parser import parse
from memc.runtime.execute.executable import Executable

RNG = np.random.default_rng(2)
NAMES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "u8": np.uint8,
}


def compiled(text: str, **options: Any) -> Executable:
    return memc.compile(parse(text), **options).load()


def scatter(dtype: str, reduction: str, batch: int) -> str:
    data, span = f"{dtype}[{batch},60]", f"{batch},100"
    return f"""
func @main(%x: {data} {{role = input}}, %i: i64[{span}] {{role = input}}, %u: {dtype}[{span}] {{role = input}}) -> ({data}) {{
  %y = scatter_elements(%x, %i, %u) {{axis = 1, reduction = "{reduction}"}} : {data}
  return %y
}}
"""


def check(text: str, executable: Executable, inputs: dict[str, Array]) -> None:
    module = parse(text)
    for found, wanted in zip(executable.run_numpy(inputs).values(), evaluate(module, inputs).values()):
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=2e-5 if found.dtype.itemsize > 2 else 1e-2
        )


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", NAMES)
def test_scatters(dtype: str, reduction: str) -> None:
    rounds = reduction in ("add", "mul") and dtype in ("f16", "bf16")
    name = "scatter_elements_combine" if rounds else "scatter_elements"
    for batch, opt_level in ((1, 0), (2, 1), (3, 2), (7, 3), (16, 2)):
        x, u = (RNG.integers(1, 4, (batch, n)).astype(NAMES[dtype]) for n in (60, 100))
        if reduction == "mul":
            u = np.where(RNG.random(u.shape) < 0.9, 1, u).astype(NAMES[dtype])
        text = scatter(dtype, reduction, batch)
        executable = compiled(text, opt_level=opt_level)
        assert executable.manifest.library_functions == (f"memc.cpu.{name}",)
        check(text, executable, {"x": x, "i": RNG.integers(-60, 60, (batch, 100)), "u": u})


IN_PLACE = """
func @main(%a: f32[4000] {role = input}, %i: i64[500] {role = input}, %u: f32[500] {role = input}) -> (f32[4000]) {
  %x = exp(%a) : f32[4000]
  %y = scatter_elements(%x, %i, %u) {axis = 0, reduction = "add"} : f32[4000]
  %z = neg(%y) : f32[4000]
  return %z
}
"""


def test_updates_go_to_where_the_data_is() -> None:
    compiled = memc.compile(parse(IN_PLACE))
    assert compiled.report.arena_bytes == 0  # The result's own bytes.
    executable = compiled.load()
    inputs = {"a": RNG.standard_normal(4000).astype(np.float32), "u": np.ones(500, np.float32)}
    check(IN_PLACE, executable, {**inputs, "i": RNG.integers(0, 50, 500)})


OWN_UPDATES = """
func @main(%a: f32[100] {role = input}, %i: i64[100] {role = input}) -> (f32[100]) {
  %x = exp(%a) : f32[100]
  %y = scatter_elements(%x, %i, %x) {axis = 0, reduction = "add"} : f32[100]
  %z = neg(%y) : f32[100]
  return %z
}
"""


def test_data_that_are_the_updates_are_not_written_over() -> None:
    inputs = {"a": RNG.standard_normal(100).astype(np.float32), "i": RNG.integers(0, 5, 100)}
    check(OWN_UPDATES, compiled(OWN_UPDATES), inputs)


def test_few_updates_are_fused() -> None:
    text = scatter("f32", "add", 2).replace("2,100", "2,8")
    executable = compiled(text)
    assert executable.manifest.library_functions == ()
    u = np.ones((2, 8), np.float32)
    check(text, executable, {"x": np.ones((2, 60), np.float32), "i": RNG.integers(0, 60, (2, 8)), "u": u})


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_gradients_of_embeddings(dtype: str) -> None:
    kind = "f64" if dtype == "f64" else "f32"
    text = f"""
func @main(%i: i64[9,30] {{role = input}}, %g: {dtype}[9,30,16] {{role = input}}) -> ({kind}[70,16]) {{
  %y = gather_grad(%i, %g) {{axis = 0, extent = 70}} : {kind}[70,16]
  return %y
}}
"""
    executable = compiled(text)
    assert executable.manifest.library_functions == ("memc.cpu.gather_grad",)
    g = RNG.integers(-3, 4, (9, 30, 16)).astype(NAMES[dtype])
    check(text, executable, {"i": RNG.integers(-70, 70, (9, 30)), "g": g})


@pytest.mark.parametrize("tokens", [40, 1024, 5000])
def test_gradients_of_a_vocabulary_are_sorted_on_cuda(tokens: int) -> None:
    """Also where the workspace raises the peak: a search for every row would take long."""
    text = f"""
func @main(%i: i64[{tokens}] {{role = input}}, %g: f32[{tokens},64] {{role = input}}) -> (f32[50257,64]) {{
  %y = gather_grad(%i, %g) {{axis = 0, extent = 50257}} : f32[50257,64]
  return %y
}}
"""
    module = memc.compile(parse(text), target="cuda", arch="sm_90", plan_only=True).module
    assert [op.plan.library_kernel for op in module.main.ops] == ["memc.cuda.gather_grad"]
