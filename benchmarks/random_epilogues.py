# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models drawn from a seed: one producer, such as a convolution, and up to five steps that a compiler may fuse.

`draw(seed)` gives a model, inputs for it and tolerances; `options(seed)` how to compile it. Data are small dyadic numbers.
Ops whose results jump (rounding, comparison, quantization) see values only that every implementation gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from memc.ir.core import Array

T = TypeVar("T")

TYPES: dict[str, tuple[Any, int]] = {
    "f32": (np.float32, TensorProto.FLOAT),
    "f16": (np.float16, TensorProto.FLOAT16),
    "bf16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16),
    "f64": (np.float64, TensorProto.DOUBLE),
    "i8": (np.int8, TensorProto.INT8),
    "u8": (np.uint8, TensorProto.UINT8),
    "i32": (np.int32, TensorProto.INT32),
    "i64": (np.int64, TensorProto.INT64),
    "bool": (np.bool_, TensorProto.BOOL),
}
FLOATS = ("f32", "f16", "bf16", "f64")
WIDE = ("f32", "f64", "i32", "i64")
"""Types in which sums of the data are exact."""

OPSET = 22

ERRORS = {"f32": 1e-4, "f64": 1e-4, "f16": 2e-2, "bf16": 8e-2}
"""By the narrowest type of float that a model computes with: what may differ, relative to its largest value."""


class Tolerances(NamedTuple):
    """What may differ between implementations."""

    relative: float
    """To the largest value inside the model, per element."""
    integers: float = 0.0
    """Units by which integers may differ."""


class Case(NamedTuple):
    """A model to compile and run."""

    model: onnx.ModelProto
    inputs: dict[str, Array]
    tolerances: Tolerances


class Net:
    """A model being drawn. `last` is the value that the next node reads, of type `type` and shape `shape`."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.initializers: dict[str, Array] = {}
        self.batch = self.pick((1, 1, 2, 3, 7))
        self.last, self.type, self.shape = "", "f32", (1,)
        self.exact = True
        """Whether every implementation gives the bits of `last`."""
        self.narrowest = "f64"
        self.half = False
        """Whether it may be compiled in half precision: nothing is exact then."""

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, one_in: int) -> bool:
        return self.number(1, one_in) == 1

    def pick(self, items: Sequence[T]) -> T:
        return items[self.number(0, len(items) - 1)]

    def data(self, shape: Sequence[int], type: str) -> Array:
        whole = self.rng.integers(0 if type in ("u8", "bool") else -6, 2 if type == "bool" else 7, tuple(shape))
        return np.asarray(whole / 4 if type in FLOATS else whole).astype(TYPES[type][0])

    def input(self, shape: Sequence[int], type: str) -> str:
        """A new input, which is what nodes read next."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.data(shape, type)
        self.last, self.shape = name, tuple(shape)
        self.become(type)
        return name

    def become(self, type: str) -> None:
        """The type of what nodes read next."""
        self.type = type
        order = ("bf16", "f16", "f32", "f64")
        if type in order and order.index(type) < order.index(self.narrowest):
            self.narrowest = type
        self.exact = self.exact and not (self.half and type in FLOATS or type in ("f16", "bf16"))

    def const(self, value: Any, type: str | None = None) -> str:
        """A weight: an array, or data of a shape."""
        name = f"w{len(self.initializers)}"
        drawn = self.data(value, type or self.type) if isinstance(value, tuple) else value
        self.initializers[name] = np.asarray(drawn)
        return name

    def ints(self, *values: int) -> str:
        return self.const(np.array(values, np.int64))

    def op(self, op: str, inputs: Sequence[str], outputs: int = 1, exact: bool = True, **attrs: Any) -> str:
        """A node, whose first result is what nodes read next. `exact`: whether it gives the same bits everywhere, in types
        that are wide enough."""
        names = [f"v{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        self.last = names[0]
        self.exact = self.exact and exact and (self.type in WIDE or self.type not in FLOATS)
        return names[0]

    def infer_shape(self) -> None:
        """Ask onnx for the shape of `last`."""
        inferred = onnx.shape_inference.infer_shapes(self.model(), strict_mode=True, data_prop=True)
        type = inferred.graph.output[0].type.tensor_type
        self.shape = tuple(d.dim_value for d in type.shape.dim)

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "epilogue",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in self.inputs.items()
            ],
            [helper.make_tensor_value_info(self.last, TYPES[self.type][1], None)],
            [
                numpy_helper.from_array(np.ascontiguousarray(a).reshape(a.shape), n)
                for n, a in self.initializers.items()
            ],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def options(seed: int) -> dict[str, Any]:
    """How to compile the model of a seed."""
    rng = np.random.default_rng((seed, 1))
    precision = str(rng.choice(["f32", "f32", "f32", "f16", "bf16"]))
    kernels = str(rng.choice(["auto", "generated"]))
    return {"opt_level": int(rng.choice([0, 1, 2, 2, 2])), "kernels": kernels, "precision": precision}


def draw(seed: int) -> Case:
    """The model of a seed, inputs, and what may differ where `options(seed)` compile it."""
    from random_epilogue_producers import PRODUCERS
    from random_epilogue_steps import EPILOGUES

    precision = options(seed)["precision"]
    for attempt in range(100):
        net = Net(1000 * seed + attempt)
        net.half = precision != "f32"
        net.pick(PRODUCERS)(net)
        try:
            net.infer_shape()
        except onnx.shape_inference.InferenceError:  # A window larger than what it slides over.
            continue
        if 0 in net.shape or not net.nodes:
            continue
        for _ in range(net.number(1, 5)):
            net.pick(EPILOGUES)(net)
        narrowest = min(net.narrowest, precision if net.half else "f64", key=("bf16", "f16", "f32", "f64").index)
        return Case(net.model(), net.inputs, Tolerances(ERRORS[narrowest], 1.0 if not net.exact else 0.0))
    raise ValueError(f"seed {seed} gives no model")
