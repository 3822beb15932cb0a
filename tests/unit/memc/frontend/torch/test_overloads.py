# SPDX-License-Identifier: Apache-2.0
"""Every converter against PyTorch: the files in `data/` hold programs, inputs and PyTorch's results (`torch_cases.py` writes them)."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import memc
from memc.frontend.torch.archive import read_archive
from memc.frontend.torch.context import overloads
from memc.frontend.torch.importer import import_torch
from memc.ir.core import Array, Role
from memc.ir.evaluate import evaluate
from memc.ir.module import Module

DATA = Path(__file__).parent / "data"

ELSEWHERE = {
    *("aten.bernoulli.default", "aten.bernoulli.float", "aten.bernoulli.p", "aten.uniform.default"),
    *("aten.rand.default", "aten.rand_like.default", "aten.randn.default", "aten.randn_like.default"),
    *("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default", "aten.sym_numel.default"),
    # Attention on a GPU, by the converter of attention.
    *("aten._scaled_dot_product_efficient_attention.default", "aten._scaled_dot_product_flash_attention.default"),
}
"""Overloads that `test_graphs.py` has, beside arithmetic of sizes."""


def stored(path: Path) -> tuple[list[Array], list[Array]]:
    """Inputs and results of a file."""
    with zipfile.ZipFile(path) as archive:
        data = np.load(io.BytesIO(archive.read(f"{path.stem}/extra/data.npz")))
    return tuple([data[f"{kind}{n}"] for n in range(sum(k.startswith(kind) for k in data))] for kind in ("in", "out"))  # type: ignore[return-value]


def given(module: Module, inputs: list[Array]) -> dict[str, Array]:
    return {p.name: a for p, a in zip(module.main.params_of(Role.INPUT), inputs)}


def close(got: Array, want: Array, name: str) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype, (name, got.dtype, got.shape, want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pt2")), ids=lambda path: path.stem)
def test_results_are_those_of_pytorch(path: Path) -> None:
    assert "torch" not in sys.modules
    inputs, wanted = stored(path)
    module = import_torch(path)
    states = {p.name for p in module.main.params_of(Role.STATE)}
    results = {n: a for n, a in evaluate(module, given(module, inputs)).items() if n not in states}
    assert len(results) == len(wanted)
    for (name, got), want in zip(results.items(), wanted):
        value = module.main.returns[module.main.result_names.index(name)]
        close(got, want, f"{name} of {value.op}")


def test_every_overload_is_in_a_file() -> None:
    called = {node.target for path in DATA.glob("*.pt2") for node in read_archive(path).nodes}
    left = set(overloads()) - called - ELSEWHERE
    assert sorted(name for name in left if name.split(".")[0] not in ("operator", "torch", "math")) == []


@pytest.mark.parametrize("name", ["in_place", "sizes", "attention"])
def test_compiled_programs(name: str, tmp_path: Path) -> None:
    inputs, wanted = stored(DATA / f"{name}.pt2")
    executable = memc.compile(DATA / f"{name}.pt2").load()
    results = list(executable(*inputs).values())
    for got, want in zip(results, wanted):
        close(np.asarray(got), want, name)
