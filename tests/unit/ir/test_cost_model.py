# SPDX-License-Identifier: Apache-2.0
"""What one more run of an op costs: nothing where it makes no code, else its start, and its operations or bytes."""

from __future__ import annotations

import pytest

from memc.ir.cost_model import CostModel, Device, moved_bytes, signature
from memc.ir.text.parser import parse

TEXT = """func @main(%x: f32[4,16] {role = input}, %w: f32[16,16] {role = weight}) -> f32[4,16] {
  %c = constant() {value = dense<f32[1]>[1.0]} : f32[1]
  %r = reshape(%x) {shape = [64]} : f32[64]
  %s = slice(%r) {starts = [16], stops = [32], steps = [1]} : f32[16]
  %e = slice(%r) {starts = [0], stops = [32], steps = [2]} : f32[16]
  %d = mul(%x, %x) : f32[4,16]
  %m = matmul(%d, %w) {transpose_a = false, transpose_b = false} : f32[4,16]
  return %m
}
"""

OPS = {op.result.name: op for op in parse(TEXT).main.ops}
DEVICE = Device(flops=1e9, bandwidth=1e9, start=1e-6)
START = 1_000_000
"""Picoseconds."""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("c", 0),
        ("r", 0),
        ("s", 0),
        ("e", START + (64 + 16) * 4 * 1000),  # Every second element: no contiguous part, so it is copied.
        ("d", START + (64 + 64) * 4 * 1000),  # An operand that is read twice moves once.
        ("m", START + 2 * 4 * 16 * 16 * 1000),  # More operations than bytes.
    ],
)
def test_costs(name: str, expected: int) -> None:
    assert CostModel(DEVICE).cost(OPS[name]) == expected


def test_measured_seconds_count_instead_but_not_for_views() -> None:
    measured = {signature(op): 3e-6 for op in OPS.values()}
    costs = CostModel(DEVICE, measured)
    assert [costs.cost(op) for op in OPS.values()] == [0, 0, 0, 3_000_000, 3_000_000, 3_000_000]


def test_bytes_and_signature() -> None:
    assert moved_bytes(OPS["d"]) == 2 * 64 * 4
    assert signature(OPS["m"]) == "matmul(f32[4,16], f32[16,16]) : f32[4,16]"
