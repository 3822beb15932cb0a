# SPDX-License-Identifier: Apache-2.0
"""Files for others: SVG, PNG, PyTorch's snapshots and annotated models, read back."""

from __future__ import annotations

import pickle
import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.errors import UsageError
from memc.picture.colours import HUES
from memc.picture.drawing import drawing_of
from memc.picture.from_snapshot import picture_of_snapshot
from memc.picture.outputs import write_kind, write_page
from memc.picture.picture import PlanPicture
from memc.picture.sources import Subject

SVG = "{http://www.w3.org/2000/svg}"


def test_svg_has_a_rectangle_for_each_life(picture: PlanPicture, tmp_path: Path) -> None:
    write_kind(".svg", tmp_path / "p.svg", Subject(picture))
    root = ElementTree.parse(tmp_path / "p.svg").getroot()
    assert root.find(f"{SVG}title").text == "net.onnx: addresses over ops"  # type: ignore[union-attr]
    paths = {
        path.get("fill"): path.get("d", "") for path in root.iter(f"{SVG}path") if "h12v12" not in path.get("d", "")
    }
    # Roles: activations (a, b), workspaces (w twice), and gradients (g), which is a role that only this picture has.
    assert {colour: text.count("M") for colour, text in paths.items()} == {HUES[0]: 2, HUES[4]: 2, HUES[7]: 1}
    left, top, width, height = map(float, re.findall(r"-?[\d.]+", paths[HUES[7]])[:4])
    inner = (900 - 84 - 40, 560 - 34 - 62)
    assert (left, width) == pytest.approx((84 + inner[0] * 3 / 5, inner[0] * 2 / 5), abs=0.5)
    assert (top + height, height) == pytest.approx((34 + inner[1], inner[1] * 60 / 400), abs=0.5)
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"net.onnx", "lower bound 384 B", "activations", "gradients", "workspaces"} <= set(words)


def test_equal_rectangles_are_drawn_once(picture: PlanPicture) -> None:
    from dataclasses import replace

    tiny = [replace(picture.tensors[0], name=f"t{at}", lives=((at, at + 1),), nbytes=1) for at in range(100_000)]
    drawn = drawing_of(replace(picture, tensors=tiny, steps=100_000))
    assert sum(len(boxes) for _, boxes in drawn.boxes) < 3000


def test_png(picture: PlanPicture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_kind(".png", tmp_path / "p.png", Subject(picture))
    data = (tmp_path / "p.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1875, 1166)  # 900 and 560 CSS pixels at 200 dots an inch.


def test_png_without_matplotlib(picture: PlanPicture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install 'memc\[report\]'"):
        write_kind(".png", tmp_path / "p.png", Subject(picture))
    assert not (tmp_path / "p.png").exists()


def test_a_snapshot_is_read_back(picture: PlanPicture, tmp_path: Path) -> None:
    path = tmp_path / "p.pickle"
    write_kind(".pickle", path, Subject(picture))
    data = pickle.loads(path.read_bytes())
    (segment,) = data["segments"]
    assert (segment["total_size"], segment["blocks"][0]["state"]) == (400, "inactive")
    trace = data["device_traces"][0]
    assert [entry["action"] for entry in trace[:3]] == ["segment_alloc", "alloc", "alloc"]
    base = segment["address"]
    allocated = [
        (entry["addr"] - base, entry["size"], entry["time_us"]) for entry in trace if entry["action"] == "alloc"
    ]
    assert allocated == [(0, 100, 0), (128, 130, 1000), (320, 64, 1000), (0, 60, 4000), (320, 64, 5000)]
    assert trace[2]["frames"][1] == {"name": "activations", "filename": "net.py", "line": 7}
    again = picture_of_snapshot(path)
    assert len(again.tensors) == 5 and not any(tensor.decision for tensor in again.tensors)


def model(path: Path) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Softmax", ["m"], ["s"], name="soft"),
        helper.make_node("MatMul", ["s", "w"], ["y"], name="last"),
    ]
    nodes[0].metadata_props.add(
        key="pkg.torch.onnx.stack_trace",
        value='File "net.py", line 12, in forward\n  File "/s/torch/nn/l.py", line 3',
    )
    nodes[1].metadata_props.add(key="memc.ops", value="of an earlier plan")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", shapes[:1], shapes[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), str(path))
    return path


def test_an_annotated_model_and_source_lines(tmp_path: Path) -> None:
    shown = memc.write_report(model(tmp_path / "m.onnx"), tmp_path / "a.onnx", kernels="library")
    found = onnx.load(str(tmp_path / "a.onnx"))
    onnx.checker.check_model(found)
    product, soft, _ = ({entry.key: entry.value for entry in node.metadata_props} for node in found.graph.node)
    tensor = next(tensor for tensor in shown.tensors if tensor.name == "m")
    assert tensor.place == "product at net.py:12"
    step = tensor.lower
    assert product["memc.ops"] == f"{step} matmul"
    assert product["memc.lifetimes"] == f"%m: ops {step} to {tensor.upper - 1}"
    assert product["memc.addresses"] == f"%m: arena[{tensor.offset}], 256 bytes"
    assert product["memc.decisions"].startswith(f"%m: {tensor.decision}")
    assert "pkg.torch.onnx.stack_trace" in product and "of an earlier plan" not in soft["memc.ops"]
    assert "memc.addresses" in soft


def test_only_models_are_annotated(picture: PlanPicture, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="of an .onnx model alone"):
        memc.write_report(picture, tmp_path / "a.onnx")


def test_names_of_files(picture: PlanPicture, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a name that ends in .html, .svg"):
        memc.write_report(picture, tmp_path / "a.pdf")
    with pytest.raises(UsageError, match="expected a page in .html"):
        memc.write_report(picture, tmp_path / "a.svg", diff=picture)
    with pytest.raises(UsageError, match="cannot write: No such file"):
        write_page(tmp_path / "no" / "a.html", picture)


def test_the_page_is_one_file_with_its_licence(picture: PlanPicture, tmp_path: Path) -> None:
    memc.write_report(picture, tmp_path / "a.html", diff=picture)
    text = (tmp_path / "a.html").read_text()
    assert "Copyright (c) 2022 Leon Sorokin" in text and "{{" not in text.split("<script")[0]
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
