# SPDX-License-Identifier: Apache-2.0
"""What `random_onnx.Drawn` can append: each step adds one node, or a few, where the graph has operands that fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto
from random_onnx import COMPARE, EXTENTS, STEP, Drawn, Item

UNARY = (
    "Abs Neg Relu Sigmoid Tanh Exp Sin Cos Erf Softplus Identity HardSwish LeakyRelu Elu Softsign Dropout Mish".split()
)
BINARY = "Add Sub Mul Add Mul Max Min Div PRelu".split()
REDUCE = "ReduceSum ReduceMax ReduceMin ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp".split()


def step_unary(g: Drawn) -> None:
    if item := g.any("f" if not g.chance(5) else "fi"):
        g.add(g.pick(UNARY), [item.name])


def step_jump(g: Drawn) -> None:
    if item := g.any("f", exact=True):
        g.add(g.pick(STEP), [item.name])


def step_binary(g: Drawn) -> None:
    if item := g.any("f" if not g.chance(4) else "fi"):
        pair = [item.name, g.fitting(item)]
        g.add(g.pick(BINARY), pair if g.chance(2) else pair[::-1])


def step_compare(g: Drawn) -> None:
    if item := g.any("fib", exact=True):
        g.add(g.pick([*COMPARE, "And", "Or", "Xor"]), [item.name, g.fitting(item)])


def step_where(g: Drawn) -> None:
    if (mask := g.any("b")) and (item := g.any("fi")):
        g.add("Where", [mask.name, item.name, g.fitting(item)])


def step_cast(g: Drawn) -> None:
    if item := g.any("fib", exact=True):
        to = g.pick((TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.INT32))
        g.add("Cast", [item.name], to=int(g.pick((to, to, TensorProto.BOOL, TensorProto.DOUBLE))))


def step_reshape(g: Drawn) -> None:
    if item := g.any("fib"):
        shape = list(item.array.shape)
        choice = g.number(0, 4)
        if choice == 0:
            shape = [-1]
        elif choice == 1:
            shape.insert(g.number(0, len(shape)), 1)
        elif choice == 2 and len(shape) > 1:
            at = g.number(0, len(shape) - 2)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif choice == 3 and shape:
            at = g.number(0, len(shape) - 1)
            shape[at : at + 1] = [2, shape[at] // 2] if shape[at] % 2 == 0 else [shape[at], 1]
        else:
            shape = [0] * len(shape)
        if g.chance(4):
            return g.add("Flatten", [item.name], axis=g.number(0, item.array.ndim))
        g.add("Reshape", [item.name, g.source(np.array(shape, np.int64))])


def step_squeeze(g: Drawn) -> None:
    if item := g.any("fib"):
        ones = [a for a, d in enumerate(item.array.shape) if d == 1]
        if ones and g.chance(2):
            g.add("Squeeze", [item.name, g.source(np.array([g.pick(ones)], np.int64))])
        elif item.array.ndim < 5:
            g.add("Unsqueeze", [item.name, g.source(np.array([g.number(0, item.array.ndim)], np.int64))])


def step_transpose(g: Drawn) -> None:
    if item := g.any("fib", rank=1):
        g.add("Transpose", [item.name], perm=[int(a) for a in g.rng.permutation(item.array.ndim)])


def step_slice(g: Drawn) -> None:
    if item := g.any("fib", rank=1):
        axis = g.number(0, item.array.ndim - 1) if not g.chance(2) else 0
        extent = item.array.shape[axis]
        a, b = sorted((g.number(0, extent), g.number(0, extent)))
        step = g.pick((1, 1, 1, 2, -1))
        bounds = (a, b) if step > 0 else (b - 1, a - 1 if a else -(2**31))
        values = [np.array([v], np.int64) for v in (*bounds, axis, step)]
        g.add("Slice", [item.name, *[g.source(v) for v in values]])


def step_concat(g: Drawn) -> None:
    if item := g.any("fib", rank=1):
        axis = g.number(0, item.array.ndim - 1) if not g.chance(2) else 0
        rest = [d for a, d in enumerate(item.array.shape) if a != axis]
        same = [
            i.name
            for i in g.items
            if i.array.dtype == item.array.dtype
            and i.array.ndim == item.array.ndim
            and [d for a, d in enumerate(i.array.shape) if a != axis] == rest
        ]
        parts = [item.name] + [str(g.pick(same)) for _ in range(g.number(0, 3))]
        g.add(
            "Concat", [parts[int(i)] for i in g.rng.permutation(len(parts))], axis=axis - g.pick((0, item.array.ndim))
        )


def step_split(g: Drawn) -> None:
    if item := g.any("fib", rank=1):
        axis = g.number(0, item.array.ndim - 1) if not g.chance(2) else 0
        at = g.number(0, item.array.shape[axis])
        sizes = np.array([at, item.array.shape[axis] - at], np.int64)
        g.add("Split", [item.name, g.source(sizes)], 2, axis=axis)


def step_expand(g: Drawn) -> None:
    if item := g.any("fib"):
        if g.chance(2):
            return g.add("Tile", [item.name, g.source(np.array([g.number(1, 2) for _ in item.array.shape], np.int64))])
        shape = [d if d != 1 else g.number(1, 3) for d in item.array.shape]
        g.add("Expand", [item.name, g.source(np.array([2] * g.number(0, 1) + shape, np.int64))])


def step_reduce(g: Drawn) -> None:
    if item := g.any("f", rank=1):
        op = g.pick(REDUCE)
        axes = [a for a in range(item.array.ndim) if g.chance(2)] or [0]
        if g.opset >= 18 or (op == "ReduceSum"):
            return g.add(op, [item.name, g.source(np.array(axes, np.int64))], keepdims=g.number(0, 1))
        g.add(op, [item.name], axes=axes, keepdims=g.number(0, 1))


def step_norm(g: Drawn) -> None:
    if item := g.any("f", rank=1):
        axis = g.number(0, item.array.ndim - 1)
        if g.chance(2):
            return g.add(g.pick(("Softmax", "LogSoftmax")), [item.name], axis=axis)
        if g.opset < 17:
            return g.add("CumSum", [item.name, g.source(np.array(axis, np.int64))], reverse=g.number(0, 1))
        scale = g.source(g.data(item.array.shape[axis:], item.array.dtype.str[1:]))
        g.add("LayerNormalization", [item.name, scale], axis=axis)


def step_matmul(g: Drawn) -> None:
    if item := g.any("f", rank=2):
        k = item.array.shape[-1]
        fits = [
            i.name
            for i in g.items
            if i.array.dtype == item.array.dtype and i.array.ndim >= 2 and i.array.shape[-2] == k
        ]
        other = (
            str(g.pick(fits))
            if fits and g.chance(2)
            else g.source(g.data((k, g.pick(EXTENTS)), item.array.dtype.str[1:]))
        )
        g.add("MatMul" if item.array.ndim != 2 or g.chance(2) else "Gemm", [item.name, other])


def step_conv(g: Drawn) -> None:
    """A convolution, at times with shared weights and followed by a batch norm or arithmetic per channel."""
    found = [i for i in g.items if i.array.dtype == np.float32 and i.array.ndim == 4 and i.array.size]
    if not found:
        g.source(g.data((g.number(1, 2), g.pick((1, 2, 4)), g.number(2, 6), g.number(2, 6)), "f4"), g.chance(2))
        return
    item: Item = g.pick(found)
    channels = item.array.shape[1]
    made, k = g.pick((1, 2, 4)), g.pick((1, 2, 3))
    fits = [
        i.name
        for i in g.items
        if i.array.dtype == np.float32 and i.array.ndim == 4 and i.array.size and i.array.shape[1] == channels
    ]
    weight = str(g.pick(fits)) if g.chance(4) else g.source(g.data((made, channels, k, k), "f4"))
    bias = [g.source(g.data((made,), "f4"))] if g.chance(2) else []
    before = len(g.nodes)
    g.add("Conv", [item.name, weight, *bias], pads=[g.number(0, 1)] * 4, strides=[g.number(1, 2)] * 2)
    if len(g.nodes) == before:
        return
    result = g.items[-1]
    if g.chance(3):
        params = [g.data((result.array.shape[1],), "f4") for _ in range(3)] + [
            np.abs(g.data((result.array.shape[1],), "f4")) + 1
        ]
        g.add("BatchNormalization", [result.name, *[g.source(p.astype("f4")) for p in params]])
    elif g.chance(2):
        shape = (result.array.shape[1], 1, 1)
        g.add(g.pick(("Mul", "Add", "Sub", "Div")), [result.name, g.source(g.data(shape, "f4") + np.float32(4))])


def step_pool(g: Drawn) -> None:
    if item := g.any("f", rank=4):
        if g.chance(4):
            return g.add("GlobalAveragePool", [item.name])
        if g.chance(4):
            return g.add("DepthToSpace", [item.name], blocksize=2)
        pads = [g.number(0, 1)] * 4 if min(item.array.shape[2:]) > 1 else [1] * 4
        g.add(
            g.pick(("MaxPool", "AveragePool")),
            [item.name],
            kernel_shape=[2, 2],
            strides=[g.number(1, 2)] * 2,
            pads=pads,
        )


def step_index(g: Drawn) -> None:
    if (item := g.any("fib", rank=1)) and item.array.shape[0]:
        n = item.array.shape[0]
        index = g.rng.integers(-n, n, g.shape()[:2])
        choice = g.number(0, 3)
        if choice == 0:
            g.add("Gather", [item.name, g.source(index)], axis=0)
        elif choice == 1:
            whole = g.source(g.rng.integers(0, n, item.array.shape))
            g.add("GatherElements", [item.name, whole], axis=0)
        elif choice == 2:
            rows = g.rng.permutation(n)[: g.number(0, n)].reshape(-1, 1)
            updates = g.source(g.data((len(rows), *item.array.shape[1:]), item.array.dtype.str[1:]))
            g.add("ScatterND", [item.name, g.source(rows), updates])
        else:
            k = g.source(np.array([g.number(0, n)], np.int64))
            g.add("TopK", [item.name, k], 2, axis=0, largest=g.number(0, 1))


def step_pad(g: Drawn) -> None:
    if item := g.any("fi", rank=1):
        if g.chance(3) and item.exact:
            bounds = [g.source(np.array(v, item.array.dtype)) for v in (-1, g.number(-2, 2))]
            return g.add("Clip", [item.name, *bounds[: g.number(1, 2)]])
        pads = [g.number(-1 if d > 1 else 0, 2) if g.chance(3) else 0 for d in item.array.shape * 2]
        value = [g.source(np.array(g.number(-2, 2), item.array.dtype))] if g.chance(2) else []
        g.add("Pad", [item.name, g.source(np.array(pads, np.int64)), *value])


STEPS: list[Callable[[Drawn], None]] = [value for name, value in sorted(globals().items()) if name.startswith("step_")]
STEPS += [step_binary, step_unary, step_concat, step_slice, step_reshape]
