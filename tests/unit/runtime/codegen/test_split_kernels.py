# SPDX-License-Identifier: Apache-2.0
"""memc's own CUDA kernels are compiled once for all models, and go into the artifacts that may take them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import memc
from memc.ir.errors import UnsupportedError
from memc.ir.text.parser import parse
from memc.runtime.artifact.manifest import IMAGE
from memc.runtime.codegen import cubin, cuda_kernels

PRODUCT = """
func @main(%x: f32[8,32] {role = input}, %w: f32[32,16] {role = input}) -> f32[8,16] {
  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[8,16]
  return %y
}
"""


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The architectures that sources were compiled for, with a cache that is empty at first."""
    found: list[str] = []

    def compile_source(source: str, arch: str, includes: Path) -> bytes:
        found.append(arch)
        return f"cubin for {arch}".encode()

    monkeypatch.setattr(cubin, "compile_source", compile_source)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cuda_kernels.own_kernels.cache_clear()
    return found


def test_kernels_are_kept_for_each_architecture(compiled: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        assert cuda_kernels.own_kernels("sm_90") == b"cubin for sm_90"
        assert cuda_kernels.own_kernels("sm_80") == b"cubin for sm_80"
        cuda_kernels.own_kernels.cache_clear()  # As in another process.
    assert compiled == ["sm_90", "sm_80"]
    assert len(list((tmp_path / "cache" / "memc").iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_none(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cuda_kernels.own_kernels("sm_90") == b"cubin for sm_90"


def test_errors_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cuda_kernels.own_kernels.cache_clear()
    with pytest.raises(UnsupportedError, match="nvcc was not found"):
        cuda_kernels.own_kernels("sm_90")
    assert not list(tmp_path.rglob("*.cubin"))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(
    ("options", "there"), [({}, True), ({"precision": "f16"}, False), ({"kernels": "generated"}, False)]
)
def test_artifacts_that_may_take_them_have_them(tmp_path: Path, options: dict[str, Any], there: bool) -> None:
    cuda_kernels.own_kernels.cache_clear()
    memc.compile(parse(PRODUCT, "test"), tmp_path / "m.memc", target="cuda", **options)
    image = tmp_path / "m.memc" / IMAGE
    assert image.is_file() == there
    if there:
        assert image.read_bytes().startswith(b"\x7fELF") and b"split_product_2_64x64_deep_across" in image.read_bytes()


SORT = """
func @main(%x: f16[8] {role = input}) -> (f16[3], i64[3]) {
  %a, %b = top_k(%x) {axis = 0, k = 3, largest = true} : f16[3], i64[3]
  return %a, %b
}
"""


CONVOLUTION = """
func @main(%x: f32[2,8,16,16] {role = input}, %w: f32[8,8,3,3] {role = input}) -> f32[2,8,16,16] {
  %y = conv(%x, %w) {group = 1, strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : f32[2,8,16,16]
  return %y
}
"""


def test_sources_are_those_that_a_call_may_take() -> None:
    def sources(text: str, **options: Any) -> tuple[str, ...]:
        planned = memc.compile(parse(text, "test"), target="cuda", plan_only=True, **options)
        return cuda_kernels.sources_of(planned.module.main)

    product = PRODUCT.replace(
        "return %y", "%c, %d = top_k(%y) {axis = 1, k = 2, largest = true} : f32[8,2], i64[8,2]\n  return %y, %c, %d"
    )
    product = product.replace("-> f32[8,16]", "-> (f32[8,16], f32[8,2], i64[8,2])")
    assert sources(PRODUCT) == cuda_kernels.FACTORS
    assert sources(SORT) == cuda_kernels.LINES
    assert sources(product) == cuda_kernels.FACTORS + cuda_kernels.LINES
    assert sources(PRODUCT, precision="tf32") == sources(CONVOLUTION) == cuda_kernels.FACTORS
    assert sources(CONVOLUTION, precision="tf32") == cuda_kernels.FACTORS + cuda_kernels.ROUNDED_FACTORS
    volume = CONVOLUTION.replace("16,16]", "16,16,1]").replace("3,3]", "3,3,1]")
    volume = volume.replace("[1, 1]", "[1, 1, 1]").replace("[1, 1, 1, 1]", "[1, 1, 0, 1, 1, 0]")
    assert sources(volume) == cuda_kernels.FACTORS + cuda_kernels.VOLUMES
    assert sources(volume, precision="tf32") == cuda_kernels.FACTORS + cuda_kernels.ROUNDED_FACTORS
    assert sources(volume, precision="f16") == ()
