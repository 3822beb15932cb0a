# SPDX-License-Identifier: Apache-2.0
"""Ops on images with their channels last: which have such a form, and how it is written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Attr, Op, Role, Value
from memc.ir.module import Module
from memc.ir.op_queries import has
from memc.ir.ops.library.cuda_conv import fits, images_of, weights_of
from memc.ir.ops.library.cuda_conv_channels_last import VECTOR
from memc.ir.ops.shared.casts import HALF
from memc.ir.ops.shared.common import ints_attr
from memc.ir.ops.shared.layout import SUFFIX, last_array, last_type, to_first, to_last
from memc.ir.ops.shared.op_def import Trait
from memc.ir.ops.shared.window import window
from memc.ir.types import DType, TensorType

RANKS = (4, 5)
"""Axes of an image or a volume: batch, channels, maybe depth, height and width."""

CONVOLUTIONS = ("conv", "conv_transpose", "conv_grad_weight")

WEIGHTED = ("conv", "conv_transpose")
"""Those whose second operand are weights."""

WINDOWED = (*CONVOLUTIONS, "max_pool", "max_pool_taps", "max_pool_grad", "sum_pool", "sum_pool_grad")
"""Ops with a counterpart of their own, whose first two operands, or the only one, have channels."""

REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_mean")

PER_AXIS = {"pad": ("low", "high"), "slice": ("starts", "stops", "steps")}
"""Attributes with a number for each axis."""

BY_NUMBER = ("resize", "resize_nearest")
"""Ops whose attribute `axes` names axes, in any order."""

STATEFUL = ("assign", "copy", "hold")
"""Elementwise ops that mean more than their elements."""


def has_last_form(op: Op, tf32: bool) -> bool:
    """Whether an op can be written for images with channels last. `tf32`: whether factors of f32 will be rounded to TF32."""
    if len(op.results) != 1 or op.region is not None or not op.operands:
        return False
    source, result = op.operands[0].type, op.result.type
    if op.name in CONVOLUTIONS:
        return _is_for_tensor_cores(op, tf32)
    if op.name in REDUCTIONS:
        every = set(range(2, source.rank)) <= set(ints_attr(op.attrs, "axes"))
        return source.rank in RANKS and (bool(op.attrs["keepdims"]) or every)
    if result.rank not in RANKS or has(op, Trait.RANDOM) or op.name in STATEFUL:
        return False
    if op.name in (*WINDOWED, *PER_AXIS, *BY_NUMBER, "concat"):
        return source.rank in RANKS
    return has(op, Trait.ELEMENTWISE)


def reads_image(value: Value, op: Op) -> bool:
    """Whether an op with a form for channels last reads a value with channels, and not spread over more axes."""
    if op.name in WEIGHTED:
        return value is op.operands[0]
    if op.name in WINDOWED:
        return value in op.operands[:2]
    if op.name in (*PER_AXIS, *BY_NUMBER, *REDUCTIONS, "concat"):
        return value.type.rank in RANKS
    return bool(op.results) and value.type.rank == op.results[0].type.rank


def vector(dtype: DType) -> int:
    """How many channels tensor cores read and write at once."""
    return VECTOR // dtype.itemsize


def _is_for_tensor_cores(op: Op, tf32: bool) -> bool:
    """Whether the library computes a convolution, or a gradient of one, on tensor cores where the channels are last. Few channels
    of a convolution's images are filled up with zeros."""
    dtype, w = op.operands[0].type.dtype, weights_of(op)
    if w.rank not in RANKS or op.attrs["group"] != 1 or dtype not in (*HALF, *([DType.F32] if tf32 else [])):
        return False
    whole = vector(dtype)
    few = op.name == "conv" and w.shape[1] < whole
    x, y = images_of(op)
    view = window(op.attrs, w.shape[2:], w.rank - 2)
    fitting = x.elements > 0 and y.elements > 0 and fits(view, x.shape[2:], y.shape[2:])
    return fitting and w.shape[0] % whole == 0 and (few or w.shape[1] % whole == 0)


def is_free(type: TensorType) -> bool:
    """Whether both layouts are the same elements in the same order."""
    return type.elements == 0 or type.shape[1] == 1 or set(type.shape[2:]) == {1}


def known_data(module: Module, value: Value) -> Array | None:
    """The data of a constant or weight; None for other values, and for weights without data."""
    if value.op is None:
        return module.weights.get(value.name) if value.role is Role.WEIGHT else None
    data = value.op.attrs["value"] if value.op.name == "constant" else None
    return data if isinstance(data, np.ndarray) else None


def is_constant(value: Value) -> bool:
    """Whether a value is the same in all runs."""
    return value.role is Role.WEIGHT or (value.op is not None and value.op.name == "constant")


@dataclass
class LayoutWriter:
    """Writes ops with their channels last, and transposes where layouts meet."""

    builder: IRBuilder
    returned: Collection[Value]
    last: dict[Value, Value] = field(default_factory=dict)
    """What holds a value of the function with channels last, by the value with channels first."""
    moved: set[Value] = field(default_factory=set)
    """Those that an op makes with channels last."""
    first: dict[Value, Value] = field(default_factory=dict)
    """What takes the place of a value that is written anew, for ops that read it as it was."""
    widened: dict[Value, Value] = field(default_factory=dict)
    """What convolutions read of values with few channels."""
    laid_out: dict[tuple[Value, int], Value] = field(default_factory=dict)
    """Constant weights as convolutions read them, with more channels."""
    spread: dict[tuple[Value, int], Value] = field(default_factory=dict)
    """What elementwise ops read of values with fewer axes than their results."""

    def write(self, op: Op) -> None:
        """Append the form of `op` for channels last."""
        self.builder.location = op.location
        made = self._form(op)
        assert made.op is not None
        made.op.plan = op.plan
        is_image = op.result.type.rank in RANKS
        assert made.type == (last_type(op.result.type) if is_image else op.result.type), op.name
        if is_image:
            self.last[op.result] = made
            self.moved.add(op.result)
        else:
            self.first[op.result] = made
        if not is_image or op.result not in self.returned:
            made.name = op.result.name

    def _form(self, op: Op) -> Value:
        b, attrs = self.builder, dict(op.attrs)
        if op.name == "conv":
            x, w, *bias = op.operands
            image, weights = self._whole(x), self._weights(w, -w.type.shape[1] % vector(w.type.dtype))
            return b.op("conv" + SUFFIX, [image, weights, *map(self.as_first, bias)], **attrs)
        if op.name == "conv_transpose":
            x, w, *bias = op.operands
            return b.op(op.name + SUFFIX, [self.as_last(x), self._weights(w), *map(self.as_first, bias)], **attrs)
        if op.name in WINDOWED:
            return b.op(op.name + SUFFIX, [self.as_last(v) for v in op.operands], **attrs)
        if op.name == "concat":
            axis = attrs["axis"]
            assert isinstance(axis, int)
            return b.op("concat", [self.as_last(v) for v in op.operands], axis=_moved(axis, op.result.type.rank))
        rank = op.operands[0].type.rank
        if op.name in REDUCTIONS:
            axes = tuple(sorted(_moved(axis, rank) for axis in ints_attr(attrs, "axes")))
            return b.op(op.name, [self.as_last(op.operands[0])], **{**attrs, "axes": axes})
        if op.name in BY_NUMBER:
            x, *tables = op.operands
            named = tuple(_moved(axis, rank) for axis in ints_attr(attrs, "axes"))
            return b.op(op.name, [self.as_last(x), *map(self.as_first, tables)], **{**attrs, "axes": named})
        if op.name in PER_AXIS:
            by_axis: dict[str, Attr] = {name: _permuted(ints_attr(attrs, name)) for name in PER_AXIS[op.name]}
            return b.op(op.name, [self.as_last(op.operands[0])], **{**attrs, **by_axis})
        return b.op(op.name, [self._spread(v, op.result.type.rank) for v in op.operands], **attrs)

    def as_first(self, value: Value) -> Value:
        """The value with channels first, by a transpose where it is written with them last."""
        if value not in self.moved or value in self.first:
            return self.first.get(value, value)
        made = self._turned(self.last[value], to_first(value.type.rank), value.type)
        if value in self.returned:
            made.name = value.name
        self.first[value] = made
        return made

    def as_last(self, value: Value) -> Value:
        """An image with channels last, by a transpose where it is not written so. Of constants it is made here and now."""
        if value in self.last:
            return self.last[value]
        data = known_data(self.builder.module, value)
        if data is not None:
            made = self.builder.constant(np.ascontiguousarray(last_array(data)), f"{value.name}{SUFFIX}")
        else:
            made = self._turned(self.as_first(value), to_last(value.type.rank), last_type(value.type))
        self.last[value] = made
        return made

    def _turned(self, value: Value, perm: tuple[int, ...], type: TensorType) -> Value:
        if is_free(value.type if perm == to_last(len(perm)) else type):
            return self.builder.op("reshape", [value], shape=type.shape)
        return self.builder.op("transpose", [value], perm=perm)

    def _spread(self, value: Value, rank: int) -> Value:
        """An operand of an elementwise op, which may have fewer axes than the result."""
        if value.type.rank == rank:
            return self.as_last(value)
        if value.type.elements == 1:
            return self.as_first(value)
        if (value, rank) not in self.spread:
            shape = (*[1] * (rank - value.type.rank), *value.type.shape)
            data = known_data(self.builder.module, value)
            if data is not None:
                image = np.ascontiguousarray(last_array(data.reshape(shape)))
                made = self.builder.constant(image, f"{value.name}{SUFFIX}")
            else:
                given = self.builder.op("reshape", [self.as_first(value)], shape=shape)
                made = self._turned(given, to_last(rank), last_type(given.type))
            self.spread[value, rank] = made
        return self.spread[value, rank]

    def _whole(self, x: Value) -> Value:
        """What a convolution reads, with channels of zeros up to a whole vector."""
        if x not in self.widened:
            self.widened[x] = self._filled_up(self.as_last(x), -x.type.shape[1] % vector(x.type.dtype))
        return self.widened[x]

    def _filled_up(self, image: Value, missing: int) -> Value:
        """`image`, which has the channels last, with so many more of zeros."""
        if not missing:
            return image
        none = (0,) * (image.type.rank - 1)
        padding: dict[str, Attr] = {"low": (*none, 0), "high": (*none, missing), "mode": "constant", "value": 0.0}
        return self.builder.op("pad", [image], **padding)

    def _weights(self, w: Value, missing: int = 0) -> Value:
        """The weights of a convolution, laid out alike, with so many more channels. Those that are known when the model runs are
        laid out anew for each that reads them, so that no copy lives from the forward to the backward pass."""
        data = known_data(self.builder.module, w)
        if data is None:
            turned = self._turned(self.as_first(w), to_last(w.type.rank), last_type(w.type))
            return self._filled_up(turned, missing)
        if (w, missing) not in self.laid_out:
            whole = np.pad(data, [(0, missing if axis == 1 else 0) for axis in range(data.ndim)])
            made = np.ascontiguousarray(last_array(whole))
            self.laid_out[w, missing] = self.builder.constant(made, f"{w.name}{SUFFIX}")
        return self.laid_out[w, missing]


def _moved(axis: int, rank: int) -> int:
    """Where an axis of an image is if the channels are last."""
    return to_last(rank).index(axis)


def _permuted(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(numbers[axis] for axis in to_last(len(numbers)))
