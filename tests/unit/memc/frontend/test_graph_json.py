# SPDX-License-Identifier: Apache-2.0
"""Dataflow graphs as JSON: what they mean, and what is refused."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from memc.frontend.graph import graph_of, import_graph, read_graph
from memc.ir.errors import InvalidError, MemcError
from memc.ir.text.parser import parse
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager
from memc.planning.graph_problems import order_problem, placement_problem
from memc.solvers.order import order_peak
from memc.solvers.placement import lower_bound


def tensor(storage: int, size: int, shape: tuple[int, ...] | None = None) -> dict[str, Any]:
    dims = [size // 4] if shape is None else list(shape)
    return {"shape": dims, "dtype": "float32", "bytes": size, "storage": storage, "storage_bytes": size}


def op(name: str, inputs: list[int], outputs: list[int], writes: list[int]) -> dict[str, Any]:
    return {"name": name, "target": f"aten.{name}.default", "inputs": inputs, "outputs": outputs, "writes": writes}


GRAPH: dict[str, Any] = {
    "inputs": [0],
    "outputs": [5],
    "tensors": [tensor(0, 40), tensor(1, 80), tensor(1, 80, (4, 5)), tensor(2, 400), tensor(1, 80), tensor(3, 4)],
    "ops": [
        op("exp", [0], [1], [1]),
        op("view", [1], [2], []),
        op("mm", [2], [3], [2]),
        op("add_", [1], [4], [1]),
        op("sum", [4, 3], [5], [3]),
        op("sgd_", [5, 0], [], [0]),
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """GRAPH with the item at `path` replaced."""
    data = copy.deepcopy(GRAPH)
    *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
    item: Any = data
    for part in way:
        item = item[part]
    item[last] = value
    return data


def test_dependencies_are_over_storages() -> None:
    problem = order_problem(graph_of(GRAPH, "g"))
    # The write of add_ waits for the readers mm (through the view) and view; sgd_ writes what exp reads.
    assert problem.after == [[], [0], [0, 1], [0, 1, 2], [2, 3], [0, 4]]
    assert problem.sizes == [0, 80, 400, 4]
    assert [list(touched) for touched in problem.touches] == [[1], [1], [1, 2], [1], [1, 2, 3], [3]]
    assert problem.kept == {3}
    assert order_problem(graph_of(GRAPH, "g"), alignment=64).sizes == [0, 128, 448, 64]


def test_lifetimes_are_of_storages() -> None:
    problem, storages = placement_problem(graph_of(GRAPH, "g"))
    assert storages == [1, 2, 3]
    assert [(b.lower, b.upper, b.size) for b in problem.buffers] == [(0, 5, 80), (2, 5, 400), (4, 6, 4)]


def test_both_problems_agree_on_every_order() -> None:
    data = copy.deepcopy(GRAPH)
    data["tensors"] += [tensor(7, 64), tensor(8, 100)]
    data["ops"][:0] = [op("free", [0], [6], [7]), op("free2", [6], [7], [8])]
    graph = graph_of(data, "g")
    problem = order_problem(graph)
    orders = [
        order
        for order in itertools.permutations(range(8))
        if all(order.index(before) < order.index(i) for i in range(8) for before in problem.after[i])
    ]
    assert len(orders) > 10
    peaks = {order_peak(problem, order) for order in orders}
    assert peaks == {lower_bound(placement_problem(graph, order)[0]) for order in orders} and len(peaks) > 1
    for order in orders:
        assert order_peak(problem, order) == lower_bound(placement_problem(graph, order)[0])


def test_import_into_ir() -> None:
    module = import_graph(graph_of(GRAPH, "g"))
    verify(module)
    assert str(module) == (
        "func @main(%s0: f32[10] {role = state}) -> f32[1] {\n"
        '  %s1 = "aten.exp.default"(%s0) : f32[20] loc("exp")\n'
        '  "aten.view.default"(%s1) : () loc("view")\n'
        '  %s2 = "aten.mm.default"(%s1) : f32[100] loc("mm")\n'
        '  %s1.1 = "aten.add_.default"(%s1) : f32[20] alias %s1[0] loc("add_")\n'
        '  %s3 = "aten.sum.default"(%s1.1, %s2) : f32[1] loc("sum")\n'
        '  %s0.1 = "aten.sgd_.default"(%s3, %s0) : f32[10] alias %s0[0] loc("sgd_")\n'
        "  return %s3\n"
        "}\n"
    )
    assert str(parse(str(module))) == str(module)
    PassManager.parse("assign-addresses").run(module)
    verify(module)


def test_a_foreign_write_before_a_later_read_of_the_old_version_is_refused() -> None:
    text = str(import_graph(graph_of(GRAPH, "g"))).replace("(%s1.1, %s2)", "(%s1, %s2)")
    with pytest.raises(InvalidError, match="expected %s1 to be unused after this op"):
        verify(parse(text))


def test_gzip_and_plain(tmp_path: Path) -> None:
    text = json.dumps(GRAPH)
    (tmp_path / "g.json").write_text(text)
    (tmp_path / "g.json.gz").write_bytes(gzip.compress(text.encode()))
    assert read_graph(tmp_path / "g.json") == read_graph(tmp_path / "g.json.gz") == graph_of(GRAPH, "g")


def test_a_little_file_that_unpacks_to_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = tmp_path / "g.json.gz", json.dumps(GRAPH).encode()
    monkeypatch.setattr("memc.frontend.graph.read.MOST_UNPACKED", len(text))
    for parts in ([text], [text[:9], text[9:]]):
        path.write_bytes(b"".join(map(gzip.compress, parts)))
        assert read_graph(path) == graph_of(GRAPH, "g")
        path.write_bytes(b"".join(map(gzip.compress, [*parts, b" "])))
        with pytest.raises(
            InvalidError, match=r"g.json.gz: expected at most .* of unpacked JSON, got more; unpack it and give"
        ):
            read_graph(path)


def test_left_out_writes_mean_every_output() -> None:
    data = copy.deepcopy(GRAPH)
    del data["ops"][1]["writes"]
    assert graph_of(data, "g").ops[1].writes == (1,)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("tensors.1.bytes", -1, r"tensors\[1\].bytes: expected bytes from 0 to 2\*\*62, got -1"),
        ("tensors.1.bytes", True, "got True"),
        ("tensors.1.storage_bytes", 2**63, r"tensors\[1\].storage_bytes: expected bytes from 0 to 2\*\*62"),
        ("tensors.2.storage_bytes", 99, r"tensors\[2\].storage_bytes: expected 80 as before for storage 1, got 99"),
        ("tensors.0.storage", "x", r"tensors\[0\].storage: expected a whole number of at least 0, got 'x'"),
        ("tensors.0.storage", -1, r"tensors\[0\].storage: expected a whole number of at least 0, got -1"),
        ("tensors.0.storage", 0.0, r"tensors\[0\].storage: expected a whole number of at least 0, got 0.0"),
        ("tensors.1.bytes", 84, r"tensors\[1\].bytes: expected 80 as float32\[20\] has, got 84"),
        ("tensors.1.bytes", float("nan"), r"tensors\[1\].bytes: expected bytes from 0 to 2\*\*62, got nan"),
        ("tensors.1.bytes", 10**40, r"tensors\[1\].bytes: expected bytes from 0 to 2\*\*62, got 10+"),
        ("tensors.1.shape", [2**40, 2**40], r"tensors\[1\].bytes: expected 4\d+ as float32\[1099511627776, "),
        ("tensors.0.size", 4, r"tensors\[0\]: expected keys among .*, got `size`"),
        ("tensors.0", 5, r"tensors\[0\]: expected an object, got 5"),
        ("tensors", {}, r"tensors: expected a list, got \{\}"),
        ("inputs", [6], r"inputs\[0\]: expected the index of one of 6 tensors, got 6"),
        ("ops.0.inputs", [-1], r"ops\[0\].inputs\[0\]: expected the index of one of 6 tensors, got -1"),
        ("ops.0.inputs", [4], r"ops\[0\] \(exp\): .* got tensor 4, which op add_ produces only later"),
        ("inputs", [], r"ops\[0\] \(exp\): .* got tensor 0, which is no graph input and no op's output"),
        ("ops.1.outputs", [1], r"ops\[1\] \(view\): expected new tensors as outputs, got tensor 1 again"),
        ("ops.1.writes", [9], r"ops\[1\].writes\[0\]: expected the number of a storage, got 9"),
        ("ops.1.name", "", r"ops\[1\].name: expected a name, got ''"),
        ("ops.1", {"name": "a"}, r"ops\[1\]: expected the key `inputs`"),
        ("ops.1.cost", 1, r"ops\[1\]: expected keys among .*, got `cost`"),
        ("tensors.1.shape", [-3], r"tensors\[1\].shape\[0\]: expected .*, got -3"),
        ("tensors.1.dtype", 3, r"tensors\[1\].dtype: expected a name, got 3"),
    ],
)
def test_bad_graphs(path: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        graph_of(changed(path, value), "g.json")
    assert str(caught.value).startswith("g.json: ") and "\n" not in str(caught.value)


def test_output_that_nothing_produces() -> None:
    data = changed("tensors.5", tensor(3, 4))
    data["tensors"].append(tensor(9, 4))
    data["outputs"] = [6]
    with pytest.raises(InvalidError, match=r"outputs\[0\]: .* got tensor 6, which none does"):
        graph_of(data, "g.json")


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("g.json", None, InvalidError, "cannot read: No such file"),
        ("g.json", b"", InvalidError, "got an empty file"),
        ("g.json", b'{"ops": [\n1,', InvalidError, r"g.json:2:3: expected JSON"),
        ("g.json", b"[]", InvalidError, r"graph: expected an object, got \[\]"),
        ("g.json", b"{}", InvalidError, "graph: expected the key `inputs`"),
        ("g.json", b"\xff\xfe\x00\x80", InvalidError, "expected JSON"),
        ("g.json.gz", b"not gzip", InvalidError, "expected gzip data"),
        ("g.json.gz", gzip.compress(b"{}" * 100, mtime=0)[:20], InvalidError, "expected gzip data"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes | None, kind: type[MemcError], message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(kind, match=message) as caught:
        read_graph(tmp_path / name)
    assert "\n" not in str(caught.value)
