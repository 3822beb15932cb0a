# SPDX-License-Identifier: Apache-2.0
"""Seeded random weights for models stored without theirs.

Two kinds: models whose initializers are external data in a file that is not stored, and the light models of the onnx
wheel, whose weights are ConstantOfShape nodes. Same bytes on every machine for one seed, but for the last of three
digits of the light models' batch statistics, which onnxruntime computes.
"""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

Array = npt.NDArray[Any]


def values(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Weights that keep activations finite and varied: He-normal matrices, scales and variances near 1."""
    lower = name.lower()
    if "running_var" in lower:
        return rng.uniform(0.5, 1.5, shape)
    if "running_mean" in lower or lower.endswith("bias") or len(shape) == 0:
        return rng.normal(0.0, 0.05, shape)
    if len(shape) == 1:
        return rng.uniform(0.9, 1.1, shape)
    fan_in = int(np.prod(shape[1:]))
    if "embed" in lower or "wte" in lower or "wpe" in lower:
        return rng.normal(0.0, 0.02, shape)
    return rng.normal(0.0, np.sqrt(2.0 / fan_in), shape)


def _rng(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def write_external(model_path: Path, out: Path, seed: int = 0) -> Path:
    """Copy the model to folder `out` and write its weights' file beside it, unless both are there; returns the copy."""
    out.mkdir(parents=True, exist_ok=True)
    copy = out / model_path.name
    model = onnx.load(str(model_path), load_external_data=False)
    external = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    info = [{e.key: e.value for e in t.external_data} for t in external]
    if copy.exists() and all((out / i["location"]).exists() for i in info):
        return copy
    if external:
        target = out / info[0]["location"]
        part = target.with_suffix(f".part{os.getpid()}")
        with open(part, "wb") as file:
            for tensor, where in zip(external, info):
                data = values(tensor.name, tuple(tensor.dims), _rng(tensor.name, seed)).astype(np.float32)
                file.seek(int(where["offset"]))
                file.write(data.tobytes())
        part.replace(target)
    shutil.copy(model_path, copy)
    return copy


def _light_values(
    name: str, shape: tuple[int, ...], uses: list[tuple[str, int]], rng: np.random.Generator, residual: bool
) -> Array:
    """As `values`, for names that tell nothing: by the op and operand that reads the weight.

    Scales are smaller in a residual network, whose sums would otherwise grow until the softmax says 1 and 0 only.
    """
    for op, index in uses:
        if op == "BatchNormalization":
            low, high = {1: (0.6, 0.8) if residual else (0.9, 1.1), 4: (0.5, 1.5)}.get(index, (-0.05, 0.05))
            return rng.uniform(low, high, shape)
        if op == "Mul":
            return rng.uniform(0.9, 1.1, shape)
    if len([d for d in shape if d > 1]) <= 1:
        return rng.normal(0.0, 0.05, shape)
    return values(name, shape, rng)


def picture(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Images [n, c, h, w] of 4 by 4 patches of random colors, with noise; noise alone looks all the same to a network
    that takes means over the image."""
    patches = rng.normal(size=(*shape[:-2], 4, 4))
    rows, columns = (np.arange(size) * 4 // size for size in shape[-2:])
    return patches[..., rows[:, None], columns] + rng.normal(0, 0.5, shape)


def calibrate(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Give every BatchNormalization the mean and variance that its channels have for one picture.

    With made-up statistics the outputs of a deep network hardly depend on its input, or its softmax says 1 and 0 only.
    In one run all layers are normalized by what they compute, as InstanceNormalization does for a batch of one.
    """
    import onnxruntime

    nodes = [n for n in model.graph.node if n.op_type == "BatchNormalization"]
    if not nodes:
        return
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    for node in probe.graph.node:
        if node.op_type == "BatchNormalization":
            node.op_type = "InstanceNormalization"
            del node.input[3:], node.attribute[:]
    # onnxruntime accepts no initializer of an old model that nothing reads.
    read = {name for node in probe.graph.node for name in node.input}
    kept = [t for t in probe.graph.initializer if t.name in read]
    stored = {t.name: t for t in model.graph.initializer}
    images = [i for i in probe.graph.input if i.name not in stored]
    del probe.graph.initializer[:], probe.graph.input[:]
    probe.graph.initializer.extend(kept)
    probe.graph.input.extend(images)
    probe.graph.output.extend(onnx.helper.make_empty_tensor_value_info(node.input[0]) for node in nodes)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    image = session.get_inputs()[0]
    before = session.run([n.input[0] for n in nodes], {image.name: picture(rng, tuple(image.shape)).astype(np.float32)})
    for node, data in zip(nodes, before):
        for name, numbers in ((node.input[3], data.mean((0, 2, 3))), (node.input[4], data.var((0, 2, 3)))):
            rounded = np.array([float(f"{number:.2e}") for number in numbers], np.float32)
            stored[name].CopyFrom(onnx.numpy_helper.from_array(rounded, name))


def write_light(model_path: Path, out: Path, seed: int = 0) -> Path:
    """Write a light model to folder `out` with seeded initializers for its ConstantOfShape weights; returns its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / model_path.name
    if path.exists():
        return path
    model = onnx.load(str(model_path))
    graph = model.graph
    stored = {t.name: t for t in graph.initializer}
    fillers = [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in stored]
    names = {n.output[0] for n in fillers}
    passing = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Unsqueeze" and n.input[0] in names}
    residual = any(n.op_type == "Sum" for n in graph.node)
    uses: dict[str, list[tuple[str, int]]] = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            uses.setdefault(passing.get(name, name), []).append((node.op_type, index))
    for node in fillers:
        name = node.output[0]
        shape = tuple(int(d) for d in onnx.numpy_helper.to_array(stored[node.input[0]]))
        data = _light_values(name, shape, uses.get(name, []), _rng(name, seed), residual).astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    # The small stored vectors (scales, means, variances) are constant as well.
    for tensor in list(stored.values()):
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims:
            data = _light_values(
                tensor.name, tuple(tensor.dims), uses.get(tensor.name, []), _rng(tensor.name, seed), residual
            ).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(data, tensor.name))
    kept = [n for n in graph.node if not (n.op_type == "ConstantOfShape" and n.output[0] in names)]
    del graph.node[:]
    graph.node.extend(kept)
    calibrate(model, _rng(model_path.stem, seed))
    part = path.with_suffix(f".part{os.getpid()}")
    onnx.save(model, str(part), format="protobuf")
    part.replace(path)
    return path
