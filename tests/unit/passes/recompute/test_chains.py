# SPDX-License-Identifier: Apache-2.0
"""Which overwrites are recomputed together with what they overwrite."""

from __future__ import annotations

import pytest

from memc.ir.text.parser import parse
from memc.passes.recompute.chains import overwrite_chains

HEAD = """func @main(%x: f32[32] {role = input}) -> f32[32] {
  %a = "f.make"(%x) : f32[32]
"""
TAIL = """  %y = "f.use"(%b) : f32[32]
  return %y
}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('%b = "f.over"(%a) : f32[32] alias %a[0]', ["f.make", "f.over"]),
        (
            '%c = "f.over"(%a) : f32[32] alias %a[0]\n  %b = "f.again"(%c, %x) : f32[32] alias %a[0]',
            ["f.make", "f.over", "f.again"],
        ),
        # Somebody else reads what is overwritten.
        ('%r = "f.read"(%a) : f32[1]\n  %b = "f.over"(%a) : f32[32] alias %a[0]', None),
        ('"f.look"(%a) : ()\n  %b = "f.over"(%a) : f32[32] alias %a[0]', None),
        # What else is read is not there before the first op.
        ('%r = "f.late"(%x) : f32[32]\n  %b = "f.over"(%a, %r) : f32[32] alias %a[0]', None),
        ('%b = "f.over"(%a) {once = true} : f32[32] alias %a[0]', None),
        ('%b = "f.copy"(%a) : f32[32]', None),
    ],
)
def test_chains(body: str, expected: list[str] | None) -> None:
    function = parse(HEAD + f"  {body}\n" + TAIL).main
    found = [[op.name for op in chain] for chain in overwrite_chains(function)]
    assert found == ([] if expected is None else [expected])
