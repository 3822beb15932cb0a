# SPDX-License-Identifier: Apache-2.0
"""memc report on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx

CSV = "id,lower,upper,size\na,0,2,64\nb,1,3,128\n"


def shown(path: Path) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_page_of_a_problem(memc, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(CSV)
    result = memc("report", "p.csv")
    assert (result.code, result.out) == (0, "wrote p.html\n")
    (picture,) = shown(tmp_path / "p.html")["pictures"]
    assert (picture["title"], picture["steps"], picture["spaces"][0]["bytes"]) == ("p.csv", 3, 192)


def test_other_files_instead_of_the_page(memc, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(CSV)
    result = memc("report", "p.csv", "--svg", "p.svg", "--snapshot", "p.pickle", "-q")
    assert (result.code, result.out) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.pickle", "p.svg"]
    assert memc("report", "p.pickle", "-o", "again.html", "--device", "0").code == 0
    assert len(shown(tmp_path / "again.html")["pictures"][0]["roles"]) == 1


def test_a_picture_and_a_model_at_once(memc, model: Path, tmp_path: Path) -> None:
    result = memc("report", str(model), "--dim", "batch=8", "--svg", "m.svg", "--onnx", "m.onnx")
    assert (result.code, result.out, result.err) == (0, "wrote m.svg\nwrote m.onnx\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.svg"]
    assert (tmp_path / "m.svg").read_text().startswith("<svg ")
    graph = onnx.load(tmp_path / "m.onnx").graph
    told = {node.name: {each.key: each.value for each in node.metadata_props} for node in graph.node}
    assert told == {
        "matmul": {"memc.ops": "0 constant", "memc.addresses": "%0: weights"},
        "relu": {"memc.ops": "1 matmul+relu", "memc.addresses": "%r: io"},
        "add": {"memc.ops": "2 constant; 3 add", "memc.addresses": "%3: weights; %y: io"},
    }


def test_two_plans(memc, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(CSV)
    (tmp_path / "q.csv").write_text(CSV.replace("64", "96"))
    assert memc("report", "p.csv", "--diff", "q.csv", "-o", "d.html").code == 0
    data = shown(tmp_path / "d.html")
    assert [each["title"] for each in data["pictures"]] == ["p.csv", "q.csv"]
    assert "64 B to 96 B" in data["texts"] or any("64 B to 96 B" in text for text in data["texts"])


def test_a_model_under_a_budget(memc, model: Path, tmp_path: Path) -> None:
    result = memc(
        "report", str(model), "--dim", "batch=8", "--memory-budget", "1MiB", "-o", "m.html", "--title", "mine"
    )
    assert result.code == 0
    (picture,) = shown(tmp_path / "m.html")["pictures"]
    assert picture["title"] == "mine" and dict(picture["facts"])["budget"] == "1.00 MiB"
    assert picture["spaces"][0]["budget"] < 2**20


def test_a_share_as_budget(memc, model: Path, tmp_path: Path) -> None:
    assert memc("report", str(model), "--dim", "batch=8", "--memory-budget", "100%", "-o", "m.html").code == 0
    facts = dict(shown(tmp_path / "m.html")["pictures"][0]["facts"])
    assert facts["budget"] == facts["peak"]
    result = memc("report", str(model), "--dim", "batch=8", "--memory-budget", "110%")
    assert (result.code, result.err) == (
        2,
        "memc: error: memory_budget: expected a whole number or text such as 4GiB or 50%, got '110%'\n",
    )


def test_mistakes(memc, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(CSV)
    for arguments, code, message in (
        (("p.csv", "-o", "-"), 2, "a report is written to files: expected a name, got -"),
        (("p.csv", "-o", "p.csv"), 2, "p.csv: is read, and cannot be written to; choose another name"),
        (("p.csv", "-o", "a.html", "--svg", "./a.html"), 2, "expected files that differ"),
        (("p.csv", "--onnx", "a.onnx"), 2, "an annotated model is written of an .onnx model alone"),
        (("none.csv",), 3, "none.csv: cannot read: No such file or directory"),
        (("p.csv", "-o", "no/p.html"), 2, "no/p.html: cannot write: No such file or directory"),
        (("p.csv", "--device", "1"), 2, "p.csv: device 1: expected a memory snapshot of PyTorch"),
    ):
        result = memc("report", *arguments)
        assert result.code == code and result.err.startswith("memc: error: ") and message in result.err
        assert result.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv"]
