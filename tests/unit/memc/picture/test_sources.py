# SPDX-License-Identifier: Apache-2.0
"""Pictures of modules, plans, graphs, snapshots and artifacts, against values worked out by hand."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import memc
from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.ir.text.parser import parse
from memc.picture.changes import changes
from memc.picture.from_module import Told, picture_of_module
from memc.picture.picture import PlanPicture
from memc.picture.sources import read_subject

PLANNED = """\
func @main(%x: f32[16] {role = input}) -> f32[1] {
  %a = exp(%x) : f32[16] @arena[0] loc("n1")
  %b = neg(%a) plan {in_place = 0} : f32[16] alias %a[0] @arena[0]
  %c = tanh(%x) plan {recompute = [1]} : f32[16] @arena[64]
  %d = add(%b, %c) : f32[16] @arena[128]
  %e = reduce_sum(%d) {axes = [0], keepdims = true} : f32[1]
  return %e
}
"""


def of(source: Any, **options: Any) -> PlanPicture:
    return read_subject(source, options=options).picture


def test_a_module(tmp_path: Path) -> None:
    text = PLANNED.replace(' loc("n1")', "")
    module = parse(text)
    module.main.ops[0].location = "n1"
    told = Told("m", budget=500, places={"n1": "net.py:3"}, reasons={"d": ("kept", "needed at once")})
    shown = picture_of_module(module, told)
    a, c, d = shown.tensors
    assert (a.name, a.lives, a.offset, a.nbytes, a.uses, a.others) == ("a", ((0, 4),), 0, 64, (0, 1, 3), ("b",))
    assert (a.decision, a.reason, a.place) == ("in place", "1 op writes over it in place", "n1 at net.py:3")
    assert (c.role, c.decision, c.lives) == ("recomputed", "recomputed", ((2, 4),))
    assert (d.decision, d.reason, d.role) == ("kept", "needed at once", "activations")
    assert [(op.name, op.result) for op in shown.ops][:2] == [("exp", "%a"), ("neg", "%b")]
    (arena,) = shown.spaces
    # Of the budget, what the input's 64 and the output's 4 bytes leave.
    assert (arena.name, arena.nbytes, arena.lower_bound, arena.budget) == ("arena", 192, 192, 500 - 68)
    assert list(shown.seconds) == sorted(shown.seconds) and len(shown.seconds) == 6
    path = tmp_path / "m.memir"
    path.write_text(text)
    assert of(path).tensors[2] == of(parse(text)).tensors[2]


def test_a_module_without_addresses_is_planned() -> None:
    text = (
        "func @main(%x: f32[4,4] {role = input}) -> f32[4,4] {\n  %a = matmul(%x, %x) : f32[4,4]\n"
        "  %b = matmul(%a, %x) : f32[4,4]\n  return %b\n}\n"
    )
    shown = of(parse(text), kernels="generated")
    assert [(tensor.name, tensor.nbytes, tensor.offset) for tensor in shown.tensors] == [("a", 64, 0)]


def test_measured_times_of_ops(tmp_path: Path) -> None:
    text = (
        "func @main(%x: f32[64,64] {role = input}) -> f32[64,64] {\n  %a = matmul(%x, %x) : f32[64,64]\n"
        "  %b = matmul(%a, %x) : f32[64,64]\n  return %b\n}\n"
    )
    compiled = memc.compile(parse(text), tmp_path / "m.memc")
    profile = tmp_path / "p.json"
    profile.write_text(memc.bench(tmp_path / "m.memc", runs=1, warmup=0, profiled_runs=1).saved_profile())
    (product,) = json.loads(profile.read_text())["ops"].values()
    for source in (tmp_path / "m.memc", compiled):
        shown = read_subject(source, op_times=profile).picture
        assert list(shown.seconds) == pytest.approx([0, product, 2 * product], rel=1e-3)
        assert shown.seconds_from == "measured times"
    (tmp_path / "p.csv").write_text("id,lower,upper,size\n")
    with pytest.raises(UsageError, match="expected a model or an artifact beside it"):
        read_subject(tmp_path / "p.csv", op_times=profile)
    with pytest.raises(UsageError, match="p.csv"):
        read_subject(tmp_path / "m.memc", op_times=tmp_path / "p.csv")


def test_a_module_half_planned_is_refused() -> None:
    with pytest.raises(InvalidError, match="%c: expected an address"):
        picture_of_module(parse(PLANNED.replace("f32[16] @arena[64]", "f32[16]").replace(' loc("n1")', "")), Told("m"))


def test_a_problem_and_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,lower,upper,size,offset,gaps\na,0,5,40,0,\nb,2,4,8,40,\nc,5,11,8,,7-9\n")
    shown = of(path)
    assert shown.title == "p.csv" and shown.unit == "step" and shown.steps == 11 and not shown.moments
    assert [(t.name, t.lives, t.nbytes) for t in shown.tensors] == [
        ("a", ((0, 5),), 40),
        ("b", ((2, 4),), 8),
        ("c", ((5, 7), (9, 11)), 8),
    ]
    assert [t.offset for t in shown.tensors][:2] == [0, 40]
    assert shown.spaces[0].nbytes == shown.spaces[0].lower_bound == 48
    assert of(memc.plan(path)).tensors == shown.tensors


def test_times_far_apart(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"id,lower,upper,size\na,-7,{2**50},40\nb,{2**49},{2**50 + 3},8\n")
    shown = of(path)
    assert shown.moments == [-7, 2**49, 2**50, 2**50 + 3] and shown.steps == 3
    assert [tensor.lives for tensor in shown.tensors] == [((0, 2),), ((1, 3),)]
    assert shown.live_bytes().tolist() == [40, 48, 8] and shown.steps_of(shown.tensors[0]) == 2**50 + 7
    other = tmp_path / "q.csv"
    other.write_text(path.read_text() + "c,5,9,1\n")
    assert [change.name for change in changes(shown, of(other))] == ["c"]


def test_a_graph(tmp_path: Path) -> None:
    def tensor(storage: int, nbytes: int) -> dict[str, Any]:
        return {"bytes": nbytes, "storage": storage, "storage_bytes": nbytes}

    ops = [
        {"name": "e1", "target": "aten.exp", "inputs": [0], "outputs": [1]},
        {"name": "n1", "target": "aten.neg", "inputs": [1], "outputs": [2]},
        {"name": "t1", "target": "aten.tanh", "inputs": [2], "outputs": [3]},
    ]
    sizes = enumerate((16, 32, 48, 64))
    graph = {"inputs": [0], "outputs": [3], "tensors": [tensor(at, size) for at, size in sizes], "ops": ops}
    path = tmp_path / "g.json"
    path.write_text(json.dumps(graph))
    shown = of(path)
    assert [(t.name, t.lives, t.nbytes, t.role, t.uses) for t in shown.tensors] == [
        ("1", ((0, 2),), 32, "tensors", (0, 1)),
        ("2", ((1, 3),), 48, "tensors", (1, 2)),
        ("3", ((2, 3),), 64, "outputs", (2,)),
    ]
    assert [(op.name, op.place) for op in shown.ops] == [("aten.exp", "e1"), ("aten.neg", "n1"), ("aten.tanh", "t1")]
    assert shown.unit == "op" and shown.spaces[0].lower_bound == 112


def test_an_exported_program_of_pytorch() -> None:
    path = Path(__file__).parents[1] / "frontend/torch/data/normalization.pt2"
    assert of(path).tensors == of(memc.compile(path, plan_only=True)).tensors != []


def snapshot(tmp_path: Path, trace: list[dict[str, Any]], segments: list[dict[str, Any]] | None = None) -> Path:
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": segments or [], "device_traces": [trace]}))
    return path


def event(action: str, addr: int, size: int = 512, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, **more}


def test_a_snapshot(tmp_path: Path) -> None:
    far = 2**40
    frames = [{"filename": "net.py", "line": 4, "name": "forward"}]
    trace = [
        event("alloc", far, 700, frames=frames),
        event("alloc", 4096),
        event("free_requested", far, 700),
        event("free_completed", far, 700),
        event("alloc", far + 512, 512),
    ]
    block = {"address": 8192, "size": 512, "requested_size": 500, "state": "active_allocated"}
    segment = {"device": 0, "address": 8192, "total_size": 512, "stream": 0, "blocks": [block]}
    shown = of(snapshot(tmp_path, trace, [segment]))
    found = sorted((t.lives, t.offset, t.nbytes, t.role, t.place, t.decision) for t in shown.tensors)
    # 4096 to 4608, 8192 to 8704 and the kilobyte at 2**40 follow one another.
    assert found == [
        (((0, 3),), 1024, 1024, "blocks", "forward at net.py:4", ""),
        (((0, 5),), 512, 512, "in use before the history", "", "never freed"),
        (((1, 5),), 0, 512, "blocks", "", "never freed"),
        (((4, 5),), 1536, 512, "blocks", "", "never freed"),
    ]
    assert shown.live_bytes().tolist() == [1536, 2048, 2048, 1024, 1536]
    assert (shown.spaces[0].nbytes, shown.spaces[0].lower_bound) == (2048, 2048)


def test_a_snapshot_of_segments_alone(tmp_path: Path) -> None:
    """Without events and addresses: what is in use, side by side, for one step."""
    blocks = [{"size": 1024, "state": "inactive"}, {"size": 512, "requested_size": 500, "state": "active_allocated"}]
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps([{"device": 0, "blocks": blocks}, {"device": 0, "blocks": blocks[1:] * 2}]))
    shown = of(path)
    found = sorted((t.lives, t.offset, t.nbytes, t.role) for t in shown.tensors)
    assert found == [(((0, 1),), at, 512, "in use before the history") for at in (0, 512, 1024)]
    assert (shown.spaces[0].nbytes, shown.live_bytes().tolist()) == (1536, [1536])


def test_a_snapshot_that_would_run_code(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[print]]}))
    with pytest.raises(InvalidError, match="it names .*print, which may run code"):
        of(path)


def test_an_artifact_is_as_its_compilation(tmp_path: Path) -> None:
    text = (
        "func @main(%x: f32[64,64] {role = input}) -> f32[64,64] {\n  %a = matmul(%x, %x) : f32[64,64]\n"
        "  %b = matmul(%a, %x) : f32[64,64]\n  %c = matmul(%b, %a) : f32[64,64]\n  return %c\n}\n"
    )
    compiled = memc.compile(parse(text), tmp_path / "m.memc", memory_budget=10**6)
    shown = of(tmp_path / "m.memc")
    assert shown.tensors == of(compiled).tensors and len(shown.tensors) >= 2
    assert shown.spaces[0].budget == 10**6 - (compiled.report.peak_bytes - compiled.report.arena_bytes)
    assert shown.spaces[0].nbytes == compiled.report.arena_bytes


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("a.txt", "x", UnsupportedError, "expected an artifact, or a file whose name ends in .onnx"),
        ("a.csv", "id,lower\n", InvalidError, "expected one column `upper`"),
        ("a.json", json.dumps({}), InvalidError, "a.json"),
        ("missing.csv", None, InvalidError, "cannot read: No such file"),
    ],
)
def test_sources_that_are_none(tmp_path: Path, name: str, text: str | None, error: Any, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(error, match=message):
        of(tmp_path / name)


def test_only_snapshots_have_devices(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="device 1: expected a memory snapshot"):
        read_subject(tmp_path / "a.csv", device=1)
