# SPDX-License-Identifier: Apache-2.0
"""Updates of weights moved to the products that make their gradients: which ones are, where to, and that results stay."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.structure import verify
from memc.passes.kernels.early_updates import find_updates, move_updates

HEAD = """
func @main(%x: f32[8,4] {role = input}, %g: f32[8,4] {role = input}, %k: f32[1,4] {role = input},
           %r: f32[] {role = input}, %w: f32[4,4] {role = state},
           %v: f32[4,4] {role = state}) -> (RESULTS) {
"""

PLAIN = """
  %a = exp(%x) : f32[8,4]
  %p = matmul(%a, %g) {transpose_a = true, transpose_b = false} : f32[4,4]
  %y = matmul(%k, %w) {transpose_a = false, transpose_b = false} : f32[1,4]
  %z = exp(%y) : f32[1,4]
  %s = mul(%p, %r) : f32[4,4]
  %m = sub(%w, %s) : f32[4,4]
  %n = assign(%w, %m) : f32[4,4]
  return %z, %n
"""


def module_of(body: str, results: str = "f32[1,4], f32[4,4]") -> Module:
    module = parse(HEAD.replace("RESULTS", results) + body.strip("\n") + "\n}\n")
    verify(module)
    return module


def values(module: Module) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    given = {p.name: rng.normal(size=p.type.shape).astype(np.float32) for p in module.main.params}
    return [np.asarray(found) for found in evaluate(module, given).values()]


def moved(body: str, results: str = "f32[1,4], f32[4,4]") -> list[str]:
    """Names of ops once updates have moved; all results have the bits that they had."""
    module = module_of(body, results)
    move_updates(module, module.main, "cuda")
    verify(module)
    for found, expected in zip(values(module), values(module_of(body, results)), strict=True):
        np.testing.assert_array_equal(found, expected)
    return [op.name for op in module.main.ops]


def test_the_product_waits_for_the_reader_and_the_update_follows_it() -> None:
    assert moved(PLAIN) == ["neg", "exp", "matmul", "matmul", "mul", "add", "assign", "exp"]
    module = module_of(PLAIN)
    move_updates(module, module.main, "cuda")
    first, second = (op for op in module.main.ops if op.name == "matmul")
    assert (first.results[0].name, second.results[0].name) == ("y", "p")


def test_a_scale_that_is_made_late_is_waited_for() -> None:
    late = PLAIN.replace("  %s =", "  %q = exp(%r) : f32[]\n  %s =").replace("mul(%p, %r)", "mul(%p, %q)")
    assert moved(late) == ["exp", "matmul", "exp", "exp", "neg", "matmul", "mul", "add", "assign"]


def test_two_updates_share_the_negative_scale() -> None:
    second = """
  %p2 = matmul(%g, %a) {transpose_a = true, transpose_b = false} : f32[4,4]
  %s2 = mul(%r, %p2) : f32[4,4]
  %m2 = sub(%v, %s2) : f32[4,4]
  %n2 = assign(%v, %m2) : f32[4,4]
  return %z, %n, %n2
"""
    found = moved(PLAIN.replace("  return %z, %n\n", second), "f32[1,4], f32[4,4], f32[4,4]")
    assert found.count("neg") == 1 and found.count("sub") == 0 and found.count("add") == 2


def test_a_reader_through_a_view_is_waited_for() -> None:
    seen = PLAIN.replace(
        "  %y = matmul(%k, %w)", "  %u = reshape(%w) {shape = [4, 4]} : f32[4,4]\n  %y = matmul(%k, %u)"
    )
    assert moved(seen) == ["neg", "exp", "reshape", "matmul", "matmul", "mul", "add", "assign", "exp"]


@pytest.mark.parametrize(
    "old, new",
    [
        ("%n = assign(%w, %m)", "%n = assign(%w, %v)"),  # A parameter.
        ("sub(%w, %s)", "add(%w, %s)"),
        ("sub(%w, %s)", "sub(%s, %w)"),
        ("sub(%w, %s)", "sub(%v, %s)"),  # Another state.
        ("sub(%w, %s)", "sub(%w, %v)"),
        ("mul(%p, %r)", "div(%p, %r)"),
        ("mul(%p, %r)", "mul(%p, %v)"),  # No scalar.
        ("mul(%p, %r)", "mul(%v, %r)"),  # No product.
        ("  %s = mul(%p, %r)", "  %o = exp(%p) : f32[4,4]\n  %s = mul(%o, %r)"),
        ("matmul(%a, %g) {transpose_a = true", "matmul(%w, %w) {transpose_a = true"),  # Of the state itself.
    ],
)
def test_what_is_no_update(old: str, new: str) -> None:
    body = PLAIN.replace(old, new)
    assert body != PLAIN and find_updates(module_of(PLAIN).main, "cuda")
    assert find_updates(module_of(body).main, "cuda") == []
    unchanged = [op.name for op in module_of(body).main.ops]
    assert moved(body) == unchanged


@pytest.mark.parametrize("read", ["%p", "%s", "%m"])
def test_what_something_else_reads_stays(read: str) -> None:
    body = PLAIN.replace("  return %z, %n", f"  %e = exp({read}) : f32[4,4]\n  return %z, %n, %e")
    assert find_updates(module_of(body, "f32[1,4], f32[4,4], f32[4,4]").main, "cuda") == []


def test_a_product_of_two_products_stays() -> None:
    body = PLAIN.replace(
        "  %s = mul(%p, %r)",
        "  %t = matmul(%v, %v) {transpose_a = true, transpose_b = false} : f32[4,4]\n  %s = mul(%p, %t)",
    )
    assert find_updates(module_of(body).main, "cuda") == []


def test_a_target_without_such_a_kernel_has_no_updates() -> None:
    assert find_updates(module_of(PLAIN).main, "none") == []
