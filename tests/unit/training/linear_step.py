# SPDX-License-Identifier: Apache-2.0
"""Training steps of a linear model, and the optimizers in f64 that they are held against."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.passes.training.build_gradient import BuildGradient

RNG = np.random.default_rng(0)


W = RNG.normal(size=(3, 2)).astype(np.float32)


B = RNG.normal(size=2).astype(np.float32)


X = RNG.normal(size=(4, 3)).astype(np.float32)


T = RNG.normal(size=(4, 2)).astype(np.float32)


RATE = 0.1


def linear() -> onnx.ModelProto:
    """y = x W + b."""
    nodes = [helper.make_node("MatMul", ["x", "W"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(W, "W"), numpy_helper.from_array(B, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def compiled(level: int = 2, batch: int = 4, **options: Any) -> memc.Executable:
    train = BuildGradient(loss="mse", **options)
    step = memc.compile(linear(), dims={"batch": batch}, train=train, opt_level=level).load()
    step.learning_rate = RATE
    return step


def mse(w: np.ndarray, b: np.ndarray, x: np.ndarray = X, t: np.ndarray = T) -> tuple[float, np.ndarray, np.ndarray]:
    """Loss and gradients in f64."""
    distance = x @ w + b - t
    g = 2 * distance / distance.size
    return float((distance**2).mean()), x.T @ g, g.sum(0)


class Reference:
    """An optimizer in f64, as PyTorch states it."""

    def __init__(self, kind: str, momentum=0.0, nesterov=False, weight_decay=0.0, clip_norm=None) -> None:
        self.kind, self.momentum, self.nesterov, self.decay, self.clip = (
            kind,
            momentum,
            nesterov,
            weight_decay,
            clip_norm,
        )
        self.weights = [W.astype(np.float64), B.astype(np.float64)]
        self.states = [[np.zeros_like(w), np.zeros_like(w)] for w in self.weights]
        self.steps = 0

    def step(self) -> float:
        self.steps += 1
        loss, *gradients = mse(*self.weights)
        if self.clip is not None:
            norm = np.sqrt(sum((g**2).sum() for g in gradients))
            gradients = [g * min(1, self.clip / (norm + 1e-6)) for g in gradients]
        for w, g, state in zip(self.weights, gradients, self.states):
            if self.kind == "sgd":
                g = g + self.decay * w
                state[0][:] = self.momentum * state[0] + g
                w -= RATE * (g + self.momentum * state[0] if self.nesterov else state[0])
                continue
            if self.kind == "adam":
                g = g + self.decay * w
            else:
                w -= RATE * self.decay * w
            state[0][:] = 0.9 * state[0] + 0.1 * g
            state[1][:] = 0.999 * state[1] + 0.001 * g * g
            first, second = state[0] / (1 - 0.9**self.steps), state[1] / (1 - 0.999**self.steps)
            w -= RATE * first / (np.sqrt(second) + 1e-8)
        return loss


OPTIONS = [
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "momentum": 0.9},
    {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"optimizer": "adam", "weight_decay": 0.1},
    {"optimizer": "adamw", "weight_decay": 0.1},
    {"optimizer": "sgd", "clip_norm": 0.2},
]
