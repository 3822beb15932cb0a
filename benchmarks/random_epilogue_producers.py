# SPDX-License-Identifier: Apache-2.0
"""The ops that a random epilogue follows, which `random_epilogues` draws from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from random_epilogue_steps import SAFE, batch_norm, upsample
from random_epilogues import FLOATS, WIDE, Net


def image(net: Net, types: tuple[str, ...] = FLOATS, axes: int = 2) -> int:
    """An input of channels and pixels, maybe with an op before the producer; gives its channels."""
    channels = net.pick((1, 2, 3, 4, 6, 8))
    net.input((net.batch, channels, *[net.pick((1, 3, 4, 5, 7, 8)) for _ in range(axes)]), net.pick(types))
    if net.type in FLOATS and net.chance(4):
        net.op(net.pick(SAFE[:3]), [net.last])
    return channels


def any_tensor(net: Net, types: tuple[str, ...] = (*FLOATS, "i32", "i64", "u8", "i8")) -> None:
    net.input((net.batch, *[net.pick((1, 2, 3, 4, 5, 8)) for _ in range(net.number(1, 3))]), net.pick(types))


def conv(net: Net) -> None:
    axes = net.pick((1, 2, 2, 2, 3))
    channels = image(net, axes=axes)
    groups = net.pick([n for n in (1, 1, 2, channels) if channels % n == 0])
    pads = [net.number(0, 1) for _ in range(2 * axes)]
    strides, dilations = [net.pick((1, 1, 2)) for _ in range(axes)], [net.pick((1, 1, 2)) for _ in range(axes)]
    size = [net.pick((1, 2, 3)) for _ in range(axes)]
    for n, extent in enumerate(net.shape[2:]):
        if extent + pads[n] + pads[n + axes] <= dilations[n] * (size[n] - 1):
            size[n] = 1
    made = groups * net.pick((1, 2, 3))
    given = [net.last, net.const((made, channels // groups, *size))]
    if net.chance(2):
        given.append(net.const((made,)))
    net.op("Conv", given, pads=pads, group=groups, strides=strides, dilations=dilations, kernel_shape=size)


def conv_transpose(net: Net) -> None:
    axes = net.pick((1, 2, 2))
    channels = image(net, axes=axes)
    groups = net.pick([n for n in (1, 1, 2, channels) if channels % n == 0])
    size = [net.pick((1, 2, 3)) for _ in range(axes)]
    strides = [net.pick((1, 2)) for _ in size]
    made = net.pick((1, 2, 3))
    given = [net.last, net.const((channels, made, *size))]
    if net.chance(2):
        given.append(net.const((made * groups,)))
    more = {"output_padding": [s - 1 for s in strides]} if net.chance(3) else {}
    dilations = [net.pick((1, 2)) for _ in size]
    net.op("ConvTranspose", given, group=groups, strides=strides, dilations=dilations, kernel_shape=size, **more)


def conv_integer(net: Net) -> None:
    channels = image(net, ("u8",))
    made, size, type = net.pick((1, 3, 4)), net.pick((1, 3)), net.pick(("u8", "i8"))
    given = [net.last, net.const((made, channels, size, size), type), net.const((), "u8")]
    net.op("ConvInteger", given, pads=[size // 2] * 4)
    net.become("i32")


def quantized_conv(net: Net) -> None:
    channels = image(net, ("u8", "i8"))
    made, size = net.pick((1, 3, 4, 8)), net.pick((1, 3))
    each: tuple[int, ...] = (made,) if net.chance(2) else ()
    scale = np.float32(2.0 ** -net.number(3, 6))
    weights = net.const((made, channels, size, size), "i8")
    scales = net.const((2.0 ** -net.rng.integers(3, 7, each)).astype(np.float32))
    given = [net.last, net.const(scale), net.const((), net.type), weights, scales, net.const(np.zeros(each, np.int8))]
    given += [net.const(np.float32(2.0 ** -net.number(1, 5))), net.const((), net.type)]
    if not net.chance(3):
        given.append(net.const(net.rng.integers(-90, 90, made).astype(np.int32)))
    net.op("QLinearConv", given, pads=[size // 2] * 4)


def quantized_product(net: Net) -> None:
    rows, inner, columns = net.pick((1, 3, 8)), net.pick((1, 4, 7)), net.pick((1, 5, 8))
    net.input((net.batch, rows, inner), net.pick(("u8", "i8")))
    if net.chance(2):
        net.op("MatMulInteger", [net.last, net.const((inner, columns), "i8"), net.const((), net.type)])
        net.become("i32")
        return
    scales = [net.const(np.float32(2.0**-n)) for n in (3, 4, net.number(1, 4))]
    zero = net.const((), net.type)
    weights = [net.const((inner, columns), "i8"), scales[1], net.const(np.int8(0))]
    net.op("QLinearMatMul", [net.last, scales[0], zero, *weights, scales[2], zero])


def product(net: Net) -> None:
    inner, columns = net.pick((1, 3, 8)), net.pick((1, 2, 5, 16))
    net.input(
        (*[(net.batch,), (net.batch, 3), (2, net.batch, 4)][net.number(0, 2)], inner), net.pick((*WIDE, "f16", "bf16"))
    )
    net.op("MatMul", [net.last, net.const((inner, columns))])


def gemm(net: Net) -> None:
    net.input((net.batch, 6), net.pick(FLOATS))
    net.op("Gemm", [net.last, net.const((5, 6)), net.const((5,))], transB=1, alpha=0.5)


def einsum(net: Net) -> None:
    net.input((net.batch, 3, 4), net.pick(FLOATS))
    net.op(
        "Einsum", [net.last, net.const((4, 3, 2))], equation=net.pick(("bij,jik->bk", "bij,jlk->bilk", "bij,jik->kb"))
    )


def attention(net: Net) -> None:
    heads, length, size = net.pick((1, 2)), net.pick((3, 5, 8)), net.pick((4, 8))
    query = net.input((net.batch, heads, length, size), net.pick(("f32", "f16", "bf16")))
    scores = net.op("MatMul", [query, net.const((net.batch, heads, size, length))])
    net.op("Softmax", [net.op("Mul", [scores, net.const((), net.type)])], axis=-1, exact=False)
    net.op("MatMul", [net.last, net.const((net.batch, heads, length, size))])


def pool(net: Net) -> None:
    image(net)
    kind = net.pick(("MaxPool", "AveragePool", "LpPool"))
    if min(net.shape[2:]) < 2:
        return
    pads, strides = [net.number(0, 1) for _ in range(4)], [net.pick((1, 2)), net.pick((1, 2))]
    net.op(
        kind,
        [net.last],
        exact=kind == "MaxPool",
        kernel_shape=[2, 2],
        pads=pads,
        strides=strides,
        ceil_mode=net.number(0, 1),
    )


def global_pool(net: Net) -> None:
    image(net)
    net.op(net.pick(("GlobalAveragePool", "GlobalMaxPool")), [net.last], exact=False)


def normalization(net: Net) -> None:
    channels = image(net)
    scale, bias = net.const((channels,)), net.const((channels,))
    kind = net.pick(("BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN", "GroupNormalization"))
    if kind == "BatchNormalization":
        batch_norm(net)
    elif kind == "LRN":
        net.op(kind, [net.last], exact=False, size=3, alpha=0.1)
    elif kind == "LayerNormalization":
        width = net.shape[-1:]
        net.op(kind, [net.last, net.const(width), net.const(width)], exact=False, axis=-1)
    elif kind == "GroupNormalization":
        net.op(kind, [net.last, scale, bias], exact=False, num_groups=1, epsilon=0.01)
    else:
        net.op(kind, [net.last, scale, bias], exact=False, epsilon=0.01)


def softmax(net: Net) -> None:
    any_tensor(net, FLOATS)
    net.op(net.pick(("Softmax", "LogSoftmax")), [net.last], exact=False, axis=net.pick((-1, 1)))


def recurrent(net: Net) -> None:
    hidden, size, steps = net.pick((2, 4, 8)), net.pick((1, 3)), net.pick((1, 3))
    net.input((steps, net.batch, size), net.pick(("f32", "f16")))
    kind, gates = net.pick((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    both = net.number(1, 2)
    given = [net.last, net.const((both, gates * hidden, size)), net.const((both, gates * hidden, hidden))]
    if net.chance(2):
        given.append(net.const((both, 2 * gates * hidden)))
    net.op(kind, given, exact=False, hidden_size=hidden, direction="bidirectional" if both == 2 else "forward")


def reduction(net: Net) -> None:
    any_tensor(net, (*FLOATS, "i32", "i64"))
    kinds = ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1"]
    if net.type in FLOATS:
        kinds += ["ReduceMean", "ReduceL2", "ReduceLogSumExp"]
    kind = net.pick(kinds)
    axes = sorted({net.number(0, len(net.shape) - 1) for _ in range(net.number(1, 2))})
    net.op(kind, [net.last, net.ints(*axes)], exact=kind not in kinds[5:], keepdims=net.number(0, 1))


def resize(net: Net) -> None:
    image(net, ("f32", "f16", "f64"))
    if net.chance(2):
        upsample(net)
        return
    scales = net.const(np.array([1, 1, 1.7, 0.6], np.float32))
    net.op("Resize", [net.last, "", scales], exact=False, mode="linear")


def sample(net: Net) -> None:
    image(net, ("f32", "f64"))
    grid = net.const((net.batch, 3, 4, 2))
    mode = net.pick(("linear", "cubic"))
    net.op(
        "GridSample", [net.last, grid], exact=False, mode=mode, padding_mode=net.pick(("zeros", "border", "reflection"))
    )


def indexing(net: Net) -> None:
    any_tensor(net)
    axis = net.number(0, len(net.shape) - 1)
    kind = net.pick(("Gather", "GatherElements", "ScatterElements", "ScatterND"))
    if kind == "ScatterND":
        rows = net.const(net.rng.permutation(net.shape[0])[:2, None].astype(np.int64))
        count = min(2, net.shape[0])
        net.op(kind, [net.last, rows, net.const((count, *net.shape[1:]))])
        return
    shape = net.pick(((3,), (2, 2), ())) if kind == "Gather" else net.shape
    extent = net.shape[axis]
    rows = net.const(net.rng.integers(-extent, extent, shape).astype(np.int64))
    if kind == "ScatterElements":
        order = np.argsort(net.rng.random(net.shape), axis=axis).astype(np.int64)
        net.op(kind, [net.last, net.const(order), net.const(net.shape)], axis=axis)
    else:
        net.op(kind, [net.last, rows], axis=axis)


def movement(net: Net) -> None:
    any_tensor(net)
    rank = len(net.shape)
    kind = net.pick(
        ("Pad", "Slice", "Concat", "Tile", "Transpose", "CumSum", "TopK", "ArgMax", "ReverseSequence", "Expand")
    )
    if kind == "Pad":
        pads = net.ints(*[net.number(0, 1) for _ in range(2 * rank)])
        net.op(kind, [net.last, pads], mode=net.pick(("constant", "edge", "wrap")))
    elif kind == "Slice":
        net.op(kind, [net.last, net.ints(-1), net.ints(-99), net.ints(rank - 1), net.ints(-net.number(1, 2))])
    elif kind == "Concat":
        net.op(kind, [net.last, net.const((1, *net.shape[1:])), net.last], axis=0)
    elif kind == "Tile":
        net.op(kind, [net.last, net.ints(*[net.number(1, 2) for _ in range(rank)])])
    elif kind == "Transpose":
        net.op(kind, [net.last], perm=[int(n) for n in net.rng.permutation(rank)])
    elif kind == "CumSum" and net.type in (*WIDE, "f16", "bf16"):
        net.op(kind, [net.last, net.ints(-1)], reverse=net.number(0, 1), exclusive=net.number(0, 1))
    elif kind == "TopK" and net.type in WIDE:
        net.op(kind, [net.last, net.ints(1)], outputs=2, axis=-1)
    elif kind == "ArgMax":
        net.op(kind, [net.last], axis=-1, keepdims=net.number(0, 1))
        net.become("i64")
    elif kind == "ReverseSequence":
        net.op(
            kind, [net.last, net.const(net.rng.integers(0, net.shape[1] + 1, net.shape[0]))], batch_axis=0, time_axis=1
        )
    else:
        net.op("Expand", [net.last, net.ints(2, *net.shape)])


PRODUCERS: tuple[Callable[[Net], None], ...] = (
    *[conv] * 4,
    *[conv_transpose] * 3,
    *[quantized_conv] * 3,
    *[quantized_product, product, reduction, pool] * 2,
    *[conv_integer, gemm, einsum, attention, global_pool, normalization, softmax, recurrent, resize, sample],
    *[indexing, movement],
)
