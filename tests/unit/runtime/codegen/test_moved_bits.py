# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements keep all of their bits, those of signalling NaNs too."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import memc

BITS = {
    "bf16": (ml_dtypes.bfloat16, np.uint16, [0x7FA0, 0x3F80, 0x8001, 0xFF81]),
    "f16": (np.float16, np.uint16, [0x7D01, 0x3C00, 0x8001, 0xFC01]),
    "f32": (np.float32, np.uint32, [0x7FA00001, 0x3F800000, 0x80000001, 0xFF800001]),
    "f64": (np.float64, np.uint64, [0x7FF4000000000001, 0x3FF0000000000000, 1, 0xFFF0000000000001]),
}
"""NumPy's type, one of its size, and the bits of a signalling NaN, 1, a subnormal number and a negative NaN."""

MOVES = {
    "copy": ("copy(%x)", "[4]"),
    "select": ("select(%c, %x, %x)", "[4]"),
    "transpose": ("transpose(%x) {perm = [0]}", "[4]"),
    "concat": ("concat(%z, %x) {axis = 0}", "[5]"),
    "slice": ("slice(%x) {starts = [0], stops = [4], steps = [1]}", "[4]"),
    "gather": ("gather(%x, %i) {axis = 0}", "[4]"),
    "pad": ('pad(%x) {low = [1], high = [0], value = 0.5, mode = "constant"}', "[5]"),
    "reshape": ("reshape(%x) {shape = [2, 2]}", "[2,2]"),
}

TEXT = """func @main(%x: KIND[4] {role = input}, %z: KIND[1] {role = input}, %c: bool[4] {role = input}, %i: i64[4] {role = input})
    -> (KINDSHAPE {name = "y"}) {
  %y = MOVE : KINDSHAPE
  return %y
}
"""


@pytest.mark.parametrize("kind", list(BITS))
@pytest.mark.parametrize("name", list(MOVES))
def test_bits_are_kept(tmp_path: Path, kind: str, name: str) -> None:
    dtype, whole, bits = BITS[kind]
    move, shape = MOVES[name]
    text = TEXT.replace("KIND", kind).replace("SHAPE", shape).replace("MOVE", move)
    executable = memc.compile(memc.parse(text), tmp_path / "m.memc", pass_pipeline="assign-addresses").load()
    x = np.array(bits, whole).view(dtype)
    feeds = {"x": x, "z": np.zeros(1, dtype), "c": np.array([True, False] * 2), "i": np.arange(4)}
    found = executable.run_numpy(feeds)["y"].view(whole).reshape(-1)
    assert [int(v) for v in found[-4:]] == bits
    if name == "pad":
        assert found.view(dtype)[0] == 0.5
