# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: values that compilers take for impossible, and places that wrap, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.evaluate import evaluate
from memc.ir.text.parser import parse

pytestmark = pytest.mark.gpu

WRAPPED = """
func @main(%x: T[N] {role = input}) -> (T[N], bool[N]) {
  %three = constant() {value = dense<T[]>[3]} : T[]
  %a = mul(%x, %three) : T[N]
  %y = div(%a, %three) : T[N]
  %more = add(%x, %three) : T[N]
  %l = less(%x, %more) : bool[N]
  return %y, %l
}
"""

PADDED = """
func @main(%x: f32[4,5] {role = input}) -> f32[7,10] {
  %y = pad(%x) {mode = "wrap", low = [2, 3], high = [1, 2], value = 0.0} : f32[7,10]
  return %y
}
"""

CANCELLED = """
func @main(%x: T[N] {role = input}, %z: T[N] {role = input}) -> (T[N], T[N], bool[N]) {
  %a = exp(%x) : T[N]
  %b = exp(%x) : T[N]
  %y = sub(%a, %b) : T[N]
  %s = add(%x, %z) : T[N]
  %d = sub(%s, %z) : T[N]
  %le = less_equal(%x, %z) : bool[N]
  %gt = less(%z, %x) : bool[N]
  %any = logical_or(%le, %gt) : bool[N]
  return %y, %d, %any
}
"""


def check(text: str, inputs: dict[str, Any], folder: Path, arch: str) -> None:
    module = parse(text, "test")
    with np.errstate(all="ignore"):
        expected = evaluate(parse(text, "test"), inputs)
    found = memc.compile(module, folder / "m.memc", target="cuda", arch=arch).load().run_numpy(inputs)
    for got, want in zip(found.values(), expected.values() if isinstance(expected, dict) else expected):
        np.testing.assert_allclose(got, want, rtol=1e-5) if got.dtype.kind == "f" else np.testing.assert_array_equal(
            got, want
        )


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_integers_wrap(dtype: str, arch: str, tmp_path: Path) -> None:
    kind = np.dtype({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    info = np.iinfo(kind)
    x = np.array([info.max, info.min, info.max // 2 + 1, info.max // 3 + 1, 7, 1], kind)
    check(WRAPPED.replace("T", dtype).replace("N", "6"), {"x": x}, tmp_path, arch)


def test_rows_and_columns_wrap(arch: str, tmp_path: Path) -> None:
    check(PADDED, {"x": np.arange(20, dtype=np.float32).reshape(4, 5)}, tmp_path, arch)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_no_numbers_stay_none(dtype: str, arch: str, tmp_path: Path) -> None:
    kind = np.dtype("float" + dtype[1:])
    x = np.array([np.inf, -np.inf, np.nan, 1, -0.0, 0.0], kind)
    z = np.array([np.nan, np.inf, 1, np.nan, -0.0, 1], kind)
    check(CANCELLED.replace("T", dtype).replace("N", "6"), {"x": x, "z": z}, tmp_path, arch)
