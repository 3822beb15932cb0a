# SPDX-License-Identifier: Apache-2.0
"""Stretches that are no heads: along tokens, images, batch and heads; and what stays whole."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.core import Role
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.passes.chunk.slices import bounds_of
from memc.passes.manager import PassManager

from .slicing import BEFORE, Arrays, chunked, compare, largest


def test_dropout_draws_by_position() -> None:
    text = """\
func @main(%x: f32[64,8] {role = input}, %w: f32[8,400] {role = weight}, %v: f32[400,8] {role = weight}, %seed: i64[] {role = input}) -> f32[64,8] {
  %h = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[64,400]
  %d = dropout(%h, %seed) {ratio = 0.5, stream = 1} : f32[64,400]
  %y = matmul(%d, %v) {transpose_a = false, transpose_b = false} : f32[64,8]
  return %y
}
"""
    module = parse(text, "dropout.memir")
    _, chunks = chunked(module)
    assert not chunks.chosen
    assert any("draws random numbers" in why for why in chunks.missed)


MLP = """\
func @main(%x: f32[2,96,8] {role = input}, %w: f32[8,200] {role = weight}, %b: f32[200] {role = weight}, %v: f32[200,8] {role = weight}) -> f32[2,96,8] {
  %h = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[2,96,200]
  %s = add(%h, %b) : f32[2,96,200]
  %g = gelu(%s) {approximate = "none"} : f32[2,96,200]
  %m = matmul(%g, %v) {transpose_a = false, transpose_b = false} : f32[2,96,8]
  %y = add(%m, %x) : f32[2,96,8]
  return %y
}
"""


def drawn(module: Module) -> Arrays:
    rng = np.random.default_rng(2)
    for p in module.main.params_of(Role.WEIGHT):
        module.weights[p.name] = rng.standard_normal(p.type.shape).astype(np.float32)
    return {p.name: rng.standard_normal(p.type.shape).astype(np.float32) for p in module.main.params_of(Role.INPUT)}


def test_mlp_along_tokens() -> None:
    module = parse(MLP, "mlp.memir")
    inputs = drawn(module)
    made, chunks = chunked(module)
    (found,) = chunks.chosen
    assert found.positions == 192 and not found.splits_sums
    assert largest(made, 200) <= -(-192 // found.slices // 16) * 16
    compare(module, made, inputs, exact=())


def test_convolutions_along_the_batch() -> None:
    text = """\
func @main(%x: f32[8,2,12,12] {role = input}, %w: f32[16,2,3,3] {role = weight}, %v: f32[2,16,3,3] {role = weight}) -> f32[8,2,12,12] {
  %h = conv(%x, %w) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], group = 1} : f32[8,16,12,12]
  %r = relu(%h) : f32[8,16,12,12]
  %y = conv(%r, %v) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], group = 1} : f32[8,2,12,12]
  return %y
}
"""
    module = parse(text, "conv.memir")
    inputs = drawn(module)
    made, chunks = chunked(module)
    (found,) = chunks.chosen
    assert found.positions == 8 and found.slices == 8
    compare(module, made, inputs, exact=())


def test_attention_along_batch_and_heads() -> None:
    text = """\
func @main(%q: f32[2,3,32,4] {role = input}, %k: f32[2,3,32,4] {role = input}, %v: f32[2,3,32,4] {role = input}, %mask: f32[32,32] {role = input}) -> f32[2,3,32,4] {
  %s = matmul(%q, %k) {transpose_a = false, transpose_b = true} : f32[2,3,32,32]
  %m = add(%s, %mask) : f32[2,3,32,32]
  %p = softmax(%m) {axis = 3} : f32[2,3,32,32]
  %y = matmul(%p, %v) {transpose_a = false, transpose_b = false} : f32[2,3,32,4]
  return %y
}
"""
    module = parse(text, "attention.memir")
    inputs = drawn(module)
    PassManager.parse(BEFORE).run(module)
    made, chunks = chunked(module)
    (found,) = chunks.chosen
    assert found.positions == 6 and found.slices > 1
    compare(module, made, inputs, exact=())


def test_time_that_slices_may_take() -> None:
    _, chunks = chunked(parse(MLP, "mlp.memir"), "chunk")
    assert not chunks.chosen and any("longer" in why for why in chunks.missed)


def test_a_state_is_read_before_its_new_content() -> None:
    """Slices of a stretch that reads a state's new content would bring its update forward."""
    text = """\
func @main(%x: f32[64,4] {role = input}, %y: f32[64,100] {role = input}, %s: f32[100] {role = state}, %w: f32[4,100] {role = weight}) -> (f32[64], f32[100]) {
  %h = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[64,100]
  %old = add(%h, %s) : f32[64,100]
  %n = neg(%s) : f32[100]
  %new = assign(%s, %n) : f32[100]
  %z = add(%old, %new) : f32[64,100]
  %r = reduce_sum(%z) {axes = [1], keepdims = false} : f32[64]
  return %r, %new
}
"""
    module = parse(text, "state.memir")
    made, chunks = chunked(module)
    assert not chunks.chosen
    assert any("new contents" in why for why in chunks.missed)


@pytest.mark.parametrize(
    "rows, slices, grain, sizes",
    [(4096, 4, 64, [1024] * 4), (100, 3, 16, [48, 48, 4]), (7, 2, 64, [4, 3]), (5, 64, 64, [1] * 5), (97, 2, 16, [64, 33])],
)  # fmt: skip
def test_bounds(rows: int, slices: int, grain: int, sizes: list[int]) -> None:
    assert [stop - start for start, stop in bounds_of(rows, slices, grain)] == sizes
