# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: scatters and rows added up by index by memc's own kernels, against one update after another,
and compiled programs against the CPU's. Skips itself elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scatter_cases
from scatter_cases import (
    DTYPES,
    ELEMENTS,
    GATHERS,
    REDUCTIONS,
    ROWS,
    Array,
    check_elements,
    check_gather_grad,
    check_rows,
    make_op,
)

import memc
from memc.ir.ops.library import cuda_scatters
from memc.ir.ops.shared.op_def import LibraryKernel
from memc.ir.text.parser import parse

pytestmark = pytest.mark.gpu

GUARD = 64


def run(library: LibraryKernel, name: str, arrays: list[Array], **attrs: Any) -> Array:
    """The kernel's result, the same bits twice, and nothing beyond it and the workspace written."""
    import tvm
    import tvm_ffi

    op, device = make_op(name, arrays, **attrs), tvm.cuda(0)
    assert library.supports(op) and library.workspace is not None
    plain = [a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for a in map(np.ascontiguousarray, arrays)]
    given = [tvm.runtime.tensor(a, device) for a in plain]
    type, room = op.result.type, library.workspace(op)[0]
    found: list[Array] = []
    for _ in range(2):
        sizes = [type.nbytes, room]
        held = [tvm.runtime.tensor(np.full(size + GUARD, 0xA5, np.uint8), device) for size in sizes]
        dtype = "uint16" if type.dtype.numpy == ml_dtypes.bfloat16 else str(type.dtype.numpy)
        tensors = [*given, held[0]._create_view(type.shape, dtype), *([held[1]._create_view((room,))] if room else [])]
        tvm_ffi.get_global_func(library.symbol)(*map(tvm_ffi.from_dlpack, tensors), *library.scalars(op))
        raw = [t.numpy() for t in held]
        assert all((a[size:] == 0xA5).all() for a, size in zip(raw, sizes))
        found.append(raw[0][:-GUARD].view(type.dtype.numpy).reshape(type.shape))
    assert found[0].tobytes() == found[1].tobytes()
    return found[0]


@pytest.fixture(autouse=True)
def on_the_device(kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter_cases, "run", run)


@pytest.mark.parametrize("kind", ["many", "few"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatters(dtype: str, reduction: str, kind: str) -> None:
    whole, combine = cuda_scatters.SCATTER_ELEMENTS_CUDA, cuda_scatters.ELEMENTS_COMBINE_CUDA
    for case in range(len(ELEMENTS)):
        check_elements(whole, combine, case, dtype, reduction, kind)
    whole, combine = cuda_scatters.SCATTER_ND_CUDA, cuda_scatters.ND_COMBINE_CUDA
    for case in range(len(ROWS)):
        check_rows(whole, combine, case, dtype, reduction, kind)


@pytest.mark.parametrize("kind", ["many", "few"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rows_added_up(dtype: str, kind: str) -> None:
    for case in range(len(GATHERS)):
        check_gather_grad(cuda_scatters.GATHER_GRAD_CUDA, case, dtype, kind)


@pytest.mark.parametrize("places", [1, 40, 3000, 1_000_000])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_many_updates(dtype: str, reduction: str, places: int) -> None:
    """A million updates, by numbers whose sums are exact."""
    if reduction == "mul" and dtype != "int32" and places < 3000:
        pytest.skip("products of floats are made by one thread")
    rng = np.random.default_rng(places)
    indices = rng.integers(-places, places, 1_000_003)
    span = 2 if dtype == "float16" and places > 40 else 1
    updates = rng.integers(-span, span + 1, indices.size).astype(dtype)
    if dtype == "float16" and reduction == "add" and places <= 40:
        updates = np.where(rng.random(indices.size) < 1e-3, updates, 0).astype(dtype)
    if reduction == "mul":
        updates = rng.choice([-1, 1], indices.size).astype(dtype)
    data = rng.integers(-3, 4, places).astype(dtype)
    found = run(
        cuda_scatters.SCATTER_ELEMENTS_CUDA, "scatter_elements", [data, indices, updates], axis=0, reduction=reduction
    )
    at = [np.where(indices < 0, indices + places, indices)]
    wanted = scatter_cases.combined(data, at, updates, reduction)
    np.testing.assert_array_equal(found, wanted.astype(dtype))


def test_an_embedding() -> None:
    """Of a language model, with tokens as frequent as in a text; sums against f64."""
    rng = np.random.default_rng(0)
    tokens = np.minimum(rng.zipf(1.3, (8, 512)) - 1, 50_256)
    g = rng.standard_normal((8, 512, 768)).astype(np.float32)
    found = run(cuda_scatters.GATHER_GRAD_CUDA, "gather_grad", [tokens, g], axis=0, extent=50_257)
    wanted = np.zeros((50_257, 768))
    np.add.at(wanted, tokens.reshape(-1), g.reshape(-1, 768).astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-5)


PROGRAM = """
func @main(%a: f32[{b},700] {{role = input}}, %i: i64[{b},900] {{role = input}}, %u: f32[{b},900] {{role = input}}, %t: i32[{b},300] {{role = input}}, %g: bf16[{b},300,40] {{role = input}}, %k: i64[{b},600] {{role = input}}, %v: f32[{b},600] {{role = input}}) -> (f32[{b},700], f32[{b},700], f32[90,40], f32[{b},700]) {{
  %x = exp(%a) : f32[{b},700]
  %y = scatter_elements(%x, %i, %u) {{axis = 1, reduction = "add"}} : f32[{b},700]
  %z = scatter_elements(%y, %k, %v) {{axis = 1, reduction = "none"}} : f32[{b},700]
  %w = gather_grad(%t, %g) {{axis = 0, extent = 90}} : f32[90,40]
  %m = scatter_elements(%z, %i, %u) {{axis = 1, reduction = "max"}} : f32[{b},700]
  return %y, %z, %w, %m
}}
"""


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
@pytest.mark.parametrize("batch", [1, 2, 3, 7, 16])
def test_programs_give_what_the_cpu_gives(arch: str, tmp_path: Path, batch: int, opt_level: int) -> None:
    rng, text = np.random.default_rng(batch), PROGRAM.format(b=batch)
    inputs = {
        "a": rng.standard_normal((batch, 700)).astype(np.float32),
        "i": rng.integers(-700, 700, (batch, 900)),
        "u": rng.standard_normal((batch, 900)).astype(np.float32),
        "t": rng.integers(-90, 90, (batch, 300)).astype(np.int32),
        "g": rng.standard_normal((batch, 300, 40)).astype(ml_dtypes.bfloat16),
        "k": rng.integers(-700, 700, (batch, 600)),
        "v": rng.standard_normal((batch, 600)).astype(np.float32),
    }
    runs = []
    for target in ({"target": "llvm"}, {"target": "cuda", "arch": arch}):
        done = memc.compile(parse(text), tmp_path / target["target"], opt_level=opt_level, **target)  # type: ignore[arg-type]
        loaded = done.load()
        runs.append(list(loaded.run_numpy(inputs).values()))
        again = list(loaded.run_numpy(inputs).values())
        assert all(a.tobytes() == b.tobytes() for a, b in zip(runs[-1], again))
    for host, device in zip(*runs):
        np.testing.assert_allclose(device, host, rtol=1e-4, atol=1e-4)
