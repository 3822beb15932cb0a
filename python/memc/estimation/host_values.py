# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on shapes in an ONNX model, which frameworks do on the host: its values, and shapes that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Dims = tuple[int, ...]
Attributes = Mapping[str, Any]

MOST = 64
"""Elements of a value that is followed."""


def value_of(op: str, inputs: Sequence[Array], attributes: Attributes) -> Array | None:
    """The result of an op on known values; None where the op is not one of shape arithmetic."""
    rule = _VALUES.get(op)
    if rule is None:
        return None
    try:
        found = np.asarray(rule(inputs, attributes))
    except (ValueError, IndexError, TypeError, KeyError):
        return None
    return found if found.size <= MOST else None


def _slice(i: Sequence[Array], a: Attributes) -> Array:
    starts, stops = (each.reshape(-1).tolist() for each in i[1:3])
    axes = i[3].reshape(-1).tolist() if len(i) > 3 else range(len(starts))
    steps = i[4].reshape(-1).tolist() if len(i) > 4 else [1] * len(starts)
    index: list[Any] = [slice(None)] * i[0].ndim
    for axis, start, stop, step in zip(axes, starts, stops, steps):
        index[axis] = slice(start, None if step < 0 and stop < -i[0].shape[axis] else stop, step)
    return np.asarray(i[0][tuple(index)])


def _axes(i: Sequence[Array], a: Attributes) -> tuple[int, ...]:
    given = i[1].reshape(-1).tolist() if len(i) > 1 else a.get("axes", ())
    return tuple(int(axis) for axis in given)


def _divide(i: Sequence[Array], a: Attributes) -> Array:
    return i[0] // i[1] if i[0].dtype.kind in "iu" else np.asarray(i[0] / i[1])


def _few(dims: Array) -> list[int]:
    """Dims of a value that is worth following."""
    found = [int(size) for size in dims.reshape(-1)]
    if prod(found) > MOST:
        raise ValueError("too many elements")
    return found


def _cast(i: Sequence[Array], a: Attributes) -> Array:
    to = int(a["to"])
    return i[0].astype({1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}[to])


_VALUES: dict[str, Callable[[Sequence[Array], Attributes], Any]] = {
    "Add": lambda i, a: i[0] + i[1],
    "Cast": _cast,
    "CastLike": lambda i, a: i[0].astype(i[1].dtype),
    "Ceil": lambda i, a: np.ceil(i[0]),
    "Concat": lambda i, a: np.concatenate(i, a["axis"]),
    "ConstantOfShape": lambda i, a: np.full(_few(i[0]), a.get("fill", 0.0)),
    "Div": _divide,
    "Equal": lambda i, a: i[0] == i[1],
    "Expand": lambda i, a: i[0] + np.zeros(_few(i[1]), i[0].dtype),
    "Floor": lambda i, a: np.floor(i[0]),
    "Gather": lambda i, a: np.take(i[0], i[1], axis=a.get("axis", 0)),
    "Identity": lambda i, a: i[0],
    "Max": lambda i, a: np.maximum.reduce(list(i)),
    "Min": lambda i, a: np.minimum.reduce(list(i)),
    "Mod": lambda i, a: np.mod(i[0], i[1]),
    "Mul": lambda i, a: i[0] * i[1],
    "Neg": lambda i, a: -i[0],
    "ReduceProd": lambda i, a: np.prod(i[0]),
    "Reshape": lambda i, a: i[0].reshape(i[1].tolist()),
    "Slice": _slice,
    "Sqrt": lambda i, a: np.sqrt(i[0]),
    "Squeeze": lambda i, a: np.squeeze(i[0], _axes(i, a) or None),
    "Sub": lambda i, a: i[0] - i[1],
    "Transpose": lambda i, a: np.transpose(i[0], a.get("perm")),
    "Unsqueeze": lambda i, a: np.expand_dims(i[0], _axes(i, a)),
    "Where": lambda i, a: np.where(i[0], i[1], i[2]),
}


def dims_of(
    op: str, dims: Sequence[Dims], values: Sequence[Optional[Array]], attributes: Attributes
) -> list[Dims] | None:
    """The dims of the results of an op, from those of its operands and the values that are known of them; None where the op or a
    value that they depend on is not known."""
    rule = _DIMS.get(op)
    if rule is None:
        return None
    try:
        return rule(dims, values, attributes)
    except (ValueError, IndexError, TypeError, AttributeError, KeyError):
        return None


def _listed(value: Array | None) -> list[int]:
    if value is None:
        raise ValueError("not known")
    return [int(each) for each in value.reshape(-1)]


def _reshape(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    wanted = _listed(v[1])
    if not a.get("allowzero", 0):
        wanted = [d[0][at] if size == 0 else size for at, size in enumerate(wanted)]
    rest = prod(size for size in wanted if size >= 0)
    return [tuple(prod(d[0]) // rest if size < 0 else size for size in wanted)]


def _matmul(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    batch = np.broadcast_shapes(d[0][:-2], d[1][:-2])
    return [(*batch, *d[0][-2:-1], *d[1][-1:])]


def _gemm(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    return [(d[0][1 if a.get("transA", 0) else 0], d[1][0 if a.get("transB", 0) else 1])]


def _sliced(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    starts, stops = _listed(v[1]), _listed(v[2])
    axes = _listed(v[3]) if len(v) > 3 else list(range(len(starts)))
    steps = _listed(v[4]) if len(v) > 4 else [1] * len(starts)
    found = list(d[0])
    for axis, start, stop, step in zip(axes, starts, stops, steps):
        size = d[0][axis]
        found[axis] = len(range(size)[slice(start, None if step < 0 and stop < -size else stop, step)])
    return [tuple(found)]


def _gathered(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    axis = a.get("axis", 0) % len(d[0])
    return [(*d[0][:axis], *d[1], *d[0][axis + 1 :])]


def _concat(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    axis = a["axis"] % len(d[0])
    return [(*d[0][:axis], sum(each[axis] for each in d), *d[0][axis + 1 :])]


def _unsqueezed(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    axes = _listed(v[1]) if len(v) > 1 else list(a["axes"])
    found = list(d[0])
    for axis in sorted(each % (len(d[0]) + len(axes)) for each in axes):
        found.insert(axis, 1)
    return [tuple(found)]


def _squeezed(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    given = _listed(v[1]) if len(v) > 1 else list(a.get("axes", ()))
    axes = {each % len(d[0]) for each in given} or {at for at, size in enumerate(d[0]) if size == 1}
    return [tuple(size for at, size in enumerate(d[0]) if at not in axes)]


def _expand(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    return [tuple(np.broadcast_shapes(d[0], tuple(_listed(v[1]))))]


def _split(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    axis = a.get("axis", 0) % len(d[0])
    if len(v) > 1:
        sizes = _listed(v[1])
    else:
        number = int(a.get("num_outputs", a["outputs"]))
        sizes = [d[0][axis] // number] * number
    return [(*d[0][:axis], size, *d[0][axis + 1 :]) for size in sizes]


def _range(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    start, stop, step = (_listed(each)[0] for each in v)
    return [(len(range(start, stop, step)),)]


def _reduced(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    given = _listed(v[1]) if len(v) > 1 and v[1] is not None else list(a.get("axes", range(len(d[0]))))
    axes = {each % len(d[0]) for each in given}
    keep = a.get("keepdims", 1)
    return [tuple(1 if at in axes else size for at, size in enumerate(d[0]) if keep or at not in axes)]


def _padded(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    pads, rank = _listed(v[1]) if len(v) > 1 else list(a["pads"]), len(d[0])
    axes = [at % rank for at in (_listed(v[3]) if len(v) > 3 and v[3] is not None else range(rank))]
    found = list(d[0])
    for at, axis in enumerate(axes):
        found[axis] += pads[at] + pads[len(axes) + at]
    return [tuple(found)]


def _permuted(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    order = a.get("perm") or tuple(reversed(range(len(d[0]))))
    return [tuple(d[0][axis] for axis in order)]


def _windows(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    """Of convolutions, whose channels are the weight's, and of pools."""
    x, convolution = d[0], len(d) > 1
    rank = len(x) - 2
    kernel = d[1][2:] if convolution else tuple(a["kernel_shape"])
    pads = list(a.get("pads") or [0] * 2 * rank)
    strides, dilations = list(a.get("strides") or [1] * rank), list(a.get("dilations") or [1] * rank)
    if a.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise ValueError("padding by shapes")
    up = [stride - 1 if a.get("ceil_mode", 0) else 0 for stride in strides]
    sizes = [
        (x[2 + n] + pads[n] + pads[rank + n] - dilations[n] * (kernel[n] - 1) - 1 + up[n]) // strides[n] + 1
        for n in range(rank)
    ]
    return [(x[0], d[1][0] if convolution else x[1], *sizes)] * int(a["outputs"])


def _broadcast(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    return [tuple(np.broadcast_shapes(*d))]


def _same(d: Sequence[Dims], v: Sequence[Array | None], a: Attributes) -> list[Dims]:
    return [d[0]] * int(a["outputs"])


_DIMS: dict[str, Callable[[Sequence[Dims], Sequence[Optional[Array]], Attributes], list[Dims]]] = {
    **dict.fromkeys(
        (
            "Add",
            "And",
            "Div",
            "Equal",
            "Greater",
            "GreaterOrEqual",
            "Less",
            "LessOrEqual",
            "Max",
            "Min",
            "Mod",
            "Mul",
            "Or",
        )
        + ("Pow", "Sub", "Where", "Xor"),
        _broadcast,
    ),
    **dict.fromkeys(
        (
            "Abs",
            "Cast",
            "CastLike",
            "Clip",
            "Cos",
            "CumSum",
            "Dropout",
            "Erf",
            "Exp",
            "Gelu",
            "Identity",
            "IsNaN",
            "Log",
            "Neg",
        )
        + (
            "Not",
            "Reciprocal",
            "Relu",
            "Sigmoid",
            "Sin",
            "Softmax",
            "Sqrt",
            "Tanh",
            "Trilu",
            "LayerNormalization",
            "BatchNormalization",
            "RandomUniformLike",
            "ScatterElements",
            "ScatterND",
        ),
        _same,
    ),
    **dict.fromkeys(("AveragePool", "Conv", "MaxPool"), _windows),
    "ConstantOfShape": lambda d, v, a: [tuple(_listed(v[0]))],
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": lambda d, v, a: [(prod(d[0][: a.get("axis", 1)]), prod(d[0][a.get("axis", 1) :]))],
    "Gather": _gathered,
    "GatherElements": lambda d, v, a: [d[1]],
    "GatherND": lambda d, v, a: [(*d[1][:-1], *d[0][d[1][-1] :])],
    "Gemm": _gemm,
    "GlobalAveragePool": lambda d, v, a: [(*d[0][:2], *[1] * (len(d[0]) - 2))],
    "MatMul": _matmul,
    "Pad": _padded,
    "Range": _range,
    "ReduceMax": _reduced,
    "ReduceMean": _reduced,
    "ReduceSum": _reduced,
    "Reshape": _reshape,
    "Slice": _sliced,
    "Split": _split,
    "Squeeze": _squeezed,
    "Transpose": _permuted,
    "Unsqueeze": _unsqueezed,
}
