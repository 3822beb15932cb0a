# SPDX-License-Identifier: Apache-2.0
"""Budgets as numbers, sizes and shares, wherever bytes are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import memc
from memc.compile_options import Options
from memc.ir import machine
from memc.ir.errors import BudgetError, UsageError
from memc.ir.text.parser import parse
from memc.passes.budget import Budget, HostBytes

LINES = """%a = matmul(%x, %x)
%b = matmul(%a, %x)
%c = matmul(%b, %x)
%d = matmul(%c, %b)
%e = matmul(%d, %x)
%g = matmul(%e, %c)
%i = matmul(%g, %a)"""

CHAIN = (
    "func @main(%x: f32[256,256] {role = input}) -> f32[64,64] {\n"
    + "".join(f"  {line} : f32[256,256]\n" for line in LINES.splitlines())
    + "  %j = slice(%i) {axes = [0, 1], starts = [0, 0], stops = [64, 64], steps = [1, 1]} : f32[64,64]\n  return %j\n}\n"
)
"""Takes 1,327,104 bytes: four of 256 KiB in the arena, the input and 16 KiB of output."""


def peak(budget: Any, **options: Any) -> int:
    return memc.compile(parse(CHAIN), plan_only=True, memory_budget=budget, **options).report.peak_bytes


def test_a_share_is_of_what_is_taken_without_a_budget() -> None:
    assert peak(None) == peak("100%") == 1_327_104
    assert peak("85%") == peak(int(0.85 * 1_327_104)) == peak("1.05MiB") == peak(Budget(percent=85)) == 1_064_960
    with pytest.raises(BudgetError, match=rf"memory budget of {int(0.8 * 1_327_104)} bytes"):
        peak("80%")


def test_a_share_with_copies() -> None:
    found = memc.compile(parse(CHAIN), plan_only=True, memory_budget="85%", offload="auto", host_budget="1MiB")
    assert "offload{budget=85% total=true host-budget=1048576 " in found.report.pipeline
    assert found.report.peak_bytes == 1_064_960


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("offload", ["none", "auto"])
def test_a_share_on_cuda(level: int, offload: str) -> None:
    whole = peak(None, target="cuda", opt_level=level)
    found = peak("85%", target="cuda", opt_level=level, offload=offload)
    assert found <= 0.85 * whole


@pytest.mark.parametrize("options", [{"opt_level": 1}, {"opt_level": 0}, {"pass_pipeline": "assign-addresses"}])
def test_a_share_needs_passes_that_reach_it(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="memory budget 50%: expected -O2 or -O3 and no pass pipeline"):
        Options(memory_budget="50%", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["much", "120%", "-1%", -1, True, 0.5])
def test_what_is_no_budget(value: Any) -> None:
    with pytest.raises(UsageError, match="memory_budget: expected a whole number.* or text such as 4GiB or 50%, got "):
        Options(memory_budget=value)


def test_a_share_of_the_hosts_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\n")
    monkeypatch.setattr(machine, "PROC", tmp_path)
    assert HostBytes.parse("25%") == 256_000
    monkeypatch.setattr(machine, "PROC", tmp_path / "none")
    with pytest.raises(ValueError, match="this system does not say how much memory it has"):
        HostBytes.parse("25%")
    assert HostBytes.parse("2KiB") == 2048


def test_a_share_of_a_gpu(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("id,lower,upper,size\na,0,2,64\n")
    whole = memc.estimate(str(trace), gpu="h100").memory_bytes
    assert whole is not None
    assert memc.estimate(str(trace), gpu="h100", memory="50%").memory_bytes == whole // 2
    assert memc.estimate(str(trace), memory="24GiB").memory_bytes == 24 * 2**30
    with pytest.raises(UsageError, match="memory 50%: expected gpu with it"):
        memc.estimate(str(trace), memory="50%")


def test_capacities_as_text(tmp_path: Path) -> None:
    problem = tmp_path / "p.csv"
    problem.write_text("id,lower,upper,size,space\na,0,2,2048,\nb,0,2,1024,other\n")
    limits = {"arena": "2KiB", "other": 1024}
    assert [space.capacity for space in memc.plan(problem, capacity=limits).spaces] == [2048, 1024]
    with pytest.raises(BudgetError, match="capacity of 1024 bytes .* of arena is not met"):
        memc.plan(problem, capacity={"arena": "50%"})
    with pytest.raises(UsageError, match="capacity: .*expected a whole number or text such as 4GiB or 50%, got '150%'"):
        memc.plan(problem, capacity={"arena": "150%"})
