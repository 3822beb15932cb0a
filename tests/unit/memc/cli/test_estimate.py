# SPDX-License-Identifier: Apache-2.0
"""memc estimate: figures out, 4 for what does not fit, and one line for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import memc as package

RESNET = str(Path(__file__).parents[3] / "data/events/resnet50_b32_sgd.json.gz")

KEYS = "allocated_bytes reserved_bytes requested_bytes device_bytes confidence peak_op breakdown fits largest_batch seconds"


def test_json(memc) -> None:
    result = memc("estimate", RESNET, "--gpu", "h200", "--json", "-")
    data = json.loads(result.out)
    assert (result.code, result.err) == (0, "") and set(KEYS.split()) <= set(data)
    assert (data["reserved_bytes"], data["confidence"], data["fits"]) == (3_667_918_848, "exact", True)
    assert data["device_bytes"] == sum(data["breakdown"].values()) and data["largest_batch"] is None


def test_table(memc) -> None:
    result = memc("estimate", RESNET, "--gpu", "h200")
    assert result.code == 0
    for text in ("pytorch, h200, exact", "3,667,918,848 B", "fragmentation", "expandable_segments:True", "planned"):
        assert text in result.out
    assert memc("estimate", RESNET, "-q").out == ""


def test_the_plan_of_a_step(memc) -> None:
    result = memc("estimate", RESNET, "--gpu", "h200", "--plan", "step.plan.json", "--json", "e.json")
    assert result.code == 0
    for text in ("2,769,182,720 B", "0.00 % above the lower bound", "674 of 677 blocks", "161 into the next step"):
        assert text in result.out
    data = json.loads(Path("e.json").read_text())["plan"]
    plan = json.loads(Path("step.plan.json").read_text())
    assert data["arena_bytes"] == plan["arena_bytes"] == 2_769_182_720 and data["sequence"] == plan["sequence"]
    assert memc("estimate", "model.onnx", "--plan", "step.plan.json").code == 2


def test_what_does_not_fit(memc) -> None:
    result = memc("estimate", RESNET, "--memory", "3GiB", "--json", "e.json")
    assert result.code == 4
    assert "3,221,225,472 bytes of memory do not suffice: out of memory at event" in result.err
    assert json.loads(Path("e.json").read_text())["out_of_memory"]["requested_bytes"] > 0


def test_the_share_is_of_what_fits(memc) -> None:
    """A job that gives cached memory back takes no more than there is."""
    events = [["alloc", 0, 100 << 20, 0], ["free", 0, 100 << 20, 0], ["alloc", 1 << 30, 110 << 20, 0]]
    Path("e.json").write_text(json.dumps({"events": events}))
    result = memc("estimate", "e.json", "--memory", "900MiB")
    assert result.code == 0
    (row,) = [line for line in result.out.splitlines() if " fits " in line]
    assert "yes" in row and "97.4 % of 900.00 MiB" in row and "once" in result.out


def test_the_end_of_a_range_of_batches(memc, model) -> None:
    result = memc("estimate", model, "--find-batch", "batch=1..2", "--memory", "24GiB")
    assert (result.code, "the range's end; more may fit" in result.out) == (0, True)


def test_settings(memc) -> None:
    result = memc("estimate", RESNET, "--alloc-conf", "expandable_segments:True", "--json", "-")
    assert json.loads(result.out)["confidence"] == "assumed"
    result = memc("estimate", RESNET, "--alloc-conf", "max_split_size_mb:2")
    assert (result.code, result.out) == (2, "") and "expected megabytes from 20 on, got '2'" in result.err


def test_an_artifact(memc, artifact) -> None:
    result = memc("estimate", artifact, "--memory", "1GiB", "--json", "-")
    data = json.loads(result.out)
    expected = sum(package.load(artifact).statistics().values())
    assert (result.code, data["confidence"], data["fits"]) == (0, "exact", True)
    assert data["device_bytes"] == data["allocated_bytes"] == expected == sum(data["breakdown"].values()) > 0
    assert memc("estimate", artifact, "--memory", "1").code == 4
    assert memc("estimate", artifact, "--allocator", "pytorch").code == 2


def test_mistakes(memc) -> None:
    Path("train.py").write_text("x")
    for arguments, code in (
        (["none.json"], 3),
        (["train.py"], 3),
        ([RESNET, "--gpu", "x"], 2),
        ([RESNET, "--memory", "x"], 2),
    ):
        result = memc("estimate", *arguments)
        assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)


def test_a_model(memc, model) -> None:
    """What is wrong with the options is told before."""
    result = memc("estimate", model, "--dim", "batch=2", "--train")
    assert result.code == 0 and "modelled" in result.out
    for arguments in (["--train", "--optimizer", "x"], ["--find-batch", "batch=2"], ["--framework", "jax"], []):
        assert memc("estimate", model, *arguments).code == 2
