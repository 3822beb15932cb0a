# SPDX-License-Identifier: Apache-2.0
"""A function's ops as layers: those one after another that come from one place of the model, which the backward pass names too."""

from __future__ import annotations

from collections.abc import Iterable

from memc.ir.core import Op
from memc.ir.ops.shared.layout import base_name
from memc.ir.ops.shared.op_def import inner_ops
from memc.passes.recompute.problem import RecomputeGraph
from memc.solvers.offload import OffloadProblem
from memc.solvers.offload_policies.layers import Kind, Layer, LayeredProblem, pass_boundary

KINDS = {
    "conv": Kind.CONV,
    "conv_grad_weight": Kind.CONV,
    "conv_transpose": Kind.CONV,
    "deform_conv": Kind.CONV,
    "matmul": Kind.DENSE,
    "max_pool": Kind.POOL,
    "max_pool_taps": Kind.POOL,
    "max_pool_grad": Kind.POOL,
    "max_pool_indices": Kind.POOL,
    "avg_pool": Kind.POOL,
    "sum_pool": Kind.POOL,
    "softmax": Kind.SOFTMAX,
    "log_softmax": Kind.SOFTMAX,
    "softmax_cross_entropy": Kind.SOFTMAX,
    "dropout": Kind.DROPOUT,
}
"""Of ops; all others are `Kind.OTHER`."""

FIRST = tuple(Kind)
"""The kind of a layer is the first of these that one of its ops has."""


def layered(graph: RecomputeGraph, problem: OffloadProblem) -> LayeredProblem:
    """A function's problem in layers. An op that comes from nowhere is a layer of its own."""
    boundary = pass_boundary(problem)
    layers: list[Layer] = []
    ops: list[int] = []
    for index, unit in enumerate(graph.units):
        ops.append(index)
        goes_on = index + 1 < len(graph.units) and index + 1 != boundary and unit[0].location is not None
        if goes_on and graph.units[index + 1][0].location == unit[0].location:
            continue
        layers.append(Layer(_kind(op for i in ops for op in graph.units[i]), tuple(ops)))
        ops = []
    forward = sum(layer.ops[0] < boundary for layer in layers)
    return LayeredProblem(problem, layers, forward)


def _kind(ops: Iterable[Op]) -> Kind:
    names = {base_name(inner) for op in ops for inner in inner_ops(op)}
    found = {KINDS.get(name, Kind.OTHER) for name in names}
    return next(kind for kind in FIRST if kind in found)
