# SPDX-License-Identifier: Apache-2.0
"""The model's inputs: element types, shapes with their open dims bound, and inputs bound to constants."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import numpy.typing as npt
import onnx

from memc.ir.arrays import is_numeric, native, plain
from memc.ir.core import Array
from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.ir.messages import shown
from memc.ir.types import DType, TensorType

from .load import MAX_BYTES

Dim = Union[int, str, None]
"""A declared dim: a size, a symbol, or unknown."""

_log = logging.getLogger("memc")


@dataclass(frozen=True)
class Declared:
    """A graph input or output as the file declares it."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...] | None
    """None if not even the rank is declared."""


def declared(info: onnx.ValueInfoProto, kind: str) -> Declared:
    """Read a declaration; negative sizes, `?` and absent ones are unknown. Raises UnsupportedError for anything but a
    dense tensor of an element type the IR has."""
    which = info.type.WhichOneof("value")
    if which != "tensor_type":
        what = (which or "untyped").removesuffix("_type").replace("_", " ")
        raise UnsupportedError(f"unsupported: graph {kind} `{info.name}`: expected a dense tensor, got {what}")
    tensor = info.type.tensor_type
    dtype = element_type(tensor.elem_type, f"graph {kind} `{info.name}`")
    if not tensor.HasField("shape"):
        return Declared(info.name, dtype, None)
    return Declared(info.name, dtype, tuple(_dim(d) for d in tensor.shape.dim))


def element_type(code: int, where: str) -> DType:
    """The IR's element type for an ONNX one. Raises UnsupportedError or InvalidError."""
    try:
        name = onnx.TensorProto.DataType.Name(code)
    except ValueError:
        raise InvalidError(f"invalid: {where}: unknown element type {code}") from None
    try:
        return DType.from_numpy(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)))
    except (KeyError, TypeError):
        raise UnsupportedError(f"unsupported: {where}: element type {name.lower()}") from None


def _dim(dim: Any) -> Dim:
    if dim.HasField("dim_param"):
        text = str(dim.dim_param).strip()
        return None if text in ("", "?", "-1") else text
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def bind_shapes(
    inputs: Sequence[Declared],
    dims: Mapping[str, int],
    input_shapes: Mapping[str, Sequence[int]],
    bound: Mapping[str, npt.ArrayLike],
) -> dict[str, TensorType]:
    """The static type of every input.

    `dims` binds symbols, `input_shapes` whole inputs; the shape of an array in `bound` counts as one. If all dims
    still open are leading ones, they become 1, with a warning. Raises UsageError for unknown names and
    contradictions, UnsupportedError listing the dims that are open.
    """
    given = {name: tuple(int(d) for d in shape) for name, shape in input_shapes.items()}
    _check_names("input_shapes", given, [i.name for i in inputs])
    _check_names("bind", bound, [i.name for i in inputs])
    for name, value in bound.items():
        array = plain(value, f"bind: input `{name}`")
        if array.ndim > 0 and name not in given:
            given[name] = array.shape
    symbols = {name: int(size) for name, size in dims.items()}
    _check_names("dims", symbols, sorted({d for i in inputs for d in i.shape or () if isinstance(d, str)}))
    for name, size in symbols.items():
        if size < 0:
            raise UsageError(f"dim `{name}`: expected a size of at least 0, got {size}")
    for item in inputs:
        if item.name in given:
            _unify(item, given[item.name], symbols)
    shapes = _default_batch({i.name: given[i.name] if i.name in given else _substitute(i, symbols) for i in inputs})
    result = {}
    for item in inputs:
        shape = tuple(d for d in shapes[item.name] or () if isinstance(d, int))
        if TensorType(item.dtype, shape).span > MAX_BYTES:
            raise InvalidError(f"invalid: graph input `{item.name}`: shape {list(shape)} is larger than 1 TiB")
        result[item.name] = TensorType(item.dtype, shape)
    return result


def _check_names(option: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            there = ", ".join(f"`{n}`" for n in known) or "none"
            raise UsageError(f"{option}: the model has no `{name}`; there are: {there}")


def _unify(item: Declared, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    """Check a given shape against the declared one, and learn the sizes of its symbols."""
    wanted = f"input `{item.name}`: expected shape [{_text(item.shape)}], got {list(shape)}"
    if any(d < 0 for d in shape):
        raise UsageError(f"{wanted}: sizes must be at least 0")
    if item.shape is None:
        return
    if len(item.shape) != len(shape):
        raise UsageError(f"{wanted}: the ranks differ")
    for have, size in zip(item.shape, shape):
        # Some exporters write 0 for an unknown size, so a given one may replace it.
        if isinstance(have, int) and have != size and have != 0:
            raise UsageError(f"{wanted}: {have} is fixed in the model")
        if isinstance(have, str) and symbols.setdefault(have, size) != size:
            raise UsageError(f"{wanted}: dim `{have}` is already {symbols[have]}")


def _text(shape: tuple[Dim, ...] | None) -> str:
    return "unknown rank" if shape is None else ",".join("?" if d is None else str(d) for d in shape)


def _substitute(item: Declared, symbols: Mapping[str, int]) -> tuple[Dim, ...] | None:
    if item.shape is None:
        return None
    return tuple(symbols.get(d, d) if isinstance(d, str) else d for d in item.shape)


def _default_batch(shapes: Mapping[str, tuple[Dim, ...] | None]) -> dict[str, tuple[Dim, ...] | None]:
    """Set open dims to 1 if only leading ones are open; otherwise raise UnsupportedError listing them."""
    open_dims = [
        (name, axis)
        for name, shape in shapes.items()
        for axis, dim in enumerate(shape or ())
        if not isinstance(dim, int)
    ]
    unranked = [name for name, shape in shapes.items() if shape is None]
    if not open_dims and not unranked:
        return dict(shapes)
    if unranked or any(axis != 0 for _, axis in open_dims):
        parts = []
        symbols: list[str] = []
        for name, shape in shapes.items():
            if shape is None or any(not isinstance(d, int) for d in shape):
                parts.append(f"{name}:[{_text(shape)}]")
                symbols += [d for d in shape or () if isinstance(d, str) and d not in symbols]
        hints = [f"--dim {s}=N" for s in symbols]
        hints += [f'--input-shapes "{parts[0].split(":")[0]}:[...]"'] if len(hints) == 0 or "?" in str(parts) else []
        raise UnsupportedError(f"unsupported: open dims in {', '.join(parts)}; bind them with {', '.join(hints)}")
    labels = ", ".join(f"`{name}`" for name, _ in open_dims)
    _log.warning("the leading dim of %s is open: using 1; bind it with --dim or --input-shapes", labels)
    return {n: tuple(d if isinstance(d, int) else 1 for d in s or ()) for n, s in shapes.items()}


def numbers(name: str, value: npt.ArrayLike) -> Array:
    """What input `name` is bound to, as an array. Raises UsageError for what is no tensor of numbers."""
    array = plain(value, f"bind: input `{name}`")
    if array.dtype.kind in "OUSMm":  # Text would be read as numbers, None as nan.
        raise UsageError(f"bind: input `{name}`: expected numbers, got {shown(value)}")
    return array


def bound_array(name: str, value: npt.ArrayLike, type: TensorType) -> Array:
    """`value` as the constant that takes the place of input `name`: cast without loss, a scalar fills the shape.

    Raises UsageError if it does not fit.
    """
    array = native(value, f"bind: input `{name}`")
    if not is_numeric(array):
        raise UsageError(f"bind: input `{name}`: expected {type}, got elements of {array.dtype}")
    try:
        cast = array.astype(type.dtype.numpy)
        exact = type.dtype.is_float or bool(np.all(cast == array))
    except (TypeError, ValueError):
        exact = False
    if not exact:
        raise UsageError(f"bind: input `{name}`: expected {type}, got a value that {type.dtype.value} cannot hold")
    if cast.ndim == 0 or cast.size == 1 == type.elements:
        return np.array(np.broadcast_to(cast.reshape(()), type.shape))
    if cast.shape != type.shape:
        raise UsageError(f"bind: input `{name}`: expected {type}, got shape {list(cast.shape)}")
    return np.array(cast, order="C")
