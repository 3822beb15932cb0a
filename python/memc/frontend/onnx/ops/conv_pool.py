# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools: auto_pad, ceil_mode, output_shape and defaults become explicit attributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memc.ir.core import Attr, Value
from memc.ir.ops.reduce import mean, reduce
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ..context import Known, NodeContext, imports


@dataclass(frozen=True)
class Geometry:
    """A window with every default resolved."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    dilations: tuple[int, ...]
    extra: tuple[int, ...]
    """How much of `high` only rounds the number of windows up (ceil_mode)."""
    crop: tuple[tuple[int, int], ...]
    """Elements at either end of each axis that no window sees: negative padding."""

    def inside(self, ctx: NodeContext, x: Value) -> Value:
        """The part of the input [N, C, spatial...] that windows see."""
        if not self.cropped:
            return x
        starts = (0, 0, *(low for low, _ in self.crop))
        stops = (*x.type.shape[:2], *(extent - high for extent, (_, high) in zip(x.type.shape[2:], self.crop)))
        return ctx.b.op("slice", [x], starts=starts, stops=stops, steps=(1,) * x.type.rank)

    @property
    def cropped(self) -> bool:
        return any(low or high for low, high in self.crop)

    def attrs(self, *, kernel: bool) -> dict[str, Attr]:
        """The IR attributes of a window."""
        found: dict[str, Attr] = {
            "strides": self.strides,
            "pads": (*self.low, *self.high),
            "dilations": self.dilations,
        }
        return {"kernel": self.kernel, **found} if kernel else found


def _ints(ctx: NodeContext, name: str, rank: int, default: int) -> tuple[int, ...]:
    given = ctx.attr(name)
    if given is None or (len(given) == 0 and rank):
        return (default,) * rank
    if len(given) != rank:
        raise ctx.unsupported(f"expected {rank} integers as attribute {name}, got {list(given)}")
    return tuple(int(v) for v in given)


def same_pads(ctx: NodeContext, totals: Sequence[int], lower: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split total padding per axis in two; the odd element goes before if `lower`, else after."""
    low = tuple((t + 1) // 2 if lower else t // 2 for t in totals)
    return low, tuple(t - a for t, a in zip(totals, low))


def geometry(ctx: NodeContext, kernel: Sequence[int], spatial: Sequence[int]) -> Geometry:
    """The window of a Conv or pool node over an input of extents `spatial`."""
    rank = len(spatial)
    if len(kernel) != rank:
        raise ctx.unsupported(f"expected a kernel over {rank} spatial axes, got {list(kernel)}")
    strides, dilations = _ints(ctx, "strides", rank, 1), _ints(ctx, "dilations", rank, 1)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel)]
    auto = ctx.attr("auto_pad", "NOTSET")
    extra = [0] * rank
    crop = ((0, 0),) * rank
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max((-(-i // s) - 1) * s + r - i, 0) for i, s, r in zip(spatial, strides, reach)]
        low, high = same_pads(ctx, totals, auto == "SAME_LOWER")
    else:
        pads = (0,) * (2 * rank) if auto == "VALID" else _ints(ctx, "pads", 2 * rank, 0)
        crop = tuple((max(-low, 0), max(-high, 0)) for low, high in zip(pads[:rank], pads[rank:]))
        pads = tuple(max(pad, 0) for pad in pads)
        low, high = pads[:rank], pads[rank:]
        spatial = [extent - sum(gone) for extent, gone in zip(spatial, crop)]
        if any(extent <= 0 for extent, gone in zip(spatial, crop) if sum(gone)):
            raise ctx.unsupported(f"negative pads {list(ctx.attr('pads'))} that leave nothing of the input")
        if ctx.attr("ceil_mode", 0):
            for axis in range(rank):
                room = spatial[axis] + low[axis] + high[axis] - reach[axis]
                windows = -(-room // strides[axis]) + 1
                # A window that starts beyond the input and its padding before does not count.
                if (windows - 1) * strides[axis] >= spatial[axis] + low[axis]:
                    windows -= 1
                extra[axis] = max((windows - 1) * strides[axis] - room, 0)
            high = tuple(h + e for h, e in zip(high, extra))
    return Geometry(tuple(int(k) for k in kernel), strides, low, high, dilations, tuple(extra), crop)


def _spatial(ctx: NodeContext) -> tuple[int, ...]:
    x = ctx.type(0)
    if x.rank < 3:
        raise ctx.unsupported(f"expected an input [N, C, spatial...], got {x}")
    return x.shape[2:]


def _kernel(ctx: NodeContext) -> tuple[int, ...]:
    kernel = ctx.attr("kernel_shape")
    if kernel is None:
        raise ctx.unsupported("attribute kernel_shape is missing")
    return tuple(int(k) for k in kernel)


def _wanted(ctx: NodeContext, output: int) -> bool:
    return len(ctx.node.output) > output and bool(ctx.node.output[output])


def _filter_shape(ctx: NodeContext, index: int = 1) -> tuple[int, ...]:
    w, x = ctx.type(index), ctx.type(0)
    if w.rank != x.rank:
        raise ctx.unsupported(f"expected weights of rank {x.rank} like the input {x}, got {w}")
    given = ctx.attr("kernel_shape")
    if given is not None and len(given) and tuple(given) != w.shape[2:]:
        raise ctx.unsupported(f"kernel_shape {list(given)} contradicts the weights {w}")
    return w.shape[2:]


@imports("Conv")
def conv(ctx: NodeContext) -> Sequence[Known]:
    spatial = _spatial(ctx)
    shape = geometry(ctx, _filter_shape(ctx), spatial)
    operands = [shape.inside(ctx, ctx.value(0)), *(ctx.value(i) for i in (1, 2) if ctx.has(i))]
    y = ctx.b.op("conv", operands, group=int(ctx.attr("group", 1)), **shape.attrs(kernel=False))
    return [cast(ctx.b, y, ctx.type(0).dtype)]


@imports("ConvTranspose")
def conv_transpose(ctx: NodeContext) -> Sequence[Known]:
    spatial = _spatial(ctx)
    rank = len(spatial)
    kernel = _filter_shape(ctx)
    strides, dilations = _ints(ctx, "strides", rank, 1), _ints(ctx, "dilations", rank, 1)
    extra = list(_ints(ctx, "output_padding", rank, 0))
    natural = [s * (i - 1) + e + d * (k - 1) + 1 for s, i, e, d, k in zip(strides, spatial, extra, dilations, kernel)]
    auto, wanted = ctx.attr("auto_pad", "NOTSET"), ctx.attr("output_shape")
    if wanted:
        target = [int(v) for v in wanted][-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        target = [i * s for i, s in zip(spatial, strides)]
    else:
        target = []
    if target:
        totals = [n - t for n, t in zip(natural, target)]
        extra = [e + max(-t, 0) for e, t in zip(extra, totals)]
        low, high = same_pads(ctx, [max(t, 0) for t in totals], auto != "SAME_UPPER")
    else:
        pads = (0,) * (2 * rank) if auto == "VALID" else _ints(ctx, "pads", 2 * rank, 0)
        low, high = pads[:rank], pads[rank:]
    attrs: dict[str, Attr] = {
        "strides": strides,
        "pads": tuple(max(pad, 0) for pad in (*low, *high)),
        "dilations": dilations,
        "group": int(ctx.attr("group", 1)),
        "output_padding": tuple(extra),
    }
    operands = [ctx.value(i) for i in range(3) if ctx.has(i)]
    if all(pad >= 0 for pad in (*low, *high)):
        return [cast(ctx.b, ctx.b.op("conv_transpose", operands, **attrs), ctx.type(0).dtype)]
    # Negative padding adds to the result, where nothing but the bias arrives.
    y = ctx.b.op("conv_transpose", operands[:2], **attrs)
    around: dict[str, Attr] = {
        side: (0, 0, *(max(-pad, 0) for pad in pads)) for side, pads in (("low", low), ("high", high))
    }
    y = ctx.b.op("pad", [y], **around, value=0, mode="constant")
    if len(operands) == 3:
        bias = cast(ctx.b, operands[2], y.type.dtype)
        y = ctx.b.op("add", [y, ctx.b.op("reshape", [bias], shape=(bias.type.elements, *([1] * rank)))])
    return [cast(ctx.b, y, ctx.type(0).dtype)]


@imports("CausalConvWithState")
def causal_conv(ctx: NodeContext) -> Sequence[Known]:
    b, x, w = ctx.b, ctx.value(0), ctx.value(1)
    if x.type.rank != 3 or w.type.rank != 3:
        raise ctx.unsupported(f"expected input [N, C, L] and weight [C, 1, K], got {x.type} and {w.type}")
    n, channels, _ = x.type.shape
    past = w.type.shape[2] - 1
    if ctx.has(3):
        state = ctx.value(3)
    else:
        state = b.op("broadcast", [b.scalar(0, x.type.dtype)], shape=(n, channels, past))
    joined = b.op("concat", [state, x], axis=2) if past else x
    operands = [joined, w] + ([ctx.value(2)] if ctx.has(2) else [])
    y = b.op("conv", operands, group=channels, strides=(1,), pads=(0, 0), dilations=(1,))
    activation = ctx.attr("activation", "none")
    if activation in ("silu", "swish"):
        y = b.op("silu", [widen(b, cast(b, y, x.type.dtype))])
    elif activation != "none":
        raise ctx.unsupported(f"activation {activation}")
    length = joined.type.shape[2]
    kept = b.op("slice", [joined], starts=(0, 0, length - past), stops=joined.type.shape, steps=(1, 1, 1))
    return [cast(b, y, x.type.dtype), kept]


@imports("MaxPool")
def max_pool(ctx: NodeContext) -> Sequence[Known]:
    b, shape = ctx.b, geometry(ctx, _kernel(ctx), _spatial(ctx))
    x, attrs = shape.inside(ctx, ctx.value(0)), shape.attrs(kernel=True)
    y = b.op("max_pool", [x], **attrs)
    if not _wanted(ctx, 1):
        return [y]
    indices = b.op("max_pool_indices", [x], **attrs)
    if shape.cropped:
        indices = _moved(ctx, indices, x.type.shape[2:], [low for low, _ in shape.crop])
    return [y, _column_major(ctx, indices) if ctx.attr("storage_order", 0) else indices]


def _moved(ctx: NodeContext, indices: Value, inside: Sequence[int], low: Sequence[int]) -> Value:
    """Row-major positions in a part [N, C, inside...] of the input that begins at `low` as positions in the input."""
    b, spatial = ctx.b, _spatial(ctx)
    total, factor = None, 1
    for extent, part, start in zip(reversed(spatial), reversed(inside), reversed(low)):
        count = b.scalar(part, DType.I64)
        coordinate = b.op("add", [b.op("mod", [indices, count]), b.scalar(start, DType.I64)])
        indices = b.op("div", [indices, count])
        term = b.op("mul", [coordinate, b.scalar(factor, DType.I64)])
        total = term if total is None else b.op("add", [total, term])
        factor *= extent
    rows = b.op("mul", [indices, b.scalar(factor, DType.I64)])
    return rows if total is None else b.op("add", [rows, total])


def _column_major(ctx: NodeContext, indices: Value) -> Value:
    """Row-major positions in the input as positions with the spatial axes in column-major order."""
    b, spatial = ctx.b, _spatial(ctx)
    size = math.prod(spatial)
    rest = b.op("mod", [indices, b.scalar(size, DType.I64)])
    total = b.op("sub", [indices, rest])
    factor = size
    for extent in reversed(spatial):
        # The last axis is the slowest one: its factor is the product of all extents before it.
        factor //= extent
        count = b.scalar(extent, DType.I64)
        coordinate = b.op("mod", [rest, count])
        rest = b.op("div", [rest, count])
        total = b.op("add", [total, b.op("mul", [coordinate, b.scalar(factor, DType.I64)])])
    return total


@imports("AveragePool")
def average_pool(ctx: NodeContext) -> Sequence[Known]:
    shape = geometry(ctx, _kernel(ctx), _spatial(ctx))
    return [
        ctx.b.op(
            "avg_pool",
            [shape.inside(ctx, ctx.value(0))],
            **shape.attrs(kernel=True),
            extra=shape.extra,
            count_include_pad=bool(ctx.attr("count_include_pad", 0)),
        )
    ]


def _root(ctx: NodeContext, total: Value, p: float) -> Value:
    if p == 1:
        return total
    if p == 2:
        return ctx.b.op("sqrt", [total])
    return ctx.b.op("pow", [total, ctx.b.scalar(1.0 / p, total.type.dtype)])


def _power(ctx: NodeContext, x: Value, p: float) -> Value:
    if p == 2:
        return ctx.b.op("mul", [x, x])
    absolute = ctx.b.op("abs", [x])
    return absolute if p == 1 else ctx.b.op("pow", [absolute, ctx.b.scalar(p, x.type.dtype)])


@imports("LpPool")
def lp_pool(ctx: NodeContext) -> Sequence[Known]:
    b, p, shape = ctx.b, float(ctx.attr("p", 2)), geometry(ctx, _kernel(ctx), _spatial(ctx))
    x = shape.inside(ctx, ctx.value(0))
    total = b.op("sum_pool", [_power(ctx, widen(b, x), p)], **shape.attrs(kernel=True))
    return [cast(b, _root(ctx, total, p), x.type.dtype)]


@imports("GlobalLpPool")
def global_lp_pool(ctx: NodeContext) -> Sequence[Known]:
    b, x, p = ctx.b, ctx.value(0), float(ctx.attr("p", 2))
    total = reduce(b, "sum", _power(ctx, widen(b, x), p), range(2, x.type.rank), True)
    return [cast(b, _root(ctx, total, p), x.type.dtype)]


@imports("GlobalAveragePool")
def global_average_pool(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    return [mean(ctx.b, x, range(2, x.type.rank), True)]


@imports("GlobalMaxPool")
def global_max_pool(ctx: NodeContext) -> Sequence[Known]:
    x = ctx.value(0)
    return [reduce(ctx.b, "max", x, range(2, x.type.rank), True)]


@imports("MaxUnpool")
def max_unpool(ctx: NodeContext) -> Sequence[Known]:
    b, x, indices = ctx.b, ctx.value(0), ctx.value(1)
    spatial, kernel = _spatial(ctx), _kernel(ctx)
    strides, pads = _ints(ctx, "strides", len(spatial), 1), _ints(ctx, "pads", 2 * len(spatial), 0)
    natural = tuple(
        (i - 1) * s - pads[a] - pads[a + len(spatial)] + k for a, (i, s, k) in enumerate(zip(spatial, strides, kernel))
    )
    shape = (*x.type.shape[:2], *natural)
    zeros = b.op("broadcast", [b.scalar(0, x.type.dtype)], shape=(math.prod(shape),))
    flat = [b.op("reshape", [v], shape=(v.type.elements,)) for v in (indices, x)]
    y = b.op("reshape", [b.op("scatter_elements", [zeros, *flat], axis=0, reduction="none")], shape=shape)
    wanted = ctx.ints(2) if ctx.has(2) else shape
    if wanted == shape:
        return [y]
    # The standard's reference places the unpooled tensor in the corner of a larger result.
    high = tuple(w - s for w, s in zip(wanted, shape))
    if len(wanted) != len(shape) or any(h < 0 for h in high):
        raise ctx.unsupported(f"output_shape {list(wanted)} is smaller than the unpooled {list(shape)}")
    return [b.op("pad", [y], low=(0,) * len(shape), high=high, value=0, mode="constant")]


@imports("LRN")
def lrn(ctx: NodeContext) -> Sequence[Known]:
    alpha, beta, bias = (float(ctx.attr(n, v)) for n, v in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return [ctx.b.op("lrn", [ctx.value(0)], size=int(ctx.attr("size", 1)), alpha=alpha, beta=beta, bias=bias)]
