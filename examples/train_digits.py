# SPDX-License-Identifier: Apache-2.0
"""Trains a small network from scratch on scikit-learn's handwritten digits, without a memory budget and with one under
which ops are recomputed, and checks what it has learned.

    python examples/train_digits.py [mlp|dropout|cnn] [FOLDER]

Writes FOLDER/digits.onnx with untrained weights and FOLDER/trained.onnx (the current folder by default). Needs
scikit-learn, whose package holds the data: 1,797 images of 8x8 pixels. A fifth of them is held out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import memc

CLASSES = 10
HELD_OUT = 360


@dataclass(frozen=True)
class Digits:
    """Images f32[n,1,8,8] from 0 to 1 and their digits i64[n], for training and for testing."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_digits(seed: int = 0) -> Digits:
    """The data set, shuffled and split."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    x = (images[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    t = labels[order].astype(np.int64)
    return Digits(x[HELD_OUT:], t[HELD_OUT:], x[:HELD_OUT], t[:HELD_OUT])


class Weights:
    """Initializers of a model: normal of variance 2 / fan-in (He et al. 2015), and constants."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.tensors: list[onnx.TensorProto] = []

    def normal(self, name: str, *shape: int, inputs: int) -> str:
        return self._add(name, self.random.standard_normal(shape) * np.sqrt(2 / inputs))

    def full(self, name: str, size: int, value: float) -> str:
        return self._add(name, np.full(size or (), value))

    def _add(self, name: str, array: np.ndarray) -> str:
        self.tensors.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name


def mlp(weights: Weights, dropout: float = 0.0) -> list[onnx.NodeProto]:
    """64 pixels, six hidden layers of 48, 10 scores."""
    nodes = [helper.make_node("Flatten", ["x"], ["h0"])]
    if dropout:
        weights.full("ratio", 0, dropout)
    widths = [64, *[48] * 6, CLASSES]
    for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:]), 1):
        w = weights.normal(f"fc{layer}.weight", outputs, inputs, inputs=inputs)
        b = weights.full(f"fc{layer}.bias", outputs, 0)
        last = layer == len(widths) - 1
        nodes.append(helper.make_node("Gemm", [f"h{layer - 1}", w, b], ["y" if last else f"z{layer}"], transB=1))
        if not last:
            nodes.append(helper.make_node("Relu", [f"z{layer}"], [f"r{layer}" if dropout else f"h{layer}"]))
            if dropout:
                nodes.append(helper.make_node("Dropout", [f"r{layer}", "ratio"], [f"h{layer}"]))
    return nodes


def mlp_with_dropout(weights: Weights) -> list[onnx.NodeProto]:
    """The same, which drops a twentieth of every hidden layer in training."""
    return mlp(weights, dropout=0.05)


def cnn(weights: Weights) -> list[onnx.NodeProto]:
    """Two blocks of convolution, batch normalization, ReLU and max pooling, then a linear layer."""
    nodes = []
    value = "x"
    for block, (inputs, outputs) in enumerate([(1, 16), (16, 32)], 1):
        w = weights.normal(f"conv{block}.weight", outputs, inputs, 3, 3, inputs=9 * inputs)
        statistics = [
            weights.full(f"bn{block}.{name}", outputs, start)
            for name, start in (("weight", 1), ("bias", 0), ("mean", 0), ("variance", 1))
        ]
        nodes += [
            helper.make_node("Conv", [value, w], [f"c{block}"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [f"c{block}", *statistics], [f"n{block}"]),
            helper.make_node("Relu", [f"n{block}"], [f"r{block}"]),
            helper.make_node("MaxPool", [f"r{block}"], [f"p{block}"], kernel_shape=[2, 2], strides=[2, 2]),
        ]
        value = f"p{block}"
    w, b = weights.normal("fc.weight", CLASSES, 128, inputs=128), weights.full("fc.bias", CLASSES, 0)
    nodes += [helper.make_node("Flatten", [value], ["flat"]), helper.make_node("Gemm", ["flat", w, b], ["y"], transB=1)]
    return nodes


MODELS = {"mlp": mlp, "dropout": mlp_with_dropout, "cnn": cnn}
BATCHES = {"mlp": 128, "dropout": 128, "cnn": 32}
EPOCHS = {"mlp": 40, "dropout": 60, "cnn": 8}


def build_model(kind: str, seed: int = 0) -> onnx.ModelProto:
    """An untrained model from x f32[batch,1,8,8] to scores y f32[batch,10]."""
    weights = Weights(seed)
    nodes = MODELS[kind](weights)
    graph = helper.make_graph(
        nodes,
        kind,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", CLASSES])],
        weights.tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def batches(digits: Digits, batch: int, epochs: int, seed: int = 1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Whole batches, in a new order each epoch."""
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        order = random.permutation(len(digits.images))
        for start in range(0, len(order) - batch + 1, batch):
            chosen = order[start : start + batch]
            yield digits.images[chosen], digits.labels[chosen]


def train(step: Any, digits: Digits, epochs: int, rate: float = 2e-3) -> list[float]:
    """The losses of all steps; the learning rate falls to zero along half a cosine."""
    batch = step.input("x").shape[0]
    steps = epochs * (len(digits.images) // batch)
    losses = []
    for number, (x, labels) in enumerate(batches(digits, batch, epochs)):
        step.learning_rate = rate * (1 + np.cos(np.pi * number / steps)) / 2
        losses.append(step(x, labels))
    return losses


def accuracy(model: Path, digits: Digits) -> float:
    """Share of the held-out images that the trained model tells right, run by memc."""
    executable = memc.compile(model, dims={"batch": len(digits.test_images)}).load()
    scores = np.asarray(executable(digits.test_images)["y"])
    return float((scores.argmax(1) == digits.test_labels).mean())


def main(kind: str = "cnn", folder: Path = Path(".")) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(build_model(kind), folder / "digits.onnx")
    digits = load_digits()
    how = memc.BuildGradient(loss="softmax-cross-entropy", optimizer="adam")
    curves: list[list[float]] = []
    budget = None
    for _ in range(2):
        compilation = memc.compile(
            folder / "digits.onnx", dims={"batch": BATCHES[kind]}, train=how, memory_budget=budget
        )
        step = compilation.load()
        losses = train(step, digits, EPOCHS[kind])
        curves.append(losses)
        report = compilation.report
        print(f"peak {report.peak_bytes:,} bytes, {len(losses)} steps, loss {losses[0]:.3f} to {losses[-1]:.4f}")
        if (found := report.recomputation) is not None:
            print(
                f"{found.ops} ops are recomputed, which adds {found.added_percent:.1f} % of the time in the cost model"
            )
        budget = 9 * report.peak_bytes // 10
    step.export_onnx(folder / "trained.onnx")
    reached = accuracy(folder / "trained.onnx", digits)
    print(f"{kind}: {100 * reached:.2f} % of {len(digits.test_labels)} held-out digits are right")
    print(f"the losses are {'the same' if curves[0] == curves[1] else 'NOT THE SAME'}, bit for bit")
    return 0 if curves[0] == curves[1] and reached > 0.97 else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=sorted(MODELS), default="cnn", help="the network (default: cnn)")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("."), help="where models are written")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    sys.exit(main(given.kind, given.folder))
