# SPDX-License-Identifier: Apache-2.0
"""A function's recomputation problem: sizes are the bytes that the arena has for each value."""

from __future__ import annotations

import pytest

from memc.ir.text.parser import parse
from memc.passes.recompute.problem import RecomputeGraph

TEXT = """
func @main(%x: f32[20] {role = input}, %w: f32[20] {role = weight}) -> f32[20] {
  %a = exp(%x) : f32[20]
  %b = "make"(%a) : f32[3]
  %v = reshape(%a) {shape = [4, 5]} : f32[4,5]
  %c = "use"(%v, %b, %w) : f32[65]
  %y = "end"(%c, %a) : f32[20]
  return %y
}
"""


@pytest.mark.parametrize("alignment, sizes", [(64, (128, 64, 320)), (256, (256, 256, 512)), (512, (512, 512, 512))])
def test_sizes_are_rounded_to_the_alignment(alignment: int, sizes: tuple[int, int, int]) -> None:
    graph = RecomputeGraph.of(parse(TEXT).main, lambda op: 7, alignment)
    found = {value.name: size for value, size in zip(graph.values, graph.problem.sizes, strict=True) if size}
    # What is returned, given or a view takes none of the arena.
    assert found == dict(zip("abc", sizes))
    assert list(graph.problem.costs) == [7] * 4
    assert [[op.name for op in unit] for unit in graph.units] == [["exp"], ["make"], ["use"], ["end"]]
