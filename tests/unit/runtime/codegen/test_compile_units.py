# SPDX-License-Identifier: Apache-2.0
"""Kernels in units: how many there are, what another kernel changes, and checks of what callers give."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

import memc
from memc import native
from memc.frontend.memir import parse
from memc.ir.types import DType
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen import compile_units
from memc.runtime.codegen.compile_units import MOST, USUAL, Unit, side_by_side, units_of

LLVM = CodeTarget.create("llvm")


def functions(numbers: range) -> tuple[dict[str, Any], dict[str, str]]:
    told = {f"f{n}": hashlib.sha256(str(n).encode()).hexdigest() for n in numbers}
    return dict.fromkeys(told), told


def test_units_are_of_neighbours_and_not_large() -> None:
    made, told = functions(range(1000))
    found = [list(unit.functions) for unit in units_of(made, told, LLVM)]
    assert [name for unit in found for name in unit] == list(made)
    assert max(map(len, found)) <= MOST * USUAL["llvm"]
    assert 1000 // USUAL["llvm"] // 2 < len(found) < 2 * 1000 // USUAL["llvm"]


def test_another_kernel_changes_one_unit() -> None:
    made, told = functions(range(1000))
    keys = {unit.key for unit in units_of(made, told, LLVM)}
    names = [*list(made)[:500], "new", *list(made)[500:]]
    other = {unit.key for unit in units_of(dict.fromkeys(names), {**told, "new": "1"}, LLVM)}
    assert len(other - keys) <= 1 + MOST


def test_results_in_order_and_errors_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4))
    units = [Unit({"kernel": None}, str(n)) for n in range(50)]  # type: ignore[dict-item]
    assert side_by_side(lambda unit: int(unit.key) ** 2, units) == [n * n for n in range(50)]  # type: ignore[arg-type, return-value, comparison-overlap]
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda unit: 1 // (3 - int(unit.key)), units)  # type: ignore[arg-type, return-value]


def test_work_grows_with_the_parts_of_a_concat(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pieces of a size share one kernel, wherever they go."""

    def kernels(parts: int) -> int:
        lines = [f"  %t{n} = exp(%x{n}) : f32[1,5]" for n in range(parts)]
        given = ", ".join(f"%x{n}: f32[1,5] {{role = input}}" for n in range(parts))
        operands = ", ".join(f"%t{n}" for n in range(parts))
        text = f"func @main({given}) -> f32[{parts},5] {{\n" + "\n".join(lines)
        text += f"\n  %y = concat({operands}) {{axis = 0}} : f32[{parts},5]\n  return %y\n}}"
        done = memc.compile(parse(text, "test"))
        inputs = {f"x{n}": np.full((1, 5), n / parts, np.float32) for n in range(parts)}
        (y,) = done.load().run_numpy(inputs).values()
        np.testing.assert_allclose(y, np.exp(np.concatenate(list(inputs.values()))), rtol=1e-6)
        return done.report.kernels

    assert kernels(12) == kernels(48) <= 3


def test_what_callers_give_is_checked() -> None:
    """By the program itself, since anyone may call it with TVM's runtime alone."""
    text = "func @main(%x: f32[4,6] {role = input}) -> f32[4,6] {\n  %0 = exp(%x) : f32[4,6]\n  return %0\n}"
    done = memc.compile(parse(text, "test"), disabled_passes=())
    assert done.path is not None
    machine = tvm.runtime.vm.VirtualMachine(tvm.runtime.load_module(str(done.path / "model.so")), tvm.cpu(0))
    spaces = json.loads((done.path / "plan.json").read_text())["spaces"]
    storages = [machine[f"space.{space['name']}"]() for space in spaces if space["holds"] != "io"]

    def call(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        result = tvm.runtime.tensor(y)
        machine["main"](*storages, tvm.runtime.tensor(x), result)
        return np.asarray(result.numpy())

    x, y = np.ones((4, 6), np.float32), np.zeros((4, 6), np.float32)
    np.testing.assert_allclose(call(x, y), np.e * x, rtol=1e-6)
    for bad in [np.ones((4, 5), np.float32), np.ones((24,), np.float32), np.ones((4, 6)), np.ones((4, 6), np.int32)]:
        with pytest.raises((ValueError, TypeError, RuntimeError), match="argument"):
            call(bad, y)
        with pytest.raises((ValueError, TypeError, RuntimeError), match="argument"):
            call(x, bad)


LOADER = "ffi.Module.load_from_bytes.cuda"
"""By this name TVM finds what loads the modules of CUDA kernels that an artifact holds."""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.skipif(
    tvm_ffi.get_global_func(LOADER, allow_missing=True) is not None, reason="TVM's CUDA runtime is loaded"
)
def test_kernels_of_several_cuda_units_are_where_the_host_code_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right below the library, each in one module, beside host code that calls it by its name."""
    monkeypatch.setattr(compile_units, "USUAL", {"cuda": 1})
    monkeypatch.setattr(compile_units, "MOST", 1)
    text = "func @main(%x: f32[4,6] {role = input}) -> f32[4,6] {\n  %0 = exp(%x) : f32[4,6]\n"
    text += "  %1 = tanh(%0) : f32[4,6]\n  return %1\n}"
    done = memc.compile(parse(text, "test"), target="cuda", arch="sm_90", kernels="generated", opt_level=0)
    assert done.path is not None
    saved: list[bytes] = []

    def loaded(data: Any) -> Any:
        saved.append(bytes(data))
        return native.load()["memc_cubin_module"](data, "")

    tvm_ffi.register_global_func(LOADER, loaded)
    try:
        program = tvm.runtime.load_module(str(done.path / "model.so"))
    finally:
        tvm_ffi.remove_global_func(LOADER)
    (library,) = program.imports
    assert [module.kind for module in library.imports] == ["cuda", "cuda"]
    names = [name for _, name in json.loads((done.path / "plan.json").read_text())["calls"]]
    for name, data in zip(names, saved, strict=True):
        assert f"{name}_kernel".encode() in data
        assert library.implements_function(name)


OVER_OPERANDS = """\
func @main(%x: bf16[3,9] {role = input}) -> (bf16[3,9] {name = "y"}) {
  %0 = exp(%x) : bf16[3,9]
  %1 = tanh(%0) : bf16[3,9]
  %2 = mul(%1, %x) : bf16[3,9]
  %3 = exp(%2) : bf16[3,9]
  %y = tanh(%3) : bf16[3,9]
  return %y
}
"""
"""All but the first lie over their first operand."""


def test_kernels_that_overwrite_operands_are_compiled_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one LLVM module, what is true of the last function's arguments would be taken to be true of all functions'."""
    built: list[tuple[set[bool], list[str]]] = []
    build = tvm.tirx.build

    def recorded(module: tvm.ir.IRModule, **options: Any) -> Any:
        made = build(module, **options)
        kinds = {"tirx.noalias" not in function.attrs for function in module.functions.values()}
        bodies = [line for line in made.inspect_source("ll").splitlines() if line.startswith("define internal")]
        built.append((kinds, [line for line in bodies if "_compute_" in line and "noalias" in line]))
        return made

    monkeypatch.setattr(tvm.tirx, "build", recorded)
    monkeypatch.setenv("MEMC_KERNEL_CACHE", "off")
    passes = "materialize-returns,in-place,assign-addresses"
    executable = memc.compile(parse(OVER_OPERANDS), pass_pipeline=passes).load()
    assert {frozenset(kinds) for kinds, _ in built} == {frozenset({False}), frozenset({True})}
    assert all(not told for kinds, told in built if kinds == {True})
    x = np.linspace(-2, 2, 27, dtype=np.float32).reshape(3, 9).astype(DType.BF16.numpy)
    found = np.asarray(executable(x)["y"]).astype(np.float32)
    wide = x.astype(np.float32)
    np.testing.assert_allclose(found, np.tanh(np.exp(np.tanh(np.exp(wide)) * wide)), rtol=0.03)
