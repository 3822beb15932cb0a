# SPDX-License-Identifier: Apache-2.0
"""What tests of slices share: the pass on a copy, and a comparison of both."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from memc.ir.core import Role
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.passes.base import Finding
from memc.passes.chunk.chunk import Chunks
from memc.passes.manager import PassManager

BEFORE = "materialize-returns,canonicalize,decompose,canonicalize,join-products"
AFTER = "fuse-library,fuse,select-kernels{workspace=least},reorder,in-place,assign-addresses"
CHUNK = "chunk{by=rows slowdown=1000}"
"""The models here are so small that starting kernels is all that takes time."""

Arrays = dict[str, Any]
BATCH, TOKENS, WIDTH, WORDS = 2, 64, 16, 500


def language_model(tokens: int = TOKENS, tied: bool = True, more: str = "") -> Module:
    """Embedding, a layer, and the head. `more`: ops and results behind the logits %z [2,tokens,500]."""
    head = "%w" if tied else "%v"
    param = "" if tied else f", %v: f32[{WORDS},{WIDTH}] {{role = weight}}"
    end = more or (
        f"  %logits = transpose(%z) {{perm = [0, 2, 1]}} : f32[{BATCH},{WORDS},{tokens}]\n  return %logits\n"
    )
    given = "" if not more else f", %labels: i64[{BATCH * tokens}] {{role = input}}"
    results = f'(f32[{BATCH},{WORDS},{tokens}] {{name = "logits"}})' if not more else '(f32[] {name = "loss"})'
    if more.rstrip().endswith("%z"):
        results = f'(f32[] {{name = "loss"}}, f32[{BATCH},{tokens},{WORDS}] {{name = "logits"}})'
    text = f"""\
func @main(%ids: i64[{BATCH},{tokens}] {{role = input}}{given}, %w: f32[{WORDS},{WIDTH}] {{role = weight}}, %u: f32[{WIDTH},{WIDTH}] {{role = weight}}{param}) -> {results} {{
  %e = gather(%w, %ids) {{axis = 0}} : f32[{BATCH},{tokens},{WIDTH}]
  %h0 = matmul(%e, %u) {{transpose_a = false, transpose_b = false}} : f32[{BATCH},{tokens},{WIDTH}]
  %h = tanh(%h0) : f32[{BATCH},{tokens},{WIDTH}]
  %z = matmul(%h, {head}) {{transpose_a = false, transpose_b = true}} : f32[{BATCH},{tokens},{WORDS}]
{end}}}
"""
    module = parse(text, "head.memir")
    rng = np.random.default_rng(0)
    for p in module.main.params_of(Role.WEIGHT):
        module.weights[p.name] = (rng.standard_normal(p.type.shape) / 4).astype(np.float32)
    return module


def trained(module: Module, how: str = "optimizer=adamw epsilon=0.01", precision: str = "") -> Module:
    mixed = f"mixed-precision{{weights=keep to={precision}}}," if precision else ""
    text = f"{mixed}build-gradient{{{how}}}" + (",narrow-products" if precision else "")
    PassManager.parse(f"{text},{BEFORE}").run(module)
    return module


def batch(module: Module, ignored: int = 0) -> Arrays:
    rng = np.random.default_rng(1)
    found: Arrays = {}
    for p in module.main.params_of(Role.INPUT):
        if p.type.dtype.value == "i64":
            found[p.name] = rng.integers(0, WORDS, p.type.shape)
        else:  # The learning rate.
            found[p.name] = np.float32(0.1)
    if ignored:
        found["labels"].reshape(-1)[:ignored] = -100
    return found


LOSS = f"""\
  %flat = reshape(%z) {{shape = [{BATCH * TOKENS}, {WORDS}]}} : f32[{BATCH * TOKENS},{WORDS}]
  %l, %t = softmax_cross_entropy(%flat, %labels) {{ignore_index = -100, label_smoothing = 0.1}} : f32[{BATCH * TOKENS}], f32[{BATCH * TOKENS}]
"""
SUM = "  %sum = reduce_sum(%l) {axes = [0], keepdims = false} : f32[]\n"


def chunked(module: Module, option: str = CHUNK) -> tuple[Module, Chunks]:
    """A copy after the pass, and what that found."""
    made = copy.deepcopy(module)
    manager = PassManager.parse(option)
    manager.run(made)
    found: list[Finding] = manager.findings
    (chunks,) = (f for f in found if isinstance(f, Chunks))
    return made, chunks


def largest(module: Module, words: int) -> int:
    """Rows of the largest value with a number for each word."""
    found = [v for op in module.main.ops for v in op.results if v.type.shape and v.type.shape[-1] == words]
    return max((v.type.elements // words for v in found), default=0)


def compare(
    module: Module, made: Module, inputs: Arrays, exact: tuple[str, ...] = ("loss",), atol: float = 1e-5
) -> None:
    """Values before and after, then both in planned arenas, the second of which is smaller."""
    wanted, found = evaluate(module, inputs), evaluate(made, inputs)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=atol)
    for name in exact:
        np.testing.assert_array_equal(found[name], wanted[name])
    arenas = []
    for each, values in ((copy.deepcopy(module), wanted), (made, found)):
        PassManager.parse(AFTER).run(each)
        for name, value in evaluate_in_arena(each, inputs).items():
            np.testing.assert_allclose(value, values[name], rtol=1e-4, atol=atol)
        arenas.append(arena_bytes(each.main))
    assert arenas[1] < arenas[0]
