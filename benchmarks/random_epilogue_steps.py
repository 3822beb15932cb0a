# SPDX-License-Identifier: Apache-2.0
"""The steps of epilogues that `random_epilogues` draws from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from random_epilogues import FLOATS, TYPES, Net

SAFE = ("Relu", "Neg", "Abs", "LeakyRelu")
SMOOTH = ("Sigmoid", "Tanh", "Softplus", "Erf", "HardSigmoid", "Elu")
JUMPS = ("Floor", "Ceil", "Round", "Sign")


def cast(net: Net) -> None:
    wide = net.type not in FLOATS or net.exact
    to = net.pick([t for t in ("f32", "f16", "bf16", "f64", *(("i32", "i64") if wide else ())) if t != net.type])
    net.op("Cast", [net.last], to=TYPES[to][1])
    net.become(to)


def by_axis(net: Net) -> None:
    """With an operand that differs along some of the axes."""
    if net.type in ("u8", "i8", "bool"):
        return
    shape = [extent if net.chance(2) else 1 for extent in net.shape]
    operand = net.const(tuple(shape[net.number(0, len(shape)) if net.chance(2) else 0 :]))
    given = [net.last, operand]
    net.op(net.pick(("Mul", "Add", "Sub", "Max", "Min")), given if net.chance(2) else given[::-1])


def by_channel(net: Net) -> None:
    """As normalizations and activations are exported: scale, shift and slope for each channel."""
    if net.type not in FLOATS or len(net.shape) < 2:
        by_axis(net)
        return
    column = (net.shape[1], *[1] * (len(net.shape) - 2))
    kind = net.pick(("scale and shift", "PRelu", "BatchNormalization", "embedding"))
    if kind == "scale and shift":
        net.op("Add", [net.op("Mul", [net.last, net.const(column)]), net.const(column)])
    elif kind == "PRelu":
        net.op(kind, [net.last, net.const(column)])
    elif kind == "BatchNormalization":
        batch_norm(net)
    else:
        net.op("Add", [net.last, net.const((net.shape[0], *column))])


def batch_norm(net: Net) -> None:
    channels = (net.shape[1],)
    variance = net.const(np.abs(net.data(channels, net.type)) + np.asarray(0.5, TYPES[net.type][0]))
    given = [net.last, net.const(channels), net.const(channels), net.const(channels), variance]
    net.op("BatchNormalization", given, exact=False)


def unary(net: Net) -> None:
    if net.type in FLOATS:
        smooth = net.chance(3)
        kind = net.pick(SMOOTH) if smooth else net.pick((*SAFE, *JUMPS) if net.exact else SAFE)
        net.op(kind, [net.last], exact=not smooth and kind != "LeakyRelu")


def clip(net: Net) -> None:
    if net.type in (*FLOATS, "i32", "i64"):
        net.op("Clip", [net.last, net.const((), net.type), ""])


def compare(net: Net) -> None:
    """Continuous in what is compared, if that is not exact."""
    bound = net.const((), net.type)
    if net.exact and net.type != "bool":
        value = net.last
        net.op("Where", [net.op("Greater", [value, bound]), value, net.const((), net.type)])


def mask(net: Net) -> None:
    value, kept = net.last, net.const(net.shape[len(net.shape) - 1 :], "bool")
    net.op("Where", [kept, value, net.const((), net.type)])


def swish(net: Net) -> None:
    if net.type in FLOATS:
        value = net.last
        net.op("Mul", [value, net.op("Sigmoid", [value], exact=False)])


def residual(net: Net) -> None:
    if net.type not in ("u8", "i8", "bool"):
        net.op("Add", [net.last, net.const(net.shape)])


def quantize(net: Net) -> None:
    """To bytes and back, or only to bytes."""
    if net.type not in ("f32", "f16") or not net.exact:
        return
    axis = net.number(0, len(net.shape) - 1) if net.shape else 0
    each = net.shape[axis : axis + 1] if net.chance(2) else ()
    scale = net.const((2.0 ** -net.rng.integers(2, 4, each)).astype(TYPES[net.type][0]))
    zero = net.pick(("i8", "u8"))
    zeros = net.const(each, zero)
    net.op("QuantizeLinear", [net.last, scale, zeros], axis=axis)
    if net.chance(4):
        net.become(zero)
    else:
        net.op("DequantizeLinear", [net.last, scale, zeros], axis=axis)


def transpose(net: Net) -> None:
    order = [int(n) for n in net.rng.permutation(len(net.shape))]
    if order:
        net.op("Transpose", [net.last], perm=order)
    net.shape = tuple(net.shape[n] for n in order)


def reduce(net: Net) -> None:
    if not net.shape or net.type in ("u8", "i8", "bool"):
        return
    axis = net.number(0, len(net.shape) - 1)
    net.op(net.pick(("ReduceSum", "ReduceMax")), [net.last, net.ints(axis)], keepdims=1)
    net.shape = (*net.shape[:axis], 1, *net.shape[axis + 1 :])


def upsample(net: Net) -> None:
    if len(net.shape) != 4 or net.type not in ("f32", "f16", "f64"):
        return
    scales = net.const(np.array([1, 1, 2, 2], np.float32))
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    net.op("Resize", [net.last, "", scales], mode="nearest", **how)
    net.shape = (*net.shape[:2], 2 * net.shape[2], 2 * net.shape[3])


def gather(net: Net) -> None:
    if not net.shape:
        return
    axis = net.number(0, len(net.shape) - 1)
    rows = net.rng.integers(0, net.shape[axis], net.number(1, 4))
    net.op("Gather", [net.last, net.const(rows)], axis=axis)
    net.shape = (*net.shape[:axis], len(rows), *net.shape[axis + 1 :])


def normalize(net: Net) -> None:
    if net.type in FLOATS and net.shape:
        net.op("Softmax", [net.last], exact=False, axis=net.number(0, len(net.shape) - 1))


EPILOGUES: tuple[Callable[[Net], None], ...] = (
    *[cast, by_axis, by_channel] * 3,
    *[unary, quantize] * 2,
    *[clip, compare, mask, swish, residual, transpose, reduce, upsample, gather, normalize],
)
