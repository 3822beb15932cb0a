# SPDX-License-Identifier: Apache-2.0
"""The layers that published policies see in a function's ops."""

from __future__ import annotations

from memc.ir.text.parser import parse
from memc.passes.offload.layers import layered
from memc.passes.recompute.problem import RecomputeGraph
from memc.solvers.offload import Lane, Lanes, OffloadProblem
from memc.solvers.offload_policies.layers import Kind, LayeredProblem

STEP = """
func @main(%x: f32[8,8] {role = input}, %w: f32[8,8] {role = weight}) -> f32[8,8] {
  %a = exp(%x) : f32[8,8] loc("one")
  %b = matmul(%a, %w) : f32[8,8] loc("one")
  %c = softmax(%b) {axis = 1} : f32[8,8] loc("two")
  %d = tanh(%c) : f32[8,8]
  %e = tanh(%d) : f32[8,8]
  %f = fused(%e) region(%0: f32[8,8]) {
    %1 = neg(%0) : f32[8,8]
    %2 = softmax(%1) {axis = 1} : f32[8,8]
    yield %2
  } : f32[8,8] loc("two")
  %g = mul(%f, %e) : f32[8,8] loc("two")
  %h = mul(%g, %c) : f32[8,8] loc("two")
  %i = mul(%h, %a) : f32[8,8] loc("one")
  %y = exp(%i) : f32[8,8] loc("one")
  return %y
}
"""


def layers_of(text: str) -> LayeredProblem:
    graph = RecomputeGraph.of(parse(text).main, lambda op: 1)
    lane = Lane(0, 1)
    return layered(graph, OffloadProblem(graph.problem, [True] * len(graph.values), Lanes(lane, lane)))


def test_ops_one_after_another_of_one_place_are_a_layer_of_one_pass() -> None:
    found = layers_of(STEP)
    assert [(layer.kind, tuple(layer.ops)) for layer in found.layers] == [
        (Kind.DENSE, (0, 1)),
        (Kind.SOFTMAX, (2,)),
        (Kind.OTHER, (3,)),  # From nowhere, each alone.
        (Kind.OTHER, (4,)),
        (Kind.SOFTMAX, (5,)),  # What the region holds; the next op, of the same place, begins the backward pass.
        (Kind.OTHER, (6, 7)),
        (Kind.OTHER, (8, 9)),
    ]
    assert found.forward == 5


def test_without_a_backward_pass_all_layers_are_the_forward_pass() -> None:
    found = layers_of(STEP[: STEP.index("  %g")] + "  return %f\n}\n")
    assert [tuple(layer.ops) for layer in found.layers] == [(0, 1), (2,), (3,), (4,), (5,)]
    assert found.forward == 5
