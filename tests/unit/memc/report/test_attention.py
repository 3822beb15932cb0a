# SPDX-License-Identifier: Apache-2.0
"""What the table of a compilation says of attention in a training step."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

import memc
from memc.report.terminal_tables import print_compilation

TEXT = """
func @main(%x: f32[2,64,4] {role = input}, %w: f32[4,4] {role = weight}) -> f32[2,64,4] {
  %q = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[2,64,4]
  %s = matmul(%q, %x) {transpose_a = false, transpose_b = true} : f32[2,64,64]
  %a = softmax(%s) {axis = 2} : f32[2,64,64]
  %y = matmul(%a, %q) {transpose_a = false, transpose_b = false} : f32[2,64,4]
  %t = matmul(%y, %x) {transpose_a = false, transpose_b = true} : f32[2,64,64]
  %b = softmax(%t) {axis = 1} : f32[2,64,64]
  %z = matmul(%b, %q) {transpose_a = false, transpose_b = false} : f32[2,64,4]
  return %z
}
"""


WIDE = TEXT.replace("64,4]", "64,300]").replace("f32[4,4]", "f32[300,300]")
"""Heads with more columns than kernels have room for."""

FOUND = [
    "attention: 1 without scores in memory",
    "attention written out: %z: %b is read elsewhere, or is no softmax of the last axis",
]


@pytest.mark.parametrize(
    ("model", "options", "lines", "missed"),
    [
        (TEXT, {}, FOUND, 1),
        (TEXT, {"target": "cuda"}, FOUND, 1),
        (WIDE, {"target": "cuda"}, ["attention written out: %y: no kernel of cuda takes it (and 1 more)"], 2),
        (TEXT, {"opt_level": 1}, [], 0),
    ],
)
def test_how_often_and_why_not(model: str, options: dict[str, Any], lines: list[str], missed: int) -> None:
    train = memc.BuildGradient(loss="mse")
    done = memc.compile(memc.parse(model), train=train, plan_only=True, **options)
    text = io.StringIO()
    print_compilation(Console(file=text, width=200), "model", done.report, None)
    assert [line for line in text.getvalue().splitlines() if line.startswith("attention")] == lines
    said = done.report.to_dict()["training"]
    assert said["attention"] == (1 if lines == FOUND else 0)
    assert len(said["attention_missed"]) == missed
