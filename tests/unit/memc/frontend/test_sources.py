# SPDX-License-Identifier: Apache-2.0
"""Files are read by the endings of their names, from one table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx.parser
import pytest

import memc
from memc.frontend import sources
from memc.frontend.sources import FORMATS, GRAPH, MEMIR, ONNX, Reading, format_of, load

TEXT = 'func @main(%x: f32[4] {role = input}) -> (f32[4] {name = "y"}) {\n  %y = exp(%x) : f32[4]\n  return %y\n}\n'


def test_formats_by_name() -> None:
    for name, found in (
        ("m.onnx", ONNX),
        (Path("a/b.memir"), MEMIR),
        ("g.json", GRAPH),
        ("g.json.gz", GRAPH),
        ("m.gz", None),
        ("onnx", None),
        (b"m.onnx", None),
    ):
        assert format_of(name) is found
    endings = [suffix for each in FORMATS for suffix in each.suffixes]
    assert len(endings) == len(set(endings))


def test_each_format_is_read(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Exp(x) }'
    )
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "m.memir").write_text(TEXT)
    graph = {"tensors": [], "storages": [], "nodes": []}
    (tmp_path / "m.json").write_text(json.dumps(graph))
    how = Reading(dims={"n": 4})
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.memir"), model, model.SerializeToString(), memc.parse(TEXT)):
        assert [(op.name, op.result.type.shape) for op in load(source, how).main.ops] == [("exp", (4,))]
    with pytest.raises(memc.MemcError, match=r"m\.json: .*"):  # Read as a graph, which it is not.
        load(tmp_path / "m.json", how)


@pytest.mark.parametrize("name", ["m.pt", "m", "m.onnx.txt"])
def test_a_file_of_an_unknown_kind(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    for call in (memc.compile, memc.bench, memc.verify):
        with pytest.raises(memc.MemcError) as caught:
            call(tmp_path / name)
        assert str(caught.value) == (
            f"{tmp_path / name}: expected a file whose name ends in .onnx (an ONNX model), .pt2 (an exported program of "
            "PyTorch), .memir (IR text), .json or .json.gz (a dataflow graph)"
        )
        assert caught.value.exit_code == 3


def test_a_new_format_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added = replace(MEMIR, suffixes=(".ir2",), read=lambda path, how: memc.parse(Path(path).read_text()))
    monkeypatch.setattr(sources, "FORMATS", (*FORMATS, added))
    (tmp_path / "m.ir2").write_text(TEXT)
    assert memc.compile(tmp_path / "m.ir2", plan_only=True).report.ops >= 1
    assert memc.plan(tmp_path / "m.ir2").peak == 0
