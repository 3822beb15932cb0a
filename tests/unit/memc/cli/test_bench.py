# SPDX-License-Identifier: Apache-2.0
"""memc bench: what it counts and adds up, its files, and what it says of bad options. Times are not tested."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memc.ir.core import Op
from memc.ir.cost_model import DEVICES, CostModel, signature
from memc.ir.text.parser import parse
from memc.runtime.artifact.plan_text import sealed

QUICK = ("--warmup", "1", "--runs", "3")


def measured(memc: Any, *arguments: str) -> dict[str, Any]:
    result = memc("bench", *arguments, *QUICK, "--json", "-")
    assert result.code == 0 and result.err == ""
    found: dict[str, Any] = json.loads(result.out)
    return found


def planned(artifact: str) -> list[Op]:
    return parse((Path(artifact) / "model.memir").read_text()).main.ops


def test_statistics(memc, artifact: str) -> None:
    found = measured(memc, artifact)
    seconds = sorted(found["seconds"])
    assert len(seconds) == found["runs"] == 3 and seconds[0] > 0 and found["warmup"] == 1
    assert found["least"] == seconds[0] and found["median"] == seconds[1] and found["p90"] == seconds[2]
    assert found["runs_per_second"] == pytest.approx(3 / sum(seconds))
    assert found["batch"] == 2 and found["items_per_second"] == pytest.approx(2 * found["runs_per_second"])
    assert found["training"] is False and found["profile"] is None and found["threads"] >= 1
    plan = json.loads((Path(artifact) / "plan.json").read_text())
    memory = found["memory"]
    assert all(memory[space["name"]] == space["bytes"] for space in plan["spaces"] if space["holds"] != "io")
    assert memory["inputs_and_outputs"] == 2 * 4 * 4 + 2 * 3 * 4
    assert memory["peak"] == sum(memory.values()) - memory["peak"] == plan["report"]["peak_bytes"]


def test_nearest_rank(memc, artifact: str) -> None:
    result = memc("bench", artifact, "--warmup", "0", "--runs", "20", "--json", "-")
    found = json.loads(result.out)
    assert found["p90"] == sorted(found["seconds"])[17]
    longer = memc("bench", artifact, "--runs", "1", "--min-time", "50ms", "--json", "-")
    assert sum(json.loads(longer.out)["seconds"]) >= 0.05 and json.loads(longer.out)["runs"] > 1


def test_profile_of_known_ops(memc, artifact: str) -> None:
    """y = relu(x w) + 1, x f32[2,4]."""
    found = measured(memc, artifact, "--profile", "--profiled-runs", "2")["profile"]
    product, rest = found["ops"]
    assert product["name"] == "matmul+relu" and product["flops"] == 2 * 2 * 4 * 3 + 2 * 3
    assert product["bytes"] == 4 * (2 * 4 + 4 * 3 + 2 * 3)
    assert rest["name"] == "add" and rest["flops"] == 2 * 3 and rest["bytes"] == 4 * (6 + 1 + 6)
    assert (found["device"], found["runs"]) == ("llvm", 2)
    for key in ("seconds", "bytes", "flops"):
        assert found[key] == pytest.approx(product[key] + rest[key], rel=1e-12)
    for op in (product, rest):
        assert op["seconds"] > 0 and op["share"] == pytest.approx(op["seconds"] / found["seconds"])
        least = max(op["flops"] / DEVICES["llvm"].flops, op["bytes"] / DEVICES["llvm"].bandwidth)
        assert op["roofline"] == pytest.approx(least / op["seconds"])
        assert planned(artifact)[op["index"]].results[0].name == op["result"]


def test_table(memc, artifact: str) -> None:
    result = memc("bench", artifact, *QUICK, "--profile", "--top", "1")
    assert result.code == 0 and result.err == ""
    lines = result.out.splitlines()
    assert lines[0].startswith("tiny.memc: llvm -mcpu=") and "3 runs after 1" in lines[0]
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    named = {row[0]: row[1:] for row in rows}
    assert {"median", "p90", "least", "throughput", "peak"} <= named.keys() and named["throughput"][1].endswith(
        "items/s"
    )
    assert len(named.keys() & {"matmul+relu", "add"}) == 1 and "all 2 ops" in named
    assert named["all 2 ops"][3:6] == ["100 %", "156 B", "0.00"]
    assert "roofline of llvm: 100 GFLOP/s, 15 GB/s" in lines[-1]
    assert memc("bench", artifact, *QUICK, "--profile", "-q").out == ""


def test_trace(memc, artifact: str) -> None:
    assert memc("bench", artifact, *QUICK, "--trace", "trace.json", "-q").code == 0
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    run, *calls = events
    assert run["name"] == "run" and run["ts"] == 0
    assert [c["args"]["kernel"] for c in calls] == [
        name for _, name in json.loads((Path(artifact) / "plan.json").read_text())["calls"]
    ]
    end = 0.0
    for call in calls:
        assert call["ph"] == "X" and call["ts"] >= end and call["dur"] > 0
        end = call["ts"] + call["dur"]
        assert end <= run["dur"] + 1e-3  # Microseconds are rounded to three places.
    assert [c["name"] for c in calls] == ["matmul+relu", "add"]


TRAIN = ("--dim", "batch=2", "--train", "--loss", "mse")


def test_training_steps_and_rematerialize_with_their_profile(memc, model: str) -> None:
    """The seconds are found again by the pass that plans the same model."""
    found = measured(memc, model, *TRAIN, "--profile", "--save-profile", "profile.json")
    assert found["training"] is True and found["batch"] == 2
    file = json.loads(Path("profile.json").read_text())
    assert file.keys() == {"device", "ops", "link"} and file["device"]["kind"] == "llvm"
    assert file["link"] == found["link"] and file["device"] == found["device"]
    saved = file["ops"]
    assert saved == found["profile"]["seconds_by_signature"]
    assert memc("compile", model, *TRAIN, "-o", "step.memc", "-q").code == 0
    ops = planned("step.memc")
    costs = CostModel(DEVICES["llvm"], saved)
    timed = {op["index"] for op in found["profile"]["ops"]}
    assert len(timed) >= 4 and {signature(ops[n]) for n in timed} == saved.keys()
    for index in timed:
        assert costs.cost(ops[index]) == round(saved[signature(ops[index])] * 1e12)
    pipeline = "materialize-returns,canonicalize,decompose,canonicalize,fuse,rematerialize{profile=profile.json}"
    again = memc("compile", model, *TRAIN, "-p", pipeline, "--plan-only", "-o", "planned.memir", "-q")
    assert again.code == 0 and again.err == ""
    assert Path("planned.memir").stat().st_size > 0


def test_models_are_compiled_with_the_options(memc, model: str) -> None:
    found = measured(memc, model, "--dim", "batch=3", "-O0", "--kernels", "generated", "--profile")
    assert found["batch"] == 3 and not list(Path().iterdir())
    assert [op["name"] for op in found["profile"]["ops"]] == ["matmul", "relu", "add"]


def test_one_file_can_be_standard_output(memc, artifact: str) -> None:
    result = memc("bench", artifact, *QUICK, "--profile", "--save-profile", "-")
    assert result.code == 0 and len(json.loads(result.out)["ops"]) == 2
    result = memc("bench", artifact, *QUICK, "--trace", "-")
    assert len(json.loads(result.out)["traceEvents"]) == 3


def test_inputs_and_threads(memc, artifact: str) -> None:
    assert measured(memc, artifact, "--input", "x=2", "--threads", "1")["threads"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--runs", "0"), "runs: expected a number from 1 on, got 0"),
        (("--warmup", "-1"), "warmup: expected a number from 0 on, got -1"),
        (("--profile", "--profiled-runs", "-2"), "profiled runs: expected a number from 0 on, got -2"),
        (("--top", "3"), "--top: expected --profile beside it"),
        (("--profile", "--top", "0"), "--top 0: expected a number from 1 on"),
        (("--json", "-", "--trace", "-"), "--json - and --trace -: only one of them can have standard output"),
        (("--min-time", "soon"), "--min-time soon: expected a duration such as 2s, 500ms or 1.5m"),
        (("--input", "z=1"), "--input z: no such input; expected x"),
        (("--input", "x"), "--input x: expected NAME=VALUE"),
        (("--dim", "batch=4"), "is an artifact; expected a model for the option dims"),
        (("--train",), "is an artifact; expected a model for the option train"),
        (("--threads", "0"), "threads: expected 1 to "),
        (("--threads", "4096"), "threads: expected 1 to "),
        (("--trace", "no/such/folder.json"), "no/such/folder.json: cannot write: No such file or directory"),
    ],
)
def test_bad_options(memc, artifact: str, arguments: tuple[str, ...], message: str) -> None:
    result = memc("bench", artifact, "--runs", "1", *arguments)
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1


def test_bad_sources(memc, artifact: str) -> None:
    missing = memc("bench", "absent.memc")
    assert missing.code == 3 and "absent.memc: expected an artifact folder" in missing.err
    assert memc("bench", "absent.onnx").code in (2, 3)
    shutil.copytree(artifact, "cut.memc")
    plan = json.loads(Path("cut.memc/plan.json").read_text())
    del plan["calls"][0]
    Path("cut.memc/plan.json").write_bytes(sealed(plan))
    assert memc("bench", "cut.memc", *QUICK, "-q").code == 0
    cut = memc("bench", "cut.memc", *QUICK, "--profile")
    assert cut.code == 3 and "lists other kernel calls than a run makes; compile again" in cut.err
    Path("cut.memc/model.memir").unlink()
    shutil.copy(Path(artifact) / "plan.json", "cut.memc/plan.json")
    gone = memc("bench", "cut.memc", *QUICK, "--profile")
    assert gone.code == 3 and "cut.memc/model.memir: cannot be read: No such file or directory" in gone.err
