# SPDX-License-Identifier: Apache-2.0
"""Artifacts whose files were edited: each edit is refused in one line, or changes nothing that a run does; also where whoever
edited them gave them the checksums that they have then. Nothing is read or written past its end."""

from __future__ import annotations

import copy
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import pytest

import memc
from memc.ir.errors import InvalidError, MemcError
from memc.runtime.artifact.plan_text import INTERFACE, MOST, checksum, parsed, sealed

X = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)

WRONG: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    64,
    2**31,
    2**62,
    MOST,
    1.5,
    64.0,
    "",
    "x",
    "f64",
    [],
    {},
    [1],
    {"a": 1},
)


def model() -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[3,5] x) => (float[3,4] y, float[3,4] z) '
        "{ h = MatMul(x, w)\n s = Add(h, b)\n y = Tanh(s)\n e = Exp(s)\n z = CumSum(e, one) }"
    )
    rng = np.random.default_rng(2)
    for name, shape in (("w", (5, 4)), ("b", (4,))):
        made.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "one"))
    return made


@pytest.fixture(scope="module", params=["inference", "training"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp(request.param) / "model.memc"
    train = memc.BuildGradient(loss="mse", optimizer="adam") if request.param == "training" else None
    memc.compile(model(), path, train=train)
    return path


def result(path: Path) -> dict[str, np.ndarray]:
    """What a run gives."""
    executable = memc.load(path)
    inputs = {spec.name: np.full(spec.shape, 0.01, np.float32) for spec in executable.inputs}
    return executable.run_numpy({**inputs, "x": X})


def leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each part of a plan, inner ones before what holds them."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in parts:
        yield from leaves(item, (*at, key))
        yield (*at, key)


def inside(data: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        data = data[key]
    return data


def edits(plan: dict[str, Any], every: int) -> Iterator[tuple[tuple[Any, ...], str, dict[str, Any]]]:
    """Plans with one part changed, left out, or twice there; one of `every` such plans, but all that leave a part out."""
    count = 0
    for at in leaves(plan):
        old = inside(plan, at)
        values = [value for value in WRONG if type(value) is not type(old) or value != old]
        if type(old) is int:
            values += [old + 1, old - 1, old + 64, 2 * old, -old]
        if isinstance(old, list):
            values += [[*old, old[-1]], old[:-1], old[::-1], [*old, 0]] if old else []
        for value in values:
            count += 1
            if (type(value) is type(old) and value == old) or count % every:
                continue
            changed = copy.deepcopy(plan)
            inside(changed, at[:-1])[at[-1]] = value
            yield at, f"{at} = {value!r}", changed
        changed = copy.deepcopy(plan)
        del inside(changed, at[:-1])[at[-1]]
        yield at, f"{at} left out", changed


def refuses(path: Path, what: str) -> MemcError | None:
    """The error of loading, which is one line; None if it loads."""
    try:
        memc.load(path)
    except MemcError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000, what
        assert error.exit_code in (2, 3), what
        return error
    return None


ALL_OR_SOME = pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])


@ALL_OR_SOME
def test_every_edit_is_refused(built: Path, tmp_path: Path, every: int) -> None:
    path = tmp_path / "model.memc"
    shutil.copytree(built, path)
    plan = parsed((built / "plan.json").read_bytes())
    count = 0
    for _, what, changed in edits(plan, every):
        (path / "plan.json").write_text(json.dumps(changed, indent=1) + "\n")
        assert isinstance(refuses(path, what), InvalidError), what
        count += 1
    assert count > 4000 / every


@ALL_OR_SOME
def test_edits_with_their_checksum_do_not_reach_past_buffers(built: Path, tmp_path: Path, every: int) -> None:
    """What the code needs is refused if it says otherwise; the rest changes nothing that a run does."""
    path = tmp_path / "model.memc"
    shutil.copytree(built, path)
    plan = parsed((built / "plan.json").read_bytes())
    expected, seen = result(built), set()
    for at, what, changed in edits(plan, every):
        if at == ("checksum",):
            continue
        (path / "plan.json").write_bytes(sealed(changed))
        error = refuses(path, what)
        if at[0] in (*INTERFACE, "format", "version", "platform", "library_bytes"):
            assert error is not None, what
        if error is None and at not in seen:
            seen.add(at)
            found = result(path)
            assert list(found) == list(expected), what
            for name, value in expected.items():
                np.testing.assert_array_equal(found[name], value, err_msg=what)
    assert {at[0] for at in seen} <= {"values", "report", "calls", "kernels", "precision", "checksums"}


@pytest.mark.parametrize("places", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_every_byte_of_the_plan(built: Path, tmp_path: Path, places: int) -> None:
    path = tmp_path / "model.memc"
    shutil.copytree(built, path)
    whole = (built / "plan.json").read_bytes()
    for position in range(0, len(whole), 1 + len(whole) // places):
        for data in (
            whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :],
            whole[:position] + b" " + whole[position:],
            whole[:position],
        ):
            (path / "plan.json").write_bytes(data)
            assert isinstance(refuses(path, f"byte {position}"), InvalidError), position


def replaced(old: str, new: str) -> Callable[[str], str]:
    def replace(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return replace


@pytest.mark.parametrize(
    "change, says",
    [
        (replaced('"alignment": 64', '"alignment": NaN'), "expected a number, got NaN"),
        (replaced('"alignment": 64', '"alignment": -Infinity'), "expected a number, got -Infinity"),
        (replaced('"alignment": 64', '"alignment": 1e999'), "expected a number of 64 bits, got 1e999"),
        (replaced('"alignment": 64', '"alignment": ' + "9" * 5000), "expected a number of 64 bits, got 999"),
        (replaced('"alignment": 64', '"alignment": 9223372036854775808'), "expected a number of 64 bits"),
        (replaced('"alignment": 64', '"alignment": 64, "alignment": 32'), "`alignment` is given twice"),
        (replaced('"alignment": 64', '"alignment": 64, "more": ' + "[" * 20000 + "]" * 20000), "damaged plan"),
        (lambda text: "\ufeff" + text, "damaged plan"),
        (lambda text: text + "{}", "damaged plan"),
        (lambda text: "", "damaged plan"),
        (lambda text: "[" * 100000, "damaged plan"),
        (lambda text: "3", "expected an object, got int"),
        (lambda text: "null", "expected an object, got NoneType"),
    ],
)  # fmt: skip
def test_text_that_is_no_plan(built: Path, tmp_path: Path, change: Callable[[str], str], says: str) -> None:
    path = tmp_path / "model.memc"
    shutil.copytree(built, path)
    (path / "plan.json").write_text(change((built / "plan.json").read_text()))
    error = refuses(path, says)
    assert error is not None and says in str(error) and str(path / "plan.json") in str(error)
    (path / "plan.json").write_bytes(b"\xff\xfe{")
    assert isinstance(refuses(path, "no text"), InvalidError)


def test_a_plan_of_another_model(built: Path, tmp_path: Path) -> None:
    """Sizes that fit one another, but not the code."""
    path = tmp_path / "model.memc"
    shutil.copytree(built, path)
    plan = parsed((built / "plan.json").read_bytes())
    for changes, key in (
        ({"inputs": [{**plan["inputs"][0], "shape": plan["inputs"][0]["shape"][::-1]}, *plan["inputs"][1:]]}, "inputs"),
        (
            {"outputs": [{**plan["outputs"][0], "shape": [1, *plan["outputs"][0]["shape"]]}, *plan["outputs"][1:]]},
            "outputs",
        ),
        ({"inputs": [{**plan["inputs"][0], "dtype": "i32"}, *plan["inputs"][1:]]}, "inputs"),
        ({"spaces": [{**s, "bytes": s["bytes"] + 64 * (s["holds"] == "weights")} for s in plan["spaces"]]}, "spaces"),
        ({"spaces": [{**plan["spaces"][0], "bytes": 1 << 20}, *plan["spaces"][1:]]}, "spaces"),
        ({"spaces": [*plan["spaces"], {**plan["spaces"][0], "name": "host"}]}, "spaces"),
        ({"spaces": [plan["spaces"][1], plan["spaces"][0], *plan["spaces"][2:]]}, "spaces"),
        ({"library_functions": 2 * plan["library_functions"]}, "library_functions"),
    ):
        (path / "plan.json").write_bytes(sealed({**plan, **changes}))
        with pytest.raises(
            InvalidError, match=rf"plan.json: is not of this model.so: {key}: the code has .*, the plan "
        ):
            memc.load(path)
    for key in ("inputs", "outputs"):
        (path / "plan.json").write_bytes(sealed({**plan, key: [{**plan[key][0], "dtype": "f64"}, *plan[key][1:]]}))
        with pytest.raises(InvalidError, match="damaged plan .*: space io: expected"):
            memc.load(path)


def weights_file(header: dict[str, Any], data: bytes) -> bytes:
    """A weights file of a header, with its checksum."""
    text = json.dumps({"__metadata__": {"crc32": "00000000"}, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    crc = f"{zlib.crc32(data, zlib.crc32(text)):08x}".encode()
    return len(text).to_bytes(8, "little") + text.replace(b"00000000", crc, 1) + data


def test_headers_of_weights(built: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.memc"
    shutil.copytree(built, path)
    whole = (built / "weights.safetensors").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    del header["__metadata__"]
    (path / "weights.safetensors").write_bytes(weights_file(header, data))
    assert refuses(path, "as it was") is None
    for number, at in enumerate(leaves(header)):
        old = inside(header, at)
        values = (*WRONG, "F64", "I32", [0, 0], [0, 2**62], [-8, 8], [8, 0], [0, 4], float("nan"), 10**30)
        for value in values[number % 7 :: 7]:
            if type(value) is type(old) and value == old:
                continue
            changed = copy.deepcopy(header)
            inside(changed, at[:-1])[at[-1]] = value
            (path / "weights.safetensors").write_bytes(weights_file(changed, data))
            assert isinstance(refuses(path, f"{at} = {value!r}"), InvalidError), (at, value)
    names = list(header)
    twice = {**header, names[0]: {**header[names[0]], "data_offsets": header[names[-1]]["data_offsets"]}}
    less = {name: header[name] for name in names[1:]}
    for changed in (twice, less, {}):
        (path / "weights.safetensors").write_bytes(weights_file(changed, data))
        assert isinstance(refuses(path, str(changed)), InvalidError)
    text = whole[8 : 8 + length].replace(b'"shape"', b'"dtype":"F64","shape"', 1)
    for damaged in (
        (2**63).to_bytes(8, "little") + whole[8:],
        len(text).to_bytes(8, "little") + text + data,
        whole[:7],
        b"",
        whole + b"\0",
        whole[:-1],
        (100000).to_bytes(8, "little") + b"[" * 100000,
        (12).to_bytes(8, "little") + b'{"\xff": null}',
    ):
        (path / "weights.safetensors").write_bytes(damaged)
        assert isinstance(refuses(path, "damaged"), InvalidError)


def test_files_beside_the_plan(built: Path, tmp_path: Path) -> None:
    """The text and the source have checksums too, for those who read them."""
    path = tmp_path / "model.memc"
    shutil.copytree(built, path)
    plan = parsed((built / "plan.json").read_bytes())
    for name, said in plan["checksums"].items():
        assert said == checksum((built / name).read_bytes())
    assert {"model.so", "model.memir"} <= set(plan["checksums"])
    (path / "model.memir").write_text((path / "model.memir").read_text().replace("f32", "f64"))
    assert refuses(path, "running does not read it") is None
    with pytest.raises(InvalidError, match="model.memir: damaged: expected the checksum"):
        memc.bench(path, runs=1, warmup=0, profiled_runs=1)
    (path / "kernels.cubin").write_bytes(b"not asked for")
    assert refuses(path, "nothing calls it") is None
    (path / "model.so").unlink()
    (path / "model.so").mkdir()
    assert isinstance(refuses(path, "a folder"), InvalidError)


def test_a_source_that_was_changed_is_not_exported(tmp_path: Path) -> None:
    path = tmp_path / "model.memc"
    step: Any = memc.compile(model(), path, train=memc.BuildGradient(loss="mse")).load()
    step.export_onnx(tmp_path / "trained.onnx")
    data = (path / "source.onnx").read_bytes()
    (path / "source.onnx").write_bytes(data[:-5])
    with pytest.raises(InvalidError, match="source.onnx: damaged: expected the checksum"):
        step.export_onnx(tmp_path / "other.onnx")
    plan = parsed((path / "plan.json").read_bytes())
    plan["checksums"]["source.onnx"] = checksum(data[:-5])
    (path / "plan.json").write_bytes(sealed(plan))
    with pytest.raises(InvalidError, match="source.onnx: damaged: .*; compile again"):
        memc.load(path).export_onnx(tmp_path / "other.onnx")  # type: ignore[attr-defined]
    assert not (tmp_path / "other.onnx").exists()
