# SPDX-License-Identifier: Apache-2.0
"""An ONNX model without kinks, in which rounding errors stay small: ReLU and clipping become SiLU, maxima become means.

The gradient of ReLU jumps where its input crosses zero, and that of max pooling where the maximum passes to another
element. Rounding errors decide on which side an input lies that is as close as they are large, and one element decided
otherwise moves a gradient by far more than any rounding. What is left without kinks is the error of the arithmetic.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import NodeProto, helper

KINKED = ("Relu", "Clip", "MaxPool")


def kinks(path: Path) -> int:
    """How many nodes of the model at `path` have a gradient that jumps."""
    nodes = onnx.load(str(path), load_external_data=False).graph.node
    return sum(node.op_type in KINKED for node in nodes)


def write_smooth(path: Path, folder: Path) -> Path:
    """Write the model at `path` to `folder` without its kinks, with its weights beside it; returns the file."""
    model = onnx.load(str(path))
    nodes = [made for node in model.graph.node for made in _smoothed(node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    made = folder / path.name
    onnx.save(model, str(made), save_as_external_data=True, location=f"{path.stem}.weights")
    return made


def _smoothed(node: NodeProto) -> list[NodeProto]:
    if node.op_type == "MaxPool":
        kept = {"auto_pad", "ceil_mode", "kernel_shape", "pads", "strides"}
        pool = helper.make_node("AveragePool", node.input, node.output, node.name)
        pool.attribute.extend(a for a in node.attribute if a.name in kept)
        return [pool]
    if node.op_type in KINKED:
        (x, *_), (y,) = node.input, node.output
        gate = f"{y}.gate"
        return [helper.make_node("Sigmoid", [x], [gate]), helper.make_node("Mul", [x, gate], [y])]
    return [node]
