# SPDX-License-Identifier: Apache-2.0
"""What is said of artifacts that are damaged, or made for another CPU."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from memc.ir.errors import InvalidError, MemcError, UnsupportedError
from memc.ir.module import Module
from memc.runtime import host_cpu
from memc.runtime.artifact import safetensors
from memc.runtime.artifact.plan_text import checksum, sealed
from memc.runtime.artifact.read import read_manifest
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen.build import flags_of, host_target
from memc.runtime.execute.load import load
from memc.runtime.execute.load_code import check_machine

Write = Callable[..., Path]


def edit(path: Path, **changes: object) -> None:
    """Change plan.json, with the checksum that it has then."""
    data = json.loads((path / "plan.json").read_text())
    (path / "plan.json").write_bytes(sealed({**data, **changes}))


TARGET = {"kind": "llvm", "arch": "", "cpu": "", "cpu_flags": []}


def recount(path: Path) -> None:
    """Give plan.json the size and the checksum that model.so has."""
    library = (path / "model.so").read_bytes()
    edit(path, library_bytes=len(library), checksums={"model.so": checksum(library)})


def cut(path: Path, divisor: int) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // divisor])


def write_as_long(path: Path, data: bytes) -> None:
    """`data`, then zeros up to the size the file has."""
    path.write_bytes(data + b"\0" * (path.stat().st_size - len(data)))


def flip(path: Path, at: float) -> None:
    """Turn a byte over, `at` of the way through the file."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0xFF
    path.write_bytes(data)


def change(path: Path, key: str, number: int = 0, **changes: object) -> None:
    """`changes` in one of the tensors or spaces that plan.json lists as `key`."""
    data = json.loads((path / "plan.json").read_text())
    data[key][number].update(changes)
    edit(path, **{key: data[key]})


@pytest.mark.parametrize(
    "damage,kind,message",
    [
        (lambda p: (p / "model.so").unlink(), InvalidError, "artifact has no model.so"),
        (lambda p: (p / "weights.safetensors").unlink(), InvalidError, "artifact has no weights.safetensors"),
        (lambda p: (p / "plan.json").write_text("{"), InvalidError, "damaged plan"),
        (lambda p: (p / "plan.json").write_text("[]"), InvalidError, "damaged plan"),
        (lambda p: edit(p, format="zip"), InvalidError, "expected format memc-artifact, got 'zip'"),
        (lambda p: edit(p, version=99), InvalidError, "expected version 4, got 99; compile again"),
        (lambda p: edit(p, platform="plan9-vax"), UnsupportedError, "compiled for plan9-vax"),
        (lambda p: edit(p, library_functions=["memc.cpu.no"]), UnsupportedError, "needs memc.cpu.no"),
        (lambda p: cut(p / "model.so", 3), InvalidError, "model.so: expected"),
        (lambda p: write_as_long(p / "model.so", b"no"), InvalidError, "model.so: damaged: expected the checksum"),
        (lambda p: (write_as_long(p / "model.so", b"no"), recount(p)), InvalidError, "cannot be loaded"),
        (lambda p: cut(p / "weights.safetensors", 2), InvalidError, "damaged weights"),
        (lambda p: (p / "weights.safetensors").write_bytes(b"\2" + b"\0" * 7 + b"[]"), InvalidError, "damaged weights"),
        (lambda p: (p / "weights.safetensors").write_bytes(b"\xff" * 9), InvalidError, "damaged weights"),
        (lambda p: (p / "weights.safetensors").write_bytes(b"\2" + b"\0" * 7 + b"{}"), InvalidError, "no checksum"),
        (lambda p: safetensors.write(p / "weights.safetensors", []), InvalidError, "found nothing"),
        (lambda p: flip(p / "weights.safetensors", 0.9), InvalidError, "expected the checksum"),
        (lambda p: flip(p / "model.so", 0.02), InvalidError, "model.so: damaged: expected the checksum"),
        (lambda p: flip(p / "model.so", 0.6), InvalidError, "model.so: damaged: expected the checksum"),
        (
            lambda p: edit(p, checksums={"model.so": "", "kernels.cubin": "00000000"}),
            InvalidError,
            "artifact has no kernels.cubin",
        ),
        (lambda p: edit(p, checksums=["model.so"]), InvalidError, "damaged plan"),
        (lambda p: edit(p, version=3), InvalidError, "plan.json: expected version 4, got 3; compile again"),
        (
            lambda p: change(p, "spaces", 1, bytes=0),
            InvalidError,
            "damaged plan (ValueError: weights: expected room for",
        ),
        (lambda p: change(p, "spaces", alignment=0), InvalidError, "space arena: expected an alignment of at least 1"),
        (lambda p: change(p, "spaces", device="tpu:0"), InvalidError, "a device such as cpu:0"),
        (lambda p: change(p, "spaces", 1, name="arena"), InvalidError, "spaces: expected arena and others, each once"),
        (lambda p: change(p, "spaces", name="other"), InvalidError, "spaces: expected arena and others, each once"),
        (lambda p: change(p, "spaces", 1, device="cpu:1"), InvalidError, "devices: expected those of the spaces, got"),
        (lambda p: change(p, "spaces", 2, bytes=8), InvalidError, "space io: expected 1152 bytes, got 8"),
        (lambda p: change(p, "inputs", space="arena"), InvalidError, "x: expected a space that holds io, got arena"),
        (lambda p: change(p, "inputs", space="host"), InvalidError, "a space among arena, weights, io, got 'host'"),
        (lambda p: edit(p, devices=["cuda:0"]), InvalidError, "devices: expected those of the spaces, got cuda:0"),
        (lambda p: edit(p, library_functions=[3]), InvalidError, "damaged plan (TypeError: expected a string, got 3"),
        (lambda p: edit(p, target={**TARGET, "kind": "metal"}), InvalidError, "got 'metal'"),
        (lambda p: edit(p, target={**TARGET, "kind": "cuda"}), InvalidError, "expected an arch such as"),
        (lambda p: change(p, "weights", offset=1 << 30), InvalidError, "damaged plan (ValueError: weights"),
        (lambda p: change(p, "weights", offset=64), InvalidError, "damaged plan (ValueError: weight"),
        (lambda p: change(p, "weights", offset=-64), InvalidError, "expected a number from 0 on, got -64"),
        (lambda p: change(p, "inputs", shape=[-1, 8]), InvalidError, "x: expected sizes from 0 on, got [-1, 8]"),
        (lambda p: change(p, "inputs", name=3), InvalidError, "damaged plan (TypeError: expected a string, got 3"),
    ],
)
def test_damaged_artifacts(
    network: Module, plan: Callable, write: Write, damage: Callable, kind: type[MemcError], message: str
) -> None:
    path = write(plan(network))
    damage(path)
    with pytest.raises(kind) as caught:
        load(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names CPUs of x86-64")
@pytest.mark.parametrize(
    "cpu,lacks",
    [("x86-64-v4", "avx512bw"), ("haswell", "fma"), ("znver4", "avx512_bf16"), ("sapphirerapids", "avx512_fp16")],
)
def test_code_for_another_cpu_is_refused(
    network: Module, plan: Callable, write: Write, monkeypatch: pytest.MonkeyPatch, cpu: str, lacks: str
) -> None:
    path = write(plan(network), mcpu=cpu)
    has = frozenset(json.loads((path / "plan.json").read_text())["target"]["cpu_flags"]) | {"cx16", "lahf_lm", "xsave"}
    monkeypatch.setattr(host_cpu, "cpu_flags", lambda: has)
    check_machine(read_manifest(path))
    monkeypatch.setattr(host_cpu, "cpu_flags", lambda: has - {lacks})
    with pytest.raises(UnsupportedError, match=f"compiled for CPU {cpu}, this one lacks {lacks}; compile for it"):
        load(path)
    monkeypatch.setattr(host_cpu, "cpu_flags", frozenset)
    check_machine(read_manifest(path))


def test_the_flags_of_named_levels_are_those_that_code_for_them_uses() -> None:
    known: set[str] = {"sse", "sse2"}
    for level, added in host_cpu.X86_LEVELS.items():
        known |= added
        used = set(flags_of(host_target(CodeTarget.create("llvm", mcpu=level))))
        assert used <= known and known - used <= {"sse", "sse2", "cx16", "lahf_lm", "xsave"}


def test_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="found nothing"):
        load(tmp_path / "none.memc")
