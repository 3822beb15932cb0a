# SPDX-License-Identifier: Apache-2.0
"""How far a model's results move when its stored floats do by one rounding.

In a deep net of quantized values a sum that lies halfway between two integers is rounded to either, and the next layers make more
of it. Where one rounding of weights and scales moves a result of onnxruntime as far as another implementation is from it, that
difference says nothing of the implementation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from memc.ir.core import Array
from memc.ir.errors import UnsupportedError
from memc.measure.references import run_onnxruntime

TRIALS = 4

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)

SETTINGS = frozenset({"Resize", "Upsample", "Range", "Pow", "OneHot", "NonMaxSuppression", "RoiAlign", "Dropout"})
"""Ops with floats that are settings: a size, an exponent or a threshold next to another number makes another model."""


def moved_results(source: str | Path | bytes, inputs: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Results of onnxruntime, by output, for the model with all stored floats moved up or down to their neighbours, at random
    with fixed seeds. Empty where that cannot be run."""
    found = []
    for seed in range(TRIALS):
        try:
            model = onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(source)
            if not _move(model, np.random.default_rng(seed)):
                return []
            found.append(run_onnxruntime(model.SerializeToString(), inputs))
        except (UnsupportedError, ValueError, MemoryError, OSError):  # ValueError: protobuf holds 2 GiB.
            return found
    return found


def _move(model: onnx.ModelProto, rng: np.random.Generator) -> int:
    """Move the stored floats of a model; how many tensors it has."""
    settings = {name for node in model.graph.node if node.op_type in SETTINGS for name in node.input}
    count = 0
    for name, tensor in _stored(model.graph):
        if tensor.data_type in FLOATS and name not in settings:
            tensor.CopyFrom(numpy_helper.from_array(_neighbours(numpy_helper.to_array(tensor), rng), tensor.name))
            count += 1
    return count


def _stored(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Initializers and the values of Constant nodes, by name."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
            yield node.output[0], node.attribute[0].t


def _neighbours(array: Array, rng: np.random.Generator) -> Array:
    """Each number's neighbour above or below, but zeros and what is not finite."""
    kind = array.dtype.type
    towards = np.where(rng.integers(0, 2, array.shape) > 0, kind(np.inf), kind(-np.inf)).astype(array.dtype)
    with np.errstate(all="ignore"):
        moved = np.nextafter(array, towards)
    kept = (array == 0) | ~np.isfinite(array) | ~np.isfinite(moved)
    found: Array = np.where(kept, array, moved).astype(array.dtype)
    return found
