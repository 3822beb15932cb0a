# SPDX-License-Identifier: Apache-2.0
"""Copies between a CUDA device and its host in compiled programs, as far as no GPU is needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import memc
from memc.ir.errors import UnsupportedError
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.runtime.artifact.read import read_manifest
from memc.runtime.codegen.copy_slots import CopySlots

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")

TARGET = 'target {kind = "cuda", arch = "sm_90", alignment = 256}\n'

BOTH = """func @main(%x: f32[N,8] {role = input}) -> f32[N,8] {
  %a = exp(%x) : f32[N,8]
  %h0 = offload_start(%a) {lane = "d2h"} : f32[N,8]
  %b = tanh(%a) : f32[N,8]
  %g0 = offload_start(%b) {lane = "d2h"} : f32[N,8]
  %h = offload_done(%h0, %a) : f32[N,8]
  %c = neg(%b) : f32[N,8]
  %p0 = prefetch_start(%h) {lane = "h2d"} : f32[N,8]
  %g = offload_done(%g0, %b) : f32[N,8]
  %d = sqrt(%c) : f32[N,8]
  %q0 = prefetch_start(%g) {lane = "h2d"} : f32[N,8]
  %p = prefetch_done(%p0, %h) : f32[N,8]
  %e = add(%d, %p) : f32[N,8]
  %q = prefetch_done(%q0, %g) : f32[N,8]
  %y = mul(%e, %q) : f32[N,8]
  return %y
}
"""

STREAMED = """func @main(%x: f32[4,256] {role = input}, %w: f32[256,256] {role = weight}) -> f32[4,256] {
  %p0 = prefetch_start(%w) {lane = "h2d"} : f32[256,256]
  %a = tanh(%x) : f32[4,256]
  %p = prefetch_done(%p0, %w) : f32[256,256]
  %y = matmul(%a, %p) {transpose_a = false, transpose_b = false} : f32[4,256]
  return %y
}
"""

START, DONE = "memc.copy.cuda.start", "memc.copy.cuda.done"


def module(text: str = BOTH, rows: int = 16, head: str = TARGET) -> Module:
    return parse(head + text.replace("N", str(rows)))


def compiled(path: Path, made: Module, level: int = 2) -> memc.Compilation:
    return memc.compile(made, path, target="cuda", arch="sm_90", kernels="generated", opt_level=level)


def test_slots_are_taken_and_given_back() -> None:
    function = module().main
    found = CopySlots.of(function)
    assert dict(found.lanes) == {"d2h": 0, "h2d": 1} and found.count == 2
    assert {value.name: slot for value, slot in found.slots.items()} == {"h0": 0, "g0": 1, "p0": 0, "q0": 1}
    none = CopySlots.of(module(BOTH.split("  %h0")[0] + "  return %a\n}\n").main)
    assert none.count == 0 and not none.lanes


def test_kernels_and_copies_wait_once_where_no_kernel_comes_between() -> None:
    """Names of pending values: of starts that fork their lane, and of dones that are joined."""
    for text, forks, joins in (
        (BOTH, {"h0", "g0", "p0", "q0"}, {"h0", "g0", "p0", "q0"}),
        (GROUPED, {"h0", "p0"}, {"g0", "p0", "q0"}),
        # A wait comes between the starts: the second lane has to wait for what it waits for.
        (GROUPED.replace(P_DONE, P_DONE + Q_START).replace(Q_START, "", 1), {"h0", "p0", "q0"}, {"g0", "p0", "q0"}),
    ):
        found = CopySlots.of(module(text).main)
        assert {op.results[0].name for op in found.forks} == forks
        assert {op.operands[0].name for op in found.joins} == joins


GROUPED = """func @main(%x: f32[N,8] {role = input}) -> f32[N,8] {
  %a = exp(%x) : f32[N,8]
  %b = tanh(%a) : f32[N,8]
  %h0 = offload_start(%a) {lane = "d2h"} : f32[N,8]
  %v = reshape(%b) {shape = [8,N]} : f32[8,N] alias %b[0]
  %g0 = offload_start(%b) {lane = "d2h"} : f32[N,8]
  %c = neg(%b) : f32[N,8]
  %h = offload_done(%h0, %a) : f32[N,8]
  %g = offload_done(%g0, %b) : f32[N,8]
  %p0 = prefetch_start(%h) {lane = "h2d"} : f32[N,8]
  %q0 = prefetch_start(%g) {lane = "h2d"} : f32[N,8]
  %d = sqrt(%c) : f32[N,8]
  %p = prefetch_done(%p0, %h) : f32[N,8]
  %e = add(%d, %p) : f32[N,8]
  %q = prefetch_done(%q0, %g) : f32[N,8]
  %y = mul(%e, %q) : f32[N,8]
  return %y
}
"""
Q_START = '  %q0 = prefetch_start(%g) {lane = "h2d"} : f32[N,8]\n'
P_DONE = "  %p = prefetch_done(%p0, %h) : f32[N,8]\n"


@needs_nvcc
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_the_program_copies_by_a_slab(tmp_path: Path, level: int) -> None:
    compilation = compiled(tmp_path / "m.memc", module(), level)
    manifest = read_manifest(tmp_path / "m.memc")
    host = manifest.space("host")
    assert str(host.device) == "cuda_host:0" and host.is_pinned and host.bytes == compilation.report.host_bytes
    assert host.bytes == 2 * 16 * 8 * 4 == compilation.report.host_lower_bound_bytes
    assert [str(device) for device in manifest.devices] == ["cuda:0"]
    assert manifest.library_functions == (DONE, "memc.copy.cuda.open", START)
    copies = [name for _, name in manifest.calls if name.startswith("memc.copy.")]
    assert copies == [START, START, DONE, START, DONE, START, DONE, DONE]
    assert not any(symbol.startswith("memc.cuda.") for symbol in manifest.library_functions)
    assert compilation.report.peak_bytes == sum(s.bytes for s in manifest.spaces if not s.is_pinned)


@needs_nvcc
def test_weights_are_read_from_the_slab(tmp_path: Path) -> None:
    made = module(STREAMED)
    made.weights["w"] = np.ones((256, 256), np.float32)
    compilation = compiled(tmp_path / "m.memc", made)
    manifest = read_manifest(tmp_path / "m.memc")
    assert manifest.space("host").bytes == 256 * 256 * 4 and compilation.report.weights_bytes == 0
    assert [weight.spec.space for weight in manifest.weights] == ["host"]
    assert "memc.copy.cuda.bytes" in manifest.library_functions


@pytest.mark.parametrize("device", ["cpu:0", "cuda:0", "cuda_host:1"])
def test_hosts_that_copies_do_not_reach(tmp_path: Path, device: str) -> None:
    space = f'space @host {{device = "{device}", holds = "values"}}\n'
    with pytest.raises(
        UnsupportedError, match="space host: expected it on cuda_host:0, which copies reach, got"
    ) as caught:
        compiled(tmp_path / "m.memc", module(head=TARGET + space))
    assert device in str(caught.value) and "\n" not in str(caught.value)


WRITTEN_BACK = """func @main(%g: f32[64] {role = input}, %m: f32[64] {role = state}) -> (f32[] {name = "loss"}, f32[64] {name = "m"}) {
  %p0 = prefetch_start(%m) {lane = "h2d"} : f32[64]
  %loss = reduce_sum(%g) {axes = [0], keepdims = false} : f32[]
  %p = prefetch_done(%p0, %m) : f32[64]
  %new = add(%p, %g) : f32[64]
  %h0 = offload_start(%new) {lane = "d2h"} : f32[64] alias %m[0]
  %h = offload_done(%h0, %new) : f32[64] alias %m[0]
  return %loss, %h
}
"""


@needs_nvcc
def test_states_are_read_from_the_slab_and_written_back(tmp_path: Path) -> None:
    made = module(WRITTEN_BACK)
    made.weights["m"] = np.ones(64, np.float32)
    compilation = compiled(tmp_path / "m.memc", made)
    manifest = read_manifest(tmp_path / "m.memc")
    assert manifest.space("host").bytes == 256 and compilation.report.weights_bytes == 0
    assert [weight.spec.space for weight in manifest.weights] == ["host"] and manifest.states == {"m"}
    copies = [name for _, name in manifest.calls if name.startswith("memc.copy.")]
    assert copies == [START, DONE, START, DONE]
    assert [spec.name for spec in manifest.outputs] == ["loss"]
