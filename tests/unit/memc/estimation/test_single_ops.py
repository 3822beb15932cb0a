# SPDX-License-Identifier: Apache-2.0
"""The hand-written rules of PyTorch 2.11's ops, beside what each op alone asked its allocator for (`scripts/torch_single_ops.py`)."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from memc.estimation.eager import Machine, Storage
from memc.estimation.events import Kind
from memc.estimation.frameworks import FRAMEWORKS
from memc.estimation.frameworks.pytorch_2_11 import Context
from memc.estimation.onnx_graph import Node, OnnxGraph, TensorShape
from memc.estimation.workspaces import Workspaces, table

RECORDED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "data/torch_2_11_single_ops.json").read_text()
)


def strides_of(dims: list[int], order: list[int]) -> tuple[int, ...]:
    """Of a tensor whose axes lie in that order."""
    found, step = [0] * len(dims), 1
    for axis in reversed(order):
        found[axis] = step
        step *= dims[axis]
    return tuple(found)


def ruled(row: dict[str, Any]) -> dict[str, list[str]]:
    """The events of the rule, as the recording has them."""
    itemsize = 2 if row["half"] else 4
    names = [f"{sort}{at}" for at, (sort, _) in enumerate(row["operands"])]
    shapes = {
        name: TensorShape(tuple(dims), 8 if sort == "i" else itemsize, sort != "i")
        for name, (sort, dims) in zip(names, row["operands"])
    }
    shapes["y"] = TensorShape(tuple(row["out"]), itemsize)
    parameters = tuple(name for name in names if name[0] == "w")
    graph = OnnxGraph((), shapes, (), ("y",), parameters)
    machine = Machine(lambda name: context.shape(name).nbytes)
    flowing = {name for name in names if name[0] in "xw"}
    context = Context(machine, graph, Workspaces(table("f32")), True, flowing, {}, dict(shapes))
    context.handles |= {"main", "backward", "lt"}
    for at, name in enumerate(names):
        storage = machine.new(shapes[name].nbytes, "inputs")
        order = row["orders"].get(str(at))
        storage.strides = strides_of(row["operands"][at][1], order) if order else None
        machine.bind(name, storage)
    before = len(machine.events)
    node = Node(row["op"], "", tuple(names), ("y",), {**row["attributes"], "outputs": 1})
    FRAMEWORKS["pytorch-2.11"].rules[row["op"]](context, node)
    middle = len(machine.events)
    gradient = machine.new(shapes["y"].nbytes, "temporaries")
    machine.gradients["y"] = machine.hold(gradient)
    machine.unwind()
    events = machine.events.events()
    sizes, numbers = events.sizes(), {}
    found: dict[str, list[str]] = {"forward": [], "backward": []}
    for at in range(before, len(events)):
        block, phase = int(events.blocks[at]), "forward" if at < middle else "backward"
        if block < len(names) or block == gradient.block:
            continue
        if events.kinds[at] == Kind.ALLOCATE:
            numbers[block] = len(numbers)
            found[phase].append(f"+{sizes[block]}")
        else:
            found[phase].append(f"-{numbers[block]}")
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_a_rule_is_what_was_recorded(name: str) -> None:
    row = RECORDED[name]
    assert ruled(row) == {phase: row[phase] for phase in ("forward", "backward")}


def test_an_operand_twice() -> None:
    """Both gradients are made, and added up in the first."""
    row = {"op": "Mul", "operands": [["x", [8, 8]]], "out": [8, 8], "orders": {}, "half": False, "attributes": {}}
    shapes = {"x": TensorShape((8, 8), 4), "y": TensorShape((8, 8), 4)}
    machine = Machine(lambda name: shapes[name].nbytes)
    context = Context(machine, OnnxGraph((), shapes, (), ("y",), ()), Workspaces({}), True, {"x"}, {}, shapes)
    machine.bind("x", machine.new(256, "inputs"))
    FRAMEWORKS["pytorch-2.11"].rules[str(row["op"])](context, Node("Mul", "", ("x", "x"), ("y",), {}))
    machine.gradients["y"] = machine.new(256, "temporaries")
    machine.unwind()
    events = machine.events.events()
    kept: Storage = machine.gradients["x"]
    assert events.live_after()[-1] == 3 * 256 and kept.nbytes == prod((8, 8)) * 4
    assert events.nbytes[events.makes].tolist() == [256] * 5
