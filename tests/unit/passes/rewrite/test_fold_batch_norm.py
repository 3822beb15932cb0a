# SPDX-License-Identifier: Apache-2.0
"""Factors and sums by channel that `canonicalize` folds into convolutions."""

import numpy as np
import pytest

from .canonicalize_cases import CONV, checked, computing, function, names

BATCH_NORM = f"""%v = conv(%x, %w{{bias}}) {CONV} : f32[1,3,5,5]
  %m = mul(%v, %s) : f32[1,3,5,5]
  %y = add(%m, %t) : f32[1,3,5,5]"""
BATCH_NORM_PARAMS = (
    "%x: f32[1,2,5,5] {role = input}, %w: f32[3,2,3,3] {role = weight}, %b: f32[3] {role = weight}, "
    "%s: f32[1,3,1,1] {role = weight}, %t: f32[3,1,1] {role = weight}"
)


def batch_norm_weights() -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(2)
    shapes = {"w": (3, 2, 3, 3), "b": (3,), "s": (1, 3, 1, 1), "t": (3, 1, 1)}
    return {name: numbers.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("bias", ["", ", %b"])
def test_batch_norm_folds_into_conv(bias):
    text = function(BATCH_NORM.replace("{bias}", bias), "f32[1,3,5,5]", BATCH_NORM_PARAMS)
    module = checked(text, batch_norm_weights())
    assert computing(module) == ["conv"] and len(module.main.ops[-1].operands) == 3
    assert [w.shape for w in module.weights.values()] == [(3, 2, 3, 3)]


@pytest.mark.parametrize(
    ("name", "sides"), [("sub", "%v, %s"), ("div", "%v, %s"), ("mul", "%s, %v"), ("add", "%s, %v")]
)
def test_other_forms_fold(name, sides):
    body = f"%v = conv(%x, %w) {CONV} : f32[1,3,5,5]\n%y = {name}({sides}) : f32[1,3,5,5]"
    assert computing(checked(function(body, "f32[1,3,5,5]", BATCH_NORM_PARAMS), batch_norm_weights())) == ["conv"]


@pytest.mark.parametrize(
    "body",
    [
        # Another reader of the convolution, or the convolution is returned itself.
        f"%v = conv(%x, %w) {CONV} : f32[1,3,5,5]\n%m = mul(%v, %s) : f32[1,3,5,5]\n%y = add(%m, %v) : f32[1,3,5,5]",
        # The constant on the left of a difference or quotient.
        f"%v = conv(%x, %w) {CONV} : f32[1,3,5,5]\n%y = sub(%s, %v) : f32[1,3,5,5]",
        # Constant along another axis than the channels.
        f"%v = conv(%x, %w) {CONV} : f32[1,3,5,5]\n%c = constant() {{value = dense<f32[5]>[1.0,2.0,3.0,4.0,5.0]}} : f32[5]\n"
        "%y = mul(%v, %c) : f32[1,3,5,5]",
        # The weights have another reader.
        f"%v = conv(%x, %w) {CONV} : f32[1,3,5,5]\n%u = conv(%v, %z) {CONV} : f32[1,2,5,5]\n"
        f"%r = conv(%u, %w) {CONV} : f32[1,3,5,5]\n%y = mul(%r, %s) : f32[1,3,5,5]",
        # Weights, or a bias, that are not known.
        f"%v = conv(%x, %k) {CONV} : f32[1,3,5,5]\n%y = add(%v, %s) : f32[1,3,5,5]",
        f"%v = conv(%x, %w, %a) {CONV} : f32[1,3,5,5]\n%y = add(%v, %s) : f32[1,3,5,5]",
        f"%v = conv(%x, %w, %a) {CONV} : f32[1,3,5,5]\n%y = mul(%v, %s) : f32[1,3,5,5]",
    ],
)
def test_what_does_not_fold(body):
    inputs = "%z: f32[2,3,3,3] {role = input}, %k: f32[3,2,3,3] {role = input}, %a: f32[3] {role = input}"
    params = f"{BATCH_NORM_PARAMS}, {inputs}"
    weights = batch_norm_weights()
    module = checked(function(body, "f32[1,3,5,5]", params), weights)
    assert names(module) == [line.split("= ")[1].split("(")[0] for line in body.splitlines()]


def test_a_convolution_that_another_one_was_merged_with_has_its_readers_too():
    body = f"""%v = conv(%x, %w) {CONV} : f32[1,3,5,5]
      %u = conv(%x, %w) {CONV} : f32[1,3,5,5]
      %a = mul(%v, %s) : f32[1,3,5,5]
      %d = add(%u, %t) : f32[1,3,5,5]
      %y = sub(%a, %d) : f32[1,3,5,5]"""
    module = checked(function(body, "f32[1,3,5,5]", BATCH_NORM_PARAMS), batch_norm_weights())
    assert computing(module) == ["conv", "mul", "add", "sub"]


def test_infinite_factor_does_not_fold():
    weights = batch_norm_weights()
    weights["s"][0, 1] = 0
    body = f"%v = conv(%x, %w) {CONV} : f32[1,3,5,5]\n%y = div(%v, %s) : f32[1,3,5,5]"
    assert names(checked(function(body, "f32[1,3,5,5]", BATCH_NORM_PARAMS), weights)) == ["conv", "div"]


def test_grouped_and_transposed_convolutions():
    body = """%v = conv(%x, %w) {strides=[1],pads=[0,0],dilations=[1],group=2} : f32[1,4,6]
      %m = mul(%v, %s) : f32[1,4,6]
      %y = add(%m, %s) : f32[1,4,6]"""
    params = "%x: f32[1,2,8] {role = input}, %w: f32[4,1,3] {role = weight}, %s: f32[4,1] {role = weight}"
    weights = {
        "w": np.arange(12, dtype=np.float32).reshape(4, 1, 3),
        "s": np.array([[1.5], [2], [3], [-4]], np.float32),
    }
    assert computing(checked(function(body, "f32[1,4,6]", params), weights)) == ["conv"]
