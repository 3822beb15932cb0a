# SPDX-License-Identifier: Apache-2.0
"""ONNX graphs drawn from a seed, with what onnxruntime computes for them node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from memc.ir.core import Array

T = TypeVar("T")

OPSETS = (13, 14, 17, 18, 20)
NAMES = (
    "self",
    "0",
    "1",
    "7",
    "workspace.0",
    "x.0",
    "a:0",
    "b/c d",
    "é",
    "%2",
    'q"',
    "\\",
    "output.0",
    "w.bias",
    "a0",
    "main",
)
EXTENTS = (1, 2, 3, 4, 5, 8, 16, 1, 0)
STEP = "Floor Ceil Round Sign".split()
COMPARE = "Equal Less Greater LessOrEqual GreaterOrEqual".split()
EXACT = set(
    "Abs Neg Relu Identity Dropout Add Sub Mul Max Min ReduceSum ReduceMax ReduceMin ReduceL1 MatMul Gemm Conv".split()
)
EXACT |= set(STEP) | set(COMPARE) | {"Clip", "Where", "Cast", "Pad", "ReduceSumSquare", "MaxPool", "CumSum"}
MOVES = set("Reshape Transpose Slice Concat Split Squeeze Unsqueeze Flatten Expand Tile Gather GatherElements".split())
MOVES |= {"ScatterElements", "ScatterND", "GatherND", "DepthToSpace", "And", "Or", "Xor", "Not", "ArgMax", "TopK"}
JUMPS = set(STEP) | set(COMPARE) | {"ArgMax", "TopK"}
"""Ops whose results jump: they see values only that every implementation gives the same bits (EXACT and MOVES)."""


@dataclass
class Item:
    """A value that later nodes may read."""

    name: str
    array: Array
    exact: bool
    """Whether every implementation gives these bits."""


class Drawn:
    """A graph being drawn from a seed."""

    def __init__(self, seed: int, steps: Sequence[Callable[[Drawn], None]]) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.initializers: dict[str, Array] = {}
        self.items: list[Item] = []
        self.used: set[str] = set()
        self.counts: Counter[str] = Counter()
        for _ in range(self.number(1, 4)):
            self.source(self.data(self.shape(), self.pick(("f4", "f4", "f4", "f2", "i8", "i4", "?"))), True)
        wanted = self.number(3, 25)
        for _ in range(4 * wanted):
            if len(self.nodes) < wanted:
                self.pick(steps)(self)
        made = [i for i in self.items if i.name not in self.initializers and i.name not in self.inputs]
        outputs = {i.name: i for i in made[-2:]} | {i.name: i for i in self.items if self.chance(12)}
        self.outputs = {name: item.array for name, item in outputs.items()}

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, one_in: int) -> bool:
        return self.number(1, one_in) == 1

    def pick(self, items: Sequence[T]) -> T:
        return items[self.number(0, len(items) - 1)]

    def name(self, stem: str) -> str:
        free = [n for n in NAMES if n not in self.used]
        chosen = self.pick(free) if free and self.chance(3) else f"{stem}{len(self.used)}"
        self.used.add(chosen)
        return chosen

    def shape(self, least: int = 0) -> tuple[int, ...]:
        return tuple(self.pick(EXTENTS) for _ in range(self.number(least, 4)))

    def data(self, shape: tuple[int, ...], kind: str) -> Array:
        """Small dyadic numbers, exact in every float type."""
        whole = self.rng.integers(-12, 13, shape)
        return np.asarray(whole / 4 if kind[0] == "f" else whole > 0 if kind == "?" else whole, dtype=kind)

    def source(self, array: Array, as_input: bool = False) -> str:
        """A new input or initializer; returns its name. Few tensors of integers are offered to other nodes."""
        name = self.name("x" if as_input else "w")
        (self.inputs if as_input else self.initializers)[name] = array
        if as_input or array.dtype.kind == "f" or self.chance(6):
            self.items.append(Item(name, array, True))
        return name

    def any(self, kinds: str = "f", rank: int = 0, exact: bool = False) -> Item | None:
        """A value of these kinds of element type and at least this rank, the latest ones more often."""
        found = [
            i for i in self.items if i.array.dtype.kind in kinds and i.array.ndim >= rank and (i.exact or not exact)
        ]
        return self.pick(found[-4:] if found and self.chance(2) else found) if found else None

    def fitting(self, item: Item) -> str:
        """A second operand: one of the pool that broadcasts, or new data of a shape that does."""
        found = [i.name for i in self.items if i.array.dtype == item.array.dtype and _fits(i.array, item.array)]
        if found and not self.chance(3):
            return str(self.pick(found))
        keep = [d if self.chance(2) else 1 for d in item.array.shape]
        return self.source(self.data(tuple(keep[self.number(0, len(keep)) :]), item.array.dtype.str[1:]))

    def add(self, op: str, inputs: list[str], outputs: int = 1, **attrs: object) -> None:
        """Append a node if onnxruntime runs it and its results are moderate."""
        pool = {i.name: i for i in self.items}
        items = [pool[n] if n in pool else Item(n, self.initializers[n], True) for n in inputs]
        if op in ("ReduceMean", "AveragePool", "GlobalAveragePool") and not items[0].array.size:
            return  # undefined
        if op in JUMPS and not all(i.exact for i in items):
            return
        names = [self.name("v") for _ in range(outputs)]
        node = helper.make_node(op, inputs, names, self.name("n") if self.chance(2) else "", **attrs)
        feeds = {i.name: i.array for i in items}
        try:
            arrays = run_onnxruntime(node, feeds, self.opset)
        except Exception:
            return
        for array in arrays:
            if array.size > 4096 or (array.dtype.kind == "f" and not (np.abs(array) < 1e4).all()):
                return
        self.nodes.append(node)
        self.counts[op] += 1
        for name, array in zip(names, arrays):
            wide = array.astype(np.float64) * 256
            plain = array.dtype.kind != "f" or bool((wide == np.round(wide)).all())
            exact = all(i.exact for i in items) and (op in MOVES or (op in EXACT and plain))
            self.items.append(Item(name, array, exact))

    def proto(self) -> onnx.ModelProto:
        """The model; some of its stored tensors are inputs with defaults, too."""
        infos = [_info(name, array) for name, array in self.inputs.items()]
        shadowed = [name for name in self.initializers if self.rng.integers(0, 6) == 0]
        infos += [_info(name, self.initializers[name]) for name in shadowed]
        return _model(self.nodes, infos, self.initializers, self.outputs, self.opset)


def _fits(a: Array, b: Array) -> bool:
    try:
        return bool(np.prod(np.broadcast_shapes(a.shape, b.shape)) <= 4096)
    except ValueError:
        return False


def _info(name: str, array: Array | None) -> onnx.ValueInfoProto:
    if array is None:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    stored: dict[str, Array],
    outputs: dict[str, Array] | list[str],
    opset: int,
) -> onnx.ModelProto:
    """A model; outputs given by name alone have the type that onnxruntime infers."""
    tensors = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    made = [_info(name, outputs[name] if isinstance(outputs, dict) else None) for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, made, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run_onnxruntime(node: onnx.NodeProto, feeds: dict[str, Array], opset: int) -> list[Array]:
    """The results of one node. Raises whatever onnxruntime raises."""
    names = list(node.output)
    model = _model([node], [_info(name, array) for name, array in feeds.items()], {}, names, opset)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(names, feeds)]
