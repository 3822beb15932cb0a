# SPDX-License-Identifier: Apache-2.0
"""Artifacts that take the place of others, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memc.ir.errors import UsageError
from memc.ir.module import Module
from memc.runtime import codegen
from memc.runtime.artifact import write as artifact
from memc.runtime.execute.load import load

Write = Callable[..., Path]
X = np.random.default_rng(5).normal(size=(4, 8)).astype(np.float32)


def test_no_partial_artifact_is_left(
    network: Module, plan: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = codegen.build(plan(network))

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifact.safetensors, "write", fail)
    with pytest.raises(UsageError, match="No space left"):
        artifact.write(tmp_path / "model.memc", network, compiled, {})
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_is_replaced_and_other_folders_are_not(
    network: Module, plan: Callable, write: Write, tmp_path: Path
) -> None:
    path = write(plan(network))
    (path / "old").touch()
    assert write(network) == path and not (path / "old").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.memc"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(UsageError, match="is not an artifact"):
        write(network, name="mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_a_link_to_an_artifact_stays(network: Module, plan: Callable, write: Write, tmp_path: Path) -> None:
    path = write(plan(network))
    link = tmp_path / "latest.memc"
    link.symlink_to(path.name)
    (path / "old").touch()
    assert write(network, name=link.name) == link and link.is_symlink() and not (path / "old").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest.memc", "model.memc"]
    assert list(load(link)(X)) == ["y0", "y1"]


def test_the_current_folder_is_not_replaced(
    network: Module, plan: Callable, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(plan(network)))
    with pytest.raises(UsageError, match="is the current folder"):
        artifact.write(".", network, codegen.build(network), {})


def test_an_artifact_survives_when_its_successor_cannot_take_its_place(
    network: Module, plan: Callable, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(plan(network))
    compiled = codegen.build(network)
    rename = artifact.os.rename

    def fail(source: Path, target: Path) -> None:
        if target == path and not str(source).endswith(".old"):
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(artifact.os, "rename", fail)
    with pytest.raises(UsageError, match="Input/output error"):
        artifact.write(path, network, compiled, {})
    assert [p.name for p in path.parent.iterdir()] == [path.name] and list(load(path)(X)) == ["y0", "y1"]
