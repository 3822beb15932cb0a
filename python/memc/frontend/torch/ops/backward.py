# SPDX-License-Identifier: Apache-2.0
"""Backward overloads of ATen, by the gradients of the ops that their forward overloads become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.ops.shared.derivatives import zeros
from memc.ir.ops.shared.op_def import lookup

from ..context import NodeContext, converter_of, converts


def pulled_back(ctx: NodeContext, mark: int, y: Value, g: Value, wrt: Sequence[Value]) -> list[Value | None]:
    """The gradients in `wrt` of what was built since `mark` and gives `y`, where `g` is the gradient in `y`.

    Raises UnsupportedError for an op without a gradient.
    """
    b = ctx.b
    found: dict[Value, Value] = {y: cast(b, g, y.type.dtype)}
    for op in reversed(b.ops[mark : len(b.ops)]):
        grads = [found.get(r) for r in op.results]
        if not any(grads):
            continue
        definition = lookup(op.name)
        rule = None if definition is None else definition.gradient
        if rule is None:
            raise ctx.unsupported(f"the op {op.name} has no gradient")
        for operand, grad in zip(op.operands, rule(b, op, grads)):
            if grad is not None:
                found[operand] = b.op("add", [found[operand], grad]) if operand in found else grad
    return [found.get(value) for value in wrt]


def _as_forward(ctx: NodeContext, target: str, x: Value, **changed: Any) -> Value:
    """What the forward overload gives for `x` as its input `self`, and this node's other arguments."""
    converter = converter_of(target)
    assert converter is not None
    args = {**ctx.node.args, "self": x, **changed}
    inner = replace(ctx, node=replace(ctx.node, target=target, args=args))
    made = converter(inner)
    result = made[0] if isinstance(made, (list, tuple)) else made
    return ctx.read(result)


def _of_input(ctx: NodeContext, target: str, x: Value, **changed: Any) -> Value:
    mark = len(ctx.b.ops)
    y = _as_forward(ctx, target, x, **changed)
    (found,) = pulled_back(ctx, mark, y, ctx.value("grad_output"), [x])
    return zeros(ctx.b, x.type) if found is None else found


@converts("aten.convolution_backward.default")
def convolution_backward(ctx: NodeContext) -> Sequence[Value | None]:
    b, x, w, g = ctx.b, ctx.value("input"), ctx.value("weight"), ctx.value("grad_output")
    wanted = [bool(ctx.resolved(flag)) for flag in ctx.get("output_mask")]
    converter = converter_of("aten.convolution.default")
    assert converter is not None
    mark = len(b.ops)
    args = {**ctx.node.args, "bias": None}
    y = ctx.read(converter(replace(ctx, node=replace(ctx.node, target="aten.convolution.default", args=args))))
    of_x, of_w = pulled_back(ctx, mark, y, g, [x, w])
    of_bias = None
    if wanted[2]:
        axes = tuple(n for n in range(g.type.rank) if n != 1)
        of_bias = cast(b, b.op("reduce_sum", [g], axes=axes, keepdims=False), w.type.dtype)
    return [found if flag else None for flag, found in zip(wanted, (of_x, of_w, of_bias))]


@converts("aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default")
def max_pool_backward(ctx: NodeContext) -> Value:
    """The positions are found anew: they are the first of a window's largest elements."""
    ctx.get("indices")
    rank = "3" if "3d" in ctx.node.target else "2"
    return _of_input(ctx, f"aten.max_pool{rank}d.default", ctx.value("self"))


@converts("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(ctx: NodeContext) -> Value:
    rank = "3" if "3d" in ctx.node.target else "2"
    return _of_input(ctx, f"aten.avg_pool{rank}d.default", ctx.value("self"))


@converts("aten._adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(ctx: NodeContext) -> Value:
    sizes = list(ctx.value("grad_output").type.shape[-2:])
    return _of_input(ctx, "aten._adaptive_avg_pool2d.default", ctx.value("self"), output_size=sizes)


@converts(
    "aten.upsample_bilinear2d_backward.default",
    "aten.upsample_nearest2d_backward.default",
    "aten.upsample_bicubic2d_backward.default",
)
def upsample_backward(ctx: NodeContext) -> Value:
    g = ctx.value("grad_output")
    shape = tuple(ctx.ints("input_size"))
    x = ctx.b.op("broadcast", [ctx.b.scalar(0, g.type.dtype)], shape=shape)  # Any input has the same gradient.
    return _of_input(ctx, ctx.node.target.replace("_backward", ""), x)


@converts("aten.grid_sampler_2d_backward.default")
def grid_sampler_backward(ctx: NodeContext) -> Sequence[Value | None]:
    converter = converter_of("aten.grid_sampler_2d.default")
    assert converter is not None
    x, grid = ctx.value("input"), ctx.value("grid")
    wanted = [bool(ctx.resolved(flag)) for flag in ctx.get("output_mask")]
    mark = len(ctx.b.ops)
    y = ctx.read(converter(replace(ctx, node=replace(ctx.node, target="aten.grid_sampler_2d.default"))))
    found = pulled_back(ctx, mark, y, ctx.value("grad_output"), [x, grid])
    return [value if flag else None for flag, value in zip(wanted, found)]
