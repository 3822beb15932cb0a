# SPDX-License-Identifier: Apache-2.0
"""Reading ONNX files and the tensors stored in or beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from memc.ir.core import Array
from memc.ir.errors import InvalidError, UnsupportedError

Source = Union[str, Path, bytes, onnx.ModelProto]

MAX_BYTES = 1 << 40
"""Largest tensor accepted: 1 TiB. Anything larger is taken for a corrupt shape."""


@dataclass
class Store:
    """Where tensors' data comes from: the folder of external files, each mapped once."""

    folder: Path | None
    """None for a model that did not come from a file: it cannot refer to external data."""
    files: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)

    def array(self, tensor: TensorProto) -> Array:
        """The tensor's data; external data stays memory-mapped. Raises InvalidError or UnsupportedError."""
        where = f"tensor `{tensor.name}`"
        dtype = _dtype(tensor, where)
        shape = tuple(int(d) for d in tensor.dims)
        if any(d < 0 for d in shape) or math.prod(d for d in shape if d) * max(dtype.itemsize, 1) > MAX_BYTES:
            raise InvalidError(f"invalid: {where}: shape {list(shape)} is negative or larger than 1 TiB")
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, dtype, shape, where)
        try:
            return np.asarray(onnx.numpy_helper.to_array(tensor))
        except Exception as error:
            raise InvalidError(
                f"invalid: {where}: data do not fit {dtype.name}{list(shape)}: {_line(error)}"
            ) from error

    def _external(self, tensor: TensorProto, dtype: np.dtype[Any], shape: tuple[int, ...], where: str) -> Array:
        info = {entry.key: entry.value for entry in tensor.external_data}
        location = info.get("location", "")
        if self.folder is None:
            raise InvalidError(
                f"invalid: {where}: data are in the external file `{location}`; import the model by its path"
            )
        try:
            offset = int(info.get("offset", 0))
            length = int(info["length"]) if "length" in info else None
        except ValueError:
            raise InvalidError(f"invalid: {where}: external offset and length must be integers, got {info}") from None
        if tensor.data_type in (TensorProto.INT4, TensorProto.UINT4, TensorProto.STRING):
            raise UnsupportedError(f"unsupported: {where}: external data of type {dtype.name}")
        needed = math.prod(shape) * dtype.itemsize
        if length is not None and length != needed:
            raise InvalidError(
                f"invalid: {where}: expected {needed} external bytes for {dtype.name}{list(shape)}, got length {length}"
            )
        data = self._file(location, where)
        if offset < 0 or offset + needed > data.size:
            raise InvalidError(
                f"invalid: {where}: expected bytes {offset}..{offset + needed} in `{location}`, "
                f"which has {data.size}; is the file truncated?"
            )
        return data[offset : offset + needed].view(dtype).reshape(shape)

    def _file(self, location: str, where: str) -> npt.NDArray[np.uint8]:
        found = self.files.get(location)
        if found is not None:
            return found
        assert self.folder is not None
        folder = self.folder.resolve()
        path = (folder / location).resolve()
        if not location or folder not in path.parents:
            raise InvalidError(f"invalid: {where}: external file `{location}` is not inside the model's folder")
        if not path.is_file():
            raise InvalidError(f"invalid: {where}: external data file `{path}` does not exist; put it beside the model")
        try:
            size = path.stat().st_size
            data = np.asarray(np.memmap(path, np.uint8, "r")) if size else np.empty(0, np.uint8)
        except OSError as error:
            raise InvalidError(f"invalid: {where}: cannot read `{path}`: {error.strerror}") from error
        self.files[location] = data
        return data

    def dense(self, sparse: onnx.SparseTensorProto) -> Array:
        """A sparse tensor, densified. Raises InvalidError."""
        where = f"sparse tensor `{sparse.values.name}`"
        values, indices = self.array(sparse.values), self.array(sparse.indices)
        shape = tuple(int(d) for d in sparse.dims)
        if any(d < 0 for d in shape) or math.prod(shape) * values.dtype.itemsize > MAX_BYTES >> 5:
            raise InvalidError(f"invalid: {where}: shape {list(shape)} is negative or larger than 32 GiB")
        result = np.zeros(shape, values.dtype)
        try:
            if indices.ndim == 2:
                result[tuple(indices.T)] = values
            else:
                result.reshape(-1)[indices] = values
        except (IndexError, ValueError) as error:
            raise InvalidError(f"invalid: {where}: indices do not fit shape {list(shape)}: {_line(error)}") from error
        return result


def load(source: Source) -> tuple[onnx.ModelProto, Store]:
    """Parse a model; external data are not read. Raises InvalidError for anything that is not an ONNX model."""
    if isinstance(source, onnx.ModelProto):
        return source, Store(None)
    if isinstance(source, bytes):
        return _parse(source, "model"), Store(None)
    path = Path(source)
    if path.is_dir():
        raise InvalidError(f"invalid: `{path}`: expected a model, got a folder; an artifact cannot be compiled again")
    if not path.is_file():
        raise InvalidError(f"invalid: `{path}`: no such file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidError(f"invalid: `{path}`: cannot be read: {error.strerror}") from error
    return _parse(data, str(path)), Store(path.parent)


def _parse(data: bytes, label: str) -> onnx.ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:
        raise InvalidError(f"invalid: `{label}`: not an ONNX model, or truncated: {_line(error)}") from error
    if not model.HasField("graph") or not model.opset_import:
        raise InvalidError(f"invalid: `{label}`: not an ONNX model: it has no graph or no operator-set version")
    return model


def _dtype(tensor: TensorProto, where: str) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        return dtype
    except (KeyError, TypeError):
        raise InvalidError(f"invalid: {where}: unknown element type {tensor.data_type}") from None


def _line(error: BaseException) -> str:
    """The first line of an exception's message, for one-line errors."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
