# SPDX-License-Identifier: Apache-2.0
"""A model that was imported for training, without the data of what is trained: for artifacts that hold newer ones."""

from __future__ import annotations

from collections.abc import Collection

import onnx
from onnx import TensorProto

from .constant_weights import store_constants
from .load import Source, load
from .separate_weights import separate

DATA_FIELDS = (
    "raw_data",
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "external_data",
    "data_location",
)


def without_data(source: Source, names: Collection[str]) -> bytes:
    """The model with the stored tensors `names` reduced to name, type and shape, and all other data inside.

    Names are those of training, where joined tensors are separate (`separate_weights.py`) and Constant nodes may be stored
    (`constant_weights.py`).

    Raises InvalidError for a model that cannot be read.
    """
    loaded, store = load(source)
    model = onnx.ModelProto()
    model.CopyFrom(separate(store_constants(loaded)))
    for tensor in model.graph.initializer:
        if tensor.name in names:
            for field in DATA_FIELDS:
                tensor.ClearField(field)
        elif tensor.data_location == TensorProto.EXTERNAL:
            tensor.CopyFrom(onnx.numpy_helper.from_array(store.array(tensor), tensor.name))
    return bytes(model.SerializeToString())
