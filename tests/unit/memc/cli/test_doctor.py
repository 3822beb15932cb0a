# SPDX-License-Identifier: Apache-2.0
"""memc doctor: what it tells of installations that lack something."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from memc import installation, native
from memc.installation import Finding, is_sound


def of(found: list[Finding], name: str) -> Finding:
    return next(each for each in found if each.name == name)


def test_here(memc) -> None:
    result = memc("doctor", "--json", "-")
    data = json.loads(result.out)
    names = [each["name"] for each in data["findings"]]
    assert names[:2] == ["Python", "memc"] and {"native library", "OpenBLAS", "GPU", "memc[cuda]", "cache"} <= set(
        names
    )
    library = next(each for each in data["findings"] if each["name"] == "native library")
    assert library["state"] == "ok" and str(native.library_path()) in library["detail"]
    assert data["sound"] is (result.code == 0)


def test_packages_that_are_missing_or_old(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"numpy": "1.20", "onnx": "1.19", "nvidia-cudnn-cu13": "9.1", "memc": "0.1.0"}

    def version(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    texts = [
        "numpy>=1.26",
        "onnx>=1.18",
        "lark<2,>=1.2",
        'nvidia-cudnn-cu13>=9; extra == "cuda"',
        'nvidia-cublas>=13; extra == "cuda"',
    ]
    monkeypatch.setattr(installation, "version", version)
    monkeypatch.setattr(installation, "requires", lambda name: texts)
    pytest.importorskip("packaging")
    found = list(installation._packages())
    assert [(each.name, each.state, each.detail, each.remedy) for each in found] == [
        ("numpy", "broken", "1.20, where numpy>=1.26 is required", "pip install 'numpy>=1.26'"),
        ("lark", "missing", "not installed", "pip install 'lark<2,>=1.2'"),
    ]
    assert not is_sound(found)
    cuda = of(list(installation._extras()), "memc[cuda]")
    assert (cuda.state, cuda.detail, cuda.remedy) == ("missing", "without nvidia-cublas", "pip install 'memc[cuda]'")
    there |= {"numpy": "2.0", "lark": "1.2.2", "nvidia-cublas": "13.1"}
    assert [each.state for each in installation._packages()] == ["ok"]
    assert of(list(installation._extras()), "memc[cuda]").detail == "nvidia-cudnn-cu13 9.1, nvidia-cublas 13.1"


def test_a_library_that_cannot_be_loaded(memc, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("libmemc_core.so: undefined symbol:\n x")

    monkeypatch.setattr(native, "load", fail)
    result = memc("doctor")
    assert result.code == 1 and "undefined symbol: x" in result.out
    assert "for everything: pip install --force-reinstall memc" in result.out.splitlines()


def test_a_gpu_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "device_names", lambda kind: ("NVIDIA H200",))
    monkeypatch.setenv("MEMC_CUDA_DRIVER", "libno-such-driver.so")
    gpu, driver = installation._gpu()
    assert (gpu.state, gpu.detail) == ("ok", "NVIDIA H200")
    assert (driver.state, driver.remedy) == ("missing", "install NVIDIA's driver for CUDA 13")
    assert is_sound([gpu, driver])


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setattr(installation.os, "access", lambda path, mode: False)
    cache = of(list(installation._storage()), "cache")
    assert (cache.state, cache.remedy) == ("broken", "export XDG_CACHE_HOME=FOLDER")
    assert cache.detail == f"{tmp_path} cannot be written to"


def test_no_compiler_and_no_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MEMC_PHANTOM_PYTHON", str(tmp_path / "python"))
    compiler, torch = installation._tools()
    assert (compiler.state, compiler.remedy) == ("missing", "apt-get install g++")
    assert torch.state == "missing" and "which cannot be run" in torch.detail
