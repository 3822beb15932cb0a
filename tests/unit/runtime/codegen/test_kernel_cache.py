# SPDX-License-Identifier: Apache-2.0
"""Kernels that are kept between compilations: by what they are made of, whole or not at all, and no more than allowed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memc
from memc.frontend.memir import parse
from memc.ir.errors import UsageError
from memc.runtime.codegen import compile_units, kernel_cache
from memc.runtime.codegen.kernel_cache import FOLDER, SIZE, key_of, load, most_bytes, shrink, store

TEXT = """
func @main(%x: f32[4,6] {role = input}) -> f32[4,6] {
  %0 = exp(%x) : f32[4,6]
  %1 = softmax(%0) {axis = 1} : f32[4,6]
  return %1
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    return tmp_path / "kept"


def compiled_units(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The kernels of each unit that is compiled from now on."""
    found: list[list[str]] = []
    real = compile_units.compiled

    def noted(unit: compile_units.Unit, *rest: Any) -> compile_units.Code:
        found.append(list(unit.functions))
        return real(unit, *rest)

    monkeypatch.setattr(compile_units, "compiled", noted)
    return found


def run(text: str = TEXT) -> np.ndarray[Any, Any]:
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    (found,) = memc.compile(parse(text, "test"), kernels="generated", opt_level=0).load().run_numpy({"x": x}).values()
    return found


def expected() -> np.ndarray[Any, Any]:
    x = np.exp(np.linspace(-1, 1, 24).reshape(4, 6))
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


def test_second_compilation_compiles_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled_units(monkeypatch)
    np.testing.assert_allclose(run(), expected(), rtol=1e-5)
    assert len(made) == 1 and len(list(folder.iterdir())) == 1
    np.testing.assert_allclose(run(), expected(), rtol=1e-5)
    assert len(made) == 1


def test_artifacts_are_the_same_with_and_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def library() -> bytes:
        done = memc.compile(parse(TEXT, "test"), kernels="generated")
        assert done.path is not None
        return (done.path / "model.so").read_bytes()

    monkeypatch.setenv(FOLDER, "off")
    without = library()
    assert not folder.exists()
    monkeypatch.setenv(FOLDER, str(folder))
    assert library() == without
    assert library() == without


@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "other"])
def test_a_harmed_entry_is_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    run()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    path.write_bytes({"cut": whole[:-7], "changed": bytes(changed), "empty": b"", "other": b"x" * 100}[harm])
    made = compiled_units(monkeypatch)
    np.testing.assert_allclose(run(), expected(), rtol=1e-5)
    assert len(made) == 1
    assert path.read_bytes() == whole


def test_key_depends_on_all_that_code_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = {
        key_of("llvm a", ["x", "y"]),
        key_of("llvm b", ["x", "y"]),
        key_of("llvm a", ["xy"]),
        key_of("llvm a", ["x", "y", ""]),
    }
    monkeypatch.setattr(kernel_cache, "_versions", lambda: b"of another memc")
    keys.add(key_of("llvm a", ["x", "y"]))
    assert len(keys) == 5
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    before = key_of("cuda", ["x"])
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--use_fast_math")
    assert key_of("cuda", ["x"]) != before
    monkeypatch.delenv("NVCC_APPEND_FLAGS")
    assert key_of("cuda", ["x"]) == before
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert key_of("cuda", ["x"]) != before and key_of("llvm a", ["x", "y"]) in keys


def test_what_is_used_stays_longest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        store(f"k{number}", [bytes(1000)])
        os.utime(folder / f"k{number}.kernels", (number, number))
    assert load("k0") == [bytes(1000)]
    monkeypatch.setenv(SIZE, "6000")
    shrink()
    assert sorted(p.stem for p in folder.iterdir()) == ["k0", "k5", "k6", "k7"]
    monkeypatch.setenv(SIZE, "1GiB")
    shrink()
    assert len(list(folder.iterdir())) == 4


def test_only_entries_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the user names may have other files."""
    store("old", [bytes(1000)])
    other = folder / "thesis.txt"
    other.write_bytes(bytes(5000))
    left = folder / f"new.{'0f' * 16}"
    left.write_bytes(bytes(2000))
    for path in (other, left):
        os.utime(path, (1, 1))
    monkeypatch.setenv(SIZE, "1500")
    shrink()
    assert sorted(path.name for path in folder.iterdir()) == ["old.kernels", "thesis.txt"]


def test_many_writers_of_one_entry(folder: Path) -> None:
    parts = [bytes([7]) * 100_000, b"", b"source"]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: (store("key", parts), load("key"))[1], range(40)))
    assert all(each == parts for each in found)
    assert [p.name for p in folder.iterdir()] == ["key.kernels"]


def test_a_folder_that_cannot_be_written_costs_time_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file"))
    np.testing.assert_allclose(run(), expected(), rtol=1e-5)


def test_size_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIZE, "much")
    with pytest.raises(UsageError, match="^MEMC_KERNEL_CACHE_SIZE: expected a size such as 512MiB, got 'much'$"):
        most_bytes()
