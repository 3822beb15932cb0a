# SPDX-License-Identifier: Apache-2.0
"""Artifacts and executables: results, inputs and outputs, and what is said of damaged artifacts and wrong inputs."""

from __future__ import annotations

import gc
import json
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.errors import InvalidError, MemcError, UnsupportedError, UsageError
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.runtime import codegen, host_cpu
from memc.runtime.artifact import manifest, safetensors
from memc.runtime.artifact import write as artifact
from memc.runtime.artifact.plan_text import checksum, sealed
from memc.runtime.artifact.weight_slab import slab_slots
from memc.runtime.codegen.build import flags_of, host_target
from memc.runtime.execute.load import load
from memc.runtime.execute.loading import check_machine
from memc.runtime.target import CodeTarget

Write = Callable[..., Path]
X = np.random.default_rng(5).normal(size=(4, 8)).astype(np.float32)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("kernels", ["auto", "generated"])
def test_results_equal_the_reference(network: Module, plan: Callable, write: Write, level: int, kernels: str) -> None:
    executable = load(write(plan(network, level, kernels)))
    expected = evaluate(network, {"x": X})
    for found in (executable(X), executable(x=X), executable.run_numpy({"x": X})):
        assert list(found) == ["y0", "y1"]
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_outputs_are_fresh_and_inputs_untouched(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    kept = X.copy()
    first = executable(X)
    before = {name: value.copy() for name, value in first.items()}
    second = executable(X + 1)
    for name in first:
        np.testing.assert_array_equal(first[name], before[name])
        assert not np.array_equal(first[name], second[name])
    np.testing.assert_array_equal(X, kept)
    first["y1"][...] = 0
    np.testing.assert_array_equal(executable(X)["y1"], before["y1"])


def test_any_layout_and_dlpack_tensors_are_accepted(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    expected = executable(X)["y0"]
    shifted = np.empty(X.nbytes + 4, np.uint8)[4:].view(np.float32).reshape(X.shape)
    shifted[...] = X
    frozen = X.copy()
    frozen.flags.writeable = False
    for given in (np.asfortranarray(X), shifted, frozen, X[::1], tvm.runtime.tensor(X)):
        np.testing.assert_array_equal(executable(given)["y0"], expected)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL])
def test_every_element_type_goes_in_and_out(make_module: Callable, plan: Callable, write: Write, dtype: DType) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        return [b.op("add", [inputs[0], inputs[0]]), b.op("equal", [inputs[0], inputs[1]])]

    module = plan(make_module({"a": (dtype, (3, 5)), "b": (dtype, (5,))}, body))
    a, b = (np.arange(n).reshape(s).astype(dtype.numpy) for n, s in ((15, (3, 5)), (5, (5,))))
    found = load(write(module))(a, b)
    assert found["y0"].dtype == dtype.numpy and found["y1"].dtype == np.bool_
    np.testing.assert_array_equal(found["y0"], a + a)
    np.testing.assert_array_equal(found["y1"], a == b)


def test_scalars_and_empty_tensors(make_module: Callable, plan: Callable, write: Write) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        product = b.op("matmul", [inputs[0], inputs[1]], transpose_a=False, transpose_b=False)
        total = b.op("reduce_sum", [product], axes=(0, 1), keepdims=False)
        return [product, b.op("add", [total, inputs[2]])]

    shapes = {"a": (DType.F32, (0, 6)), "b": (DType.F32, (6, 4)), "c": (DType.F32, ())}
    executable = load(write(plan(make_module(shapes, body))))
    found = executable(np.zeros((0, 6), np.float32), np.ones((6, 4), np.float32), np.float32(2.5))
    assert found["y0"].shape == (0, 4) and found["y1"].shape == ()
    assert found["y1"] == 2.5


def test_concat_with_slices_in_place_and_copied(make_module: Callable, plan: Callable, write: Write) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        parts = [b.op("relu", [inputs[0]]), inputs[1], b.op("exp", [inputs[0]])]
        rows = b.op("concat", parts, axis=0)
        columns = b.op("concat", [b.op("neg", [inputs[0]]), inputs[1], inputs[0]], axis=1)
        return [b.op("tanh", [rows]), rows, columns]

    module = plan(make_module({"a": (DType.F32, (2, 32)), "b": (DType.F32, (2, 32))}, body))
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=(2, 32)).astype(np.float32) for _ in range(2))
    found = load(write(module))(a, b)
    rows = np.concatenate([np.maximum(a, 0), b, np.exp(a)])
    np.testing.assert_allclose(found["y1"], rows, rtol=1e-6)
    np.testing.assert_allclose(found["y0"], np.tanh(rows), rtol=1e-5)
    np.testing.assert_array_equal(found["y2"], np.concatenate([-a, b, a], axis=1))


def test_views_of_inputs_at_an_offset(make_module: Callable, plan: Callable, write: Write) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        part = b.op("slice", [inputs[0]], starts=(4, 0), stops=(8, 16), steps=(1, 1))
        return [b.op("exp", [b.op("reshape", [part], shape=(64,))])]

    module = plan(make_module({"a": (DType.F32, (8, 16))}, body))
    a = np.random.default_rng(3).normal(size=(8, 16)).astype(np.float32)
    np.testing.assert_allclose(load(write(module))(a)["y0"], np.exp(a[4:].reshape(-1)), rtol=1e-6)


def test_same_ops_share_a_kernel(make_module: Callable, plan: Callable) -> None:
    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        value = inputs[0]
        for _ in range(6):
            value = b.op("transpose", [b.op("transpose", [value], perm=(1, 0))], perm=(1, 0))
            value = b.op("cumsum", [value], axis=1, exclusive=False, reverse=False)
        return [value]

    module = plan(make_module({"a": (DType.F32, (6, 6))}, body), level=0)
    compiled = codegen.build(module)
    kinds = {op.name for op in module.main.ops}
    assert compiled.kernels == len(kinds)


def test_wrong_inputs_are_told_apart(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    cases: list[tuple[tuple, dict, str]] = [
        ((), {}, "missing inputs: x: f32[4,8]"),
        ((X, X), {}, "got 2 inputs, expected 1"),
        ((), {"z": X}, "no input is called z; expected x: f32[4,8]"),
        ((X,), {"x": X}, "given twice"),
        ((X[:3],), {}, "input x: expected f32[4,8], got f32[3,8]"),
        ((X.astype(np.float64),), {}, "input x: expected f32[4,8], got f64[4,8]"),
        ((X.astype(">f4"),), {}, "input x: expected f32[4,8], got >f4[4,8]"),
        ((X.tolist(),), {}, "expected a numpy array or a DLPack tensor, got list"),
    ]
    for args, kwargs, message in cases:
        with pytest.raises(UsageError) as caught:
            executable(*args, **kwargs)
        assert message in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no output is called q"):
        executable.output("q")


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
        (lambda p: edit(p, machine="plan9-vax"), UnsupportedError, "compiled for plan9-vax"),
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
    check_machine(manifest.read(path))
    monkeypatch.setattr(host_cpu, "cpu_flags", lambda: has - {lacks})
    with pytest.raises(UnsupportedError, match=f"compiled for CPU {cpu}, this one lacks {lacks}; compile for it"):
        load(path)
    monkeypatch.setattr(host_cpu, "cpu_flags", frozenset)
    check_machine(manifest.read(path))


def test_the_flags_of_named_levels_are_those_that_code_for_them_uses() -> None:
    known: set[str] = {"sse", "sse2"}
    for level, added in host_cpu.X86_LEVELS.items():
        known |= added
        used = set(flags_of(host_target(CodeTarget.create("llvm", mcpu=level))))
        assert used <= known and known - used <= {"sse", "sse2", "cx16", "lahf_lm", "xsave"}


def test_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="found nothing"):
        load(tmp_path / "none.memc")


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


def test_weights_of_every_type_survive(make_module: Callable, plan: Callable, write: Write) -> None:
    rng = np.random.default_rng(0)
    half = rng.normal(size=(4, 9)).astype(ml_dtypes.bfloat16)
    odd = rng.integers(0, 2, (3, 7)).astype(np.bool_)

    def body(b: IRBuilder, inputs: Sequence[Value]) -> Sequence[Value]:
        return [
            b.op("add", [b.constant(half), inputs[0]]),
            b.op("logical_not", [b.constant(odd)]),
            b.op("add", [b.constant(np.arange(40.0)), b.constant(np.float64(0.5))]),
        ]

    module = plan(make_module({"x": (DType.BF16, (4, 9))}, body), level=0)
    found = load(write(module))(np.zeros((4, 9), ml_dtypes.bfloat16))
    np.testing.assert_array_equal(found["y0"].astype(np.float32), half.astype(np.float32))
    np.testing.assert_array_equal(found["y1"], ~odd)
    np.testing.assert_array_equal(found["y2"], np.arange(40.0) + 0.5)


def test_calls_from_several_threads(network: Module, plan: Callable, write: Write) -> None:
    executable = load(write(plan(network)))
    inputs = [np.full_like(X, n / 10) for n in range(4)]
    expected = [executable(x) for x in inputs]

    def run(n: int) -> bool:
        return all(np.array_equal(executable(inputs[n])["y0"], expected[n]["y0"]) for _ in range(100))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, range(4)))


def test_code_is_unloaded_with_its_last_executable(network: Module, plan: Callable, write: Write) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("model.so")

    path = write(plan(network))
    gc.collect()
    before = mapped()
    executable = load(path)
    session = executable.session()
    expected = executable(X)
    del executable
    found = session(X)
    assert mapped() > before
    del session
    gc.collect()
    assert mapped() == before
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def test_weights_and_constants_of_one_name_are_told_apart() -> None:
    weight = Value("constant.0", TensorType(DType.F32, (2,)), role=Role.WEIGHT)
    odd = Value("__metadata__", TensorType(DType.F32, (2,)), role=Role.WEIGHT)
    function = Function(params=[weight, odd])
    IRBuilder(Module([function]), function, function.ops).constant(np.ones(2, np.float32))
    function.ops[0].result.name = "0"
    names = [slot.name for slot in slab_slots(function, 64)]
    assert len(set(names)) == 3 and "constant.0" in names and "__metadata__" not in names


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
