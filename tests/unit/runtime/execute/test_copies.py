# SPDX-License-Identifier: Apache-2.0
"""Copies between spaces on the CPU: the bits of the program without them, whenever they run."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tvm_ffi

import memc
from memc import native
from memc.ir.core import Array
from memc.ir.errors import UsageError
from memc.ir.text.parser import parse
from memc.runtime.execute import executable as running
from memc.runtime.execute.tensors import tensor_over

TIMES = ("thread", "at-start", "at-done", "random:1", "random:2", "random:3")

OUT = """
  %h0 = offload_start(%a) {lane = "d2h"} : f32[256,256]
  %b = matmul(%a, %w) {transpose_a = false, transpose_b = false} : f32[256,256]
  %h = offload_done(%h0, %a) : f32[256,256]
  %c = tanh(%b) : f32[256,256]
  %g0 = offload_start(%c) {lane = "d2h"} : f32[256,256]
  %d = matmul(%c, %w) {transpose_a = false, transpose_b = false} : f32[256,256]
  %p0 = prefetch_start(%h) {lane = "h2d"} : f32[256,256]
  %g = offload_done(%g0, %c) : f32[256,256]
  %e = exp(%d) : f32[256,256]
  %q0 = prefetch_start(%g) {lane = "h2d"} : f32[256,256]
  %p = prefetch_done(%p0, %h) : f32[256,256]
  %f = add(%e, %p) : f32[256,256]
  %q = prefetch_done(%q0, %g) : f32[256,256]
  %y = matmul(%f, %q) {transpose_a = false, transpose_b = false} : f32[256,256]
"""

HEAD = """func @main(%x: f32[256,256] {role = input}, %w: f32[256,256] {role = weight}) -> f32[256,256] {
  %a = relu(%x) : f32[256,256]
"""


def text(copies: bool = True) -> str:
    lines = (
        OUT.splitlines()
        if copies
        else [line for line in OUT.splitlines() if "_start" not in line and "_done" not in line]
    )
    body = "\n".join(lines)
    return HEAD + (body if copies else body.replace("%p)", "%a)").replace("%q)", "%c)")) + "\n  return %y\n}\n"


def compiled(copies: bool = True, opt_level: int = 2, **options: Any) -> memc.Compilation:
    module = parse(text(copies))
    module.weights["w"] = (np.random.default_rng(1).normal(size=(256, 256)) / 16).astype(np.float32)
    return memc.compile(module, opt_level=opt_level, **options)


@pytest.fixture(scope="module")
def plain() -> Array:
    return compiled(copies=False).load()(X)["output.0"]


X = np.random.default_rng(2).normal(size=(256, 256)).astype(np.float32)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_same_bits_whenever_copies_run(level: int, plain: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    compilation = compiled(opt_level=level)
    executable = compilation.load()
    expected = plain if level == 2 else compiled(copies=False, opt_level=level).load()(X)["output.0"]
    for times in TIMES:
        monkeypatch.setenv("MEMC_COPIES", times)
        for _ in range(3):
            np.testing.assert_array_equal(executable(X)["output.0"], expected, strict=True)
    report = compilation.report
    assert executable.statistics()["host"] == report.host_bytes == 2 * X.nbytes == report.host_lower_bound_bytes
    assert report.host_gap_percent == 0


def test_sessions_run_at_once(plain: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMC_COPIES", "random:5")
    first = compiled().load()
    sessions = [first, first.session(), first.session()]
    wrong: list[int] = []

    def runs(number: int) -> None:
        for _ in range(5):
            if not np.array_equal(sessions[number](X)["output.0"], plain):
                wrong.append(number)

    threads = [threading.Thread(target=runs, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_errors_leave_no_copy_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMC_COPIES", "at-done")
    native.load()
    source, destination = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    start = tvm_ffi.get_global_func("memc.copy.start")

    def main(*tensors: Any) -> None:
        start(*tensors, "d2h")
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        running._run_with_copies(main, (tensor_over(source),), [tensor_over(destination)])
    np.testing.assert_array_equal(destination, source)


def test_times_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    compilation = compiled()
    monkeypatch.setenv("MEMC_COPIES", "sometime")
    with pytest.raises(
        UsageError, match="^MEMC_COPIES: expected thread, at-start, at-done or random:SEED, got sometime$"
    ):
        compilation.load()


def test_nothing_is_allocated_by_runs() -> None:
    executable = compiled().load()
    before = None
    for number in range(60):
        executable(X)
        if number == 10:
            before = _resident()
    assert before is not None and _resident() - before < 4 << 20


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


STREAMED = """func @main(%x: f32[4,256] {role = input}, %w: f32[256,256] {role = weight}, %b: f32[256] {role = weight}) -> f32[4,256] {
  %p0 = prefetch_start(%w) {lane = "h2d"} : f32[256,256]
  %a = add(%x, %b) : f32[4,256]
  %p = prefetch_done(%p0, %w) : f32[256,256]
  %c = matmul(%a, %p) {transpose_a = false, transpose_b = false} : f32[4,256]
  %q0 = prefetch_start(%w) {lane = "h2d"} : f32[256,256]
  %t = tanh(%c) : f32[4,256]
  %q = prefetch_done(%q0, %w) : f32[256,256]
  %y = matmul(%t, %q) {transpose_a = false, transpose_b = true} : f32[4,256]
  return %y
}
"""


def test_weights_in_host_are_prefetched(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse(STREAMED)
    rng = np.random.default_rng(0)
    w, b, x = ((rng.normal(size=s) / 16).astype(np.float32) for s in ((256, 256), (256,), (4, 256)))
    module.weights.update(w=w, b=b)
    compilation = memc.compile(module)
    executable = compilation.load()
    assert compilation.report.host_bytes == w.nbytes and compilation.report.weights_bytes == b.nbytes
    assert executable.statistics() | {"inputs": 0, "outputs": 0} == {
        "arena": compilation.report.arena_bytes,
        "weights": b.nbytes,
        "host": w.nbytes,
        "inputs": 0,
        "outputs": 0,
    }
    expected = np.tanh((x.astype(np.float64) + b) @ w) @ w.T.astype(np.float64)
    for times in TIMES:
        monkeypatch.setenv("MEMC_COPIES", times)
        for each in (executable, executable.session()):
            np.testing.assert_allclose(each(x)["output.0"], expected, rtol=1e-5, atol=1e-5)


def test_copies_on_cuda_are_planned() -> None:
    module = parse(text().replace("func @main", 'target {kind = "cuda", arch = "sm_90", alignment = 256}\nfunc @main'))
    report = memc.compile(module, target="cuda", arch="sm_90", plan_only=True).report
    host = next(space for space in report.footprint.spaces if space.name == "host")
    assert str(host.device) == "cuda_host:0" and host.bytes == 2 * X.nbytes
    assert report.peak_bytes == report.arena_bytes + report.weights_bytes + report.io_bytes
