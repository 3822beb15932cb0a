# SPDX-License-Identifier: Apache-2.0
"""Broken ONNX and .memir files: cut short, bits flipped, wrong types, huge dims, cycles, nonsense names."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def seed_model(variant: int) -> onnx.ModelProto:
    """A small valid model with weights, views, a convolution and two outputs."""
    generator = np.random.default_rng(variant)
    weights = {
        "w": generator.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "m": generator.standard_normal((4 * 36, 5)).astype(np.float32),
        "shape": np.array([1, -1]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Add", ["r", "c"], ["a"], "add"),
        helper.make_node("Reshape", ["a", "shape"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "m"], ["y"], "product"),
        helper.make_node("Softmax", ["y"], ["p"], "softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5]), helper.make_tensor_value_info("p", 1, [1, 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13 + variant % 8)])


def mutated_onnx(count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """`count` named broken (some by luck still valid) ONNX files."""
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        model = seed_model(number)
        kind = number % 10
        if kind <= 2:
            blob = bytearray(model.SerializeToString())
            if kind == 0:
                yield f"truncated{number}", bytes(blob[: rng.randrange(len(blob))])
            elif kind == 1:
                for _ in range(rng.randrange(1, 20)):
                    blob[rng.randrange(len(blob))] ^= 1 << rng.randrange(8)
                yield f"flipped{number}", bytes(blob)
            else:
                yield f"noise{number}", rng.randbytes(rng.randrange(400))
            continue
        yield f"{_mutate(model, kind, rng)}{number}", model.SerializeToString()


def _mutate(model: onnx.ModelProto, kind: int, rng: random.Random) -> str:
    graph = model.graph
    node = rng.choice(list(graph.node))
    if kind == 3:
        rng.choice(list(graph.input) + list(graph.output)).type.tensor_type.shape.dim[0].dim_value = rng.choice(
            [2**40, 2**62, -5, 2**31]
        )
        return "dims"
    if kind == 4:
        node.input[0] = node.output[0]
        return "cycle"
    if kind == 5:
        node.op_type = rng.choice(["Relu6", "", "Conv", "Loop", "LSTM", "\x00", "MatMul"])
        return "op"
    if kind == 6:
        tensor = rng.choice(list(graph.initializer))
        if rng.random() < 0.5:
            tensor.data_type = rng.choice([0, 8, 11, 99, 7, 6])
        else:
            tensor.dims[0] = rng.choice([2**50, 0, 7, -1])
        return "initializer"
    if kind == 7:
        node.attribute.append(
            helper.make_attribute(rng.choice(["pads", "axis", "group"]), rng.choice([7, "x", [1.5], -99]))
        )
        return "attribute"
    if kind == 8:
        if rng.random() < 0.5:
            node.input[0] = "nowhere"
        else:
            node.output[0] = "x"
        return "names"
    model.opset_import[0].version = rng.choice([0, 1, 6, 99, 2**40])
    return "opset"


SEED_TEXT = """func @main(%x: f32[2,8] {role = input}, %w: f32[8,8] {role = weight}) -> (f32[2,8] {name = "y"}) {
  %0 = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[2,8]
  %1 = relu(%0) : f32[2,8]
  %2 = reshape(%1) {shape = [16]} : f32[16]
  %3 = reshape(%2) {shape = [2, 8]} : f32[2,8]
  %4 = add(%3, %0) : f32[2,8]
  return %4
}
"""


def mutated_memir(count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """`count` named broken (some by luck still valid) IR texts."""
    lines = SEED_TEXT.splitlines()
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        kind = number % 7
        text = SEED_TEXT
        if kind == 0:
            text = text[: rng.randrange(len(text))]
        elif kind == 1:
            position = rng.randrange(len(text))
            text = text[:position] + rng.choice('{}()[]%@:,="$\x01é9') + text[position + 1 :]
        elif kind == 2:
            text = text.replace("8", rng.choice(["9", str(2**70), "-1", "08", "8.5", "1e9"]), rng.randrange(1, 6))
        elif kind == 3:
            text = text.replace(
                rng.choice(["matmul", "relu", "reshape", "add", "f32", "input", "func", "return"]),
                rng.choice(["nonsense", "i64", '"a.b"', "", "conv"]),
                1,
            )
        elif kind == 4:
            chosen = lines.copy()
            rng.shuffle(chosen)
            text = "\n".join(chosen)
        elif kind == 5:
            text = text.replace(f"%{rng.randrange(5)}", f"%{rng.randrange(8)}", 1)
        else:
            text = (
                text.replace("%4 = add(%3, %0)", "%4 = " + "add(" * 3000 + "%3", 1) if rng.random() < 0.3 else text * 2
            )
        yield f"memir{number}", text
