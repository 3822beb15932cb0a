# SPDX-License-Identifier: Apache-2.0
"""TreeEnsemble of domain ai.onnx.ml, as comparisons of all nodes and two products: no branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Array, Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

_COMPARISONS = ("less_equal", "less", "greater_equal", "greater", "equal", "not_equal")
"""IR ops by ONNX mode number; mode 6 is set membership."""
_MEMBER = 6
_MAX_LEAVES = 1 << 14


@dataclass
class Leaves:
    """Leaves in the order found: the node decisions on the way to each, and where its weight is."""

    paths: list[list[tuple[int, bool]]] = field(default_factory=list)
    leaf: list[int] = field(default_factory=list)


def collect(ctx: NodeContext, roots: Sequence[int], count: int) -> Leaves:
    """All leaves of the trees. Raises UnsupportedError for too many, or for links that form no tree."""
    branches = [
        (ctx.attr("nodes_truenodeids"), ctx.attr("nodes_trueleafs"), True),
        (ctx.attr("nodes_falsenodeids"), ctx.attr("nodes_falseleafs"), False),
    ]
    found = Leaves()
    for root in roots:
        same = branches[0][0][root] == branches[1][0][root]
        if branches[0][1][root] and branches[1][1][root] and same:  # a tree of one leaf
            found.paths.append([])
            found.leaf.append(branches[0][0][root])
            continue
        pending: list[tuple[int, list[tuple[int, bool]]]] = [(root, [])]
        while pending:
            node, path = pending.pop()
            if not 0 <= node < count or len(path) > count or len(found.leaf) > _MAX_LEAVES:
                raise ctx.unsupported(f"expected trees over {count} nodes with at most {_MAX_LEAVES} leaves")
            for targets, leafs, taken in branches:
                step = [*path, (node, taken)]
                if leafs[node]:
                    found.paths.append(step)
                    found.leaf.append(targets[node])
                else:
                    pending.append((targets[node], step))
    return found


def members(values: Array, modes: Sequence[int]) -> dict[int, Array]:
    """The set of each membership node: runs of `values` that end in nan, one a node."""
    runs = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    return {node: run[~np.isnan(run)] for node, run in zip((i for i, m in enumerate(modes) if m == _MEMBER), runs)}


def _decisions(ctx: NodeContext, x: Value, modes: Sequence[int]) -> Value:
    """Whether each row of x [n, features] takes the true branch of each node: bool [n, nodes]."""
    b, count = ctx.b, len(modes)
    features = b.constant(np.asarray(ctx.attr("nodes_featureids"), np.int64))
    columns = b.op("gather", [x, features], axis=1)
    numpy = x.type.dtype.numpy
    splits = b.constant(np.asarray(ctx.attr("nodes_splits"), numpy).reshape(1, count))
    kinds = np.asarray(modes)
    result = b.op("broadcast", [b.scalar(False, DType.BOOL)], shape=columns.type.shape)
    for mode, name in enumerate(_COMPARISONS):
        if (kinds == mode).any():
            holds = b.op(name, [columns, splits])
            result = b.op("select", [b.constant((kinds == mode).reshape(1, count)), holds, result])
    sets = members(np.asarray(ctx.attr("membership_values", np.zeros(0)), numpy), modes)
    if sets:
        widest = max(len(s) for s in sets.values())
        table = np.full((1, count, widest), np.nan, numpy)  # nan equals nothing
        for node, values in sets.items():
            table[0, node, : len(values)] = values
        apart = b.op("reshape", [columns], shape=(*columns.type.shape, 1))
        hit = b.op("reduce_max", [b.op("equal", [apart, b.constant(table)])], axes=(2,), keepdims=False)
        result = b.op("select", [b.constant((kinds == _MEMBER).reshape(1, count)), hit, result])
    missing = ctx.attr("nodes_missing_value_tracks_true")
    if missing and any(missing):
        follows = b.constant(np.asarray(missing, np.bool_).reshape(1, count))
        nan = b.op("logical_and", [b.op("is_nan", [columns]), follows])
        result = b.op("logical_or", [result, nan])
    return result


@imports("TreeEnsemble", "ai.onnx.ml")
def tree_ensemble(ctx: NodeContext) -> Sequence[Known]:
    """A leaf is reached where all decisions on its path hold: as many as the path is long."""
    b, x = ctx.b, ctx.value(0)
    modes = [int(m) for m in np.asarray(ctx.attr("nodes_modes")).reshape(-1)]
    aggregate, transform = int(ctx.attr("aggregate_function", 1)), int(ctx.attr("post_transform", 0))
    if aggregate not in (0, 1) or transform != 0 or x.type.rank != 2 or not x.type.dtype.is_float:
        raise ctx.unsupported(f"aggregate_function {aggregate}, post_transform {transform} of {x.type}")
    roots = ctx.attr("tree_roots")
    leaves = collect(ctx, roots, len(modes))
    signs = np.zeros((len(modes), len(leaves.leaf)), np.float32)
    wanted = np.zeros((1, len(leaves.leaf)), np.float32)
    for column, path in enumerate(leaves.paths):
        for node, taken in path:
            signs[node, column] = 1 if taken else -1
            wanted[0, column] += taken
    decisions = cast(b, _decisions(ctx, x, modes), DType.F32)
    score = b.op("matmul", [decisions, b.constant(signs)], transpose_a=False, transpose_b=False)
    reached = cast(b, b.op("equal", [score, b.constant(wanted)]), x.type.dtype)
    weights = np.zeros((len(leaves.leaf), int(ctx.attr("n_targets", 1))), x.type.dtype.numpy)
    targets, values = ctx.attr("leaf_targetids"), np.asarray(ctx.attr("leaf_weights"))
    for row, leaf in enumerate(leaves.leaf):
        weights[row, targets[leaf]] = values[leaf]
    if aggregate == 0:
        weights = weights / len(roots)
    return [b.op("matmul", [reached, b.constant(weights)], transpose_a=False, transpose_b=False)]
