# SPDX-License-Identifier: Apache-2.0
"""Copies to the host on the command line: what the tables and traces show, measured links, and bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memc.ir import machine

CHAIN = """func @main(%x: f32[256,256] {role = input}) -> f32[64,64] {
  %a = matmul(%x, %x) {transpose_a = false, transpose_b = false} : f32[256,256]
  %b = matmul(%a, %x) {transpose_a = false, transpose_b = false} : f32[256,256]
  %c = matmul(%b, %x) {transpose_a = false, transpose_b = false} : f32[256,256]
  %d = matmul(%c, %b) {transpose_a = false, transpose_b = false} : f32[256,256]
  %e = matmul(%d, %x) {transpose_a = false, transpose_b = false} : f32[256,256]
  %g = matmul(%e, %c) {transpose_a = false, transpose_b = false} : f32[256,256]
  %i = matmul(%g, %a) {transpose_a = false, transpose_b = false} : f32[256,256]
  %j = slice(%i) {axes = [0, 1], starts = [0, 0], stops = [64, 64], steps = [1, 1]} : f32[64,64]
  return %j
}
"""
"""At 1 MiB of arena %a, %b and %c are there at once; with %a copied, three quarters of that do."""

BUDGET = ("--memory-budget", "1100000", "--offload", "auto")


@pytest.fixture
def chain(memc: Any) -> str:
    Path("chain.memir").write_text(CHAIN)
    return "chain.memir"


def rows(out: str) -> dict[str, list[str]]:
    """Cells of tables by the first of each row."""
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines() if line.startswith("│")]
    return {cells[0]: cells[1:] for cells in reversed(lines)}


def test_tables(memc, chain: str) -> None:
    result = memc("compile", chain, "--plan-only", *BUDGET)
    assert result.code == 0
    found = rows(result.out)
    assert found["link"] == ["memory", "memc's table of links, which `llvm` has by itself"]
    assert found["copied to the host"][0] == found["copied back"][0] == found["host"][0] == "262,144 B"
    assert found["lane out is busy"][1] == found["lane in is busy"][1] == "1 copy"
    assert found["%i"][1:] == ["for %a, in"] and found["%i"][0] == found["waits for copies"][0]
    assert "1 value is copied to the host and back, 256.00 KiB in all\n" in result.out
    decisions = rows(result.out.partition("in all\n")[2])
    assert decisions["%a"][:2] == ["256.00 KiB", "offloaded"] and decisions["%b"][1] == "kept"
    assert decisions["%c"][2] == "the budget is kept without moving it"
    assert (
        "and others: 1 inputs, weights, states, constants and workspaces, 1 below the least copy; --json has all"
        in result.out
    )


def test_what_is_not_copied_is_said_in_one_line(memc, chain: str) -> None:
    result = memc("compile", chain, "--plan-only", "--memory-budget", "2MiB", "--offload", "auto", "--json", "r.json")
    assert result.out.splitlines()[-1] == "nothing is copied: the budget is kept without"
    data = json.loads(Path("r.json").read_text())
    assert (data["host_bytes"], data["offloaded_bytes"], data["link"]) == (0, 0, "memory")
    assert data["offload"]["verdict"] == "nothing is copied: the budget is kept without"


def test_values_that_may_not_move_are_said(memc, chain: str) -> None:
    small = "offload{budget=1100000 total=true least-copy=1048576},in-place,assign-addresses"
    result = memc("compile", chain, "--plan-only", "-p", small)
    assert result.code == 0
    assert result.out.splitlines()[-1] == f"{NONE} none has 1.00 MiB"


NONE = "nothing is copied: no value that is not used for a while may be:"


def decided(memc: Any, text: str, pipeline: str) -> tuple[str, dict[str, str]]:
    """The verdict, and why each result is where it is."""
    Path("other.memir").write_text(text)
    result = memc("compile", "other.memir", "--plan-only", "-p", pipeline, "--json", "-")
    assert result.code == 0
    found = json.loads(result.out)["offload"]
    return found["verdict"], {v["value"]: f"{v['decision']}: {v['reason']}" for v in found["values"] if v["is_result"]}


def test_values_that_ops_read_which_memc_does_not_know(memc) -> None:
    text = CHAIN.replace("%d = matmul(%c, %b) {transpose_a = false, transpose_b = false}", '%d = "mine.op"(%c, %b)')
    text = text.replace("%i = matmul(%g, %a) {transpose_a = false, transpose_b = false}", '%i = "mine.op"(%g, %a)')
    verdict, reasons = decided(memc, text, "offload{budget=75%},in-place,assign-addresses")
    why = 'is read by "mine.op", which memc does not know and which may write to it'
    assert verdict == f"{NONE} most often, it {why}"
    assert reasons["b"] == reasons["c"] == reasons["g"] == f"none: {why}"
    assert reasons["a"].startswith("recomputed: running matmul again once takes ") and reasons["a"].endswith(
        f"; it {why}"
    )


def test_values_that_may_share_bytes(memc) -> None:
    text = CHAIN.replace("%e = matmul(%d, %x) {transpose_a = false, transpose_b = false}", "%e = tanh(%d)")
    verdict, reasons = decided(memc, text, "in-place,offload{budget=75%},assign-addresses")
    why = "may share bytes with others, since the function had aliases already"
    assert verdict == f"{NONE} most often, it {why}"
    assert reasons.keys() == set("abcdegi") and reasons.pop("a").startswith("recomputed: ")
    assert set(reasons.values()) == {f"none: {why}"}


def lanes(events: list[dict[str, Any]], process: int) -> dict[str, list[dict[str, Any]]]:
    """The events of a process by the title of their lane."""
    own = [event for event in events if event["pid"] == process]
    titles = {event["tid"]: event["args"]["name"] for event in own if event["name"] == "thread_name"}
    return {title: [e for e in own if e["ph"] == "X" and e["tid"] == thread] for thread, title in titles.items()}


def test_trace_of_a_plan(memc, chain: str) -> None:
    assert memc("compile", chain, "--plan-only", *BUDGET, "--trace", "plan.json", "--json", "r.json", "-q").code == 0
    events = json.loads(Path("plan.json").read_text())["traceEvents"]
    found = lanes(events, 0)
    assert list(found) == ["ops", "copies out", "copies in"]
    (out,), (back,) = found["copies out"], found["copies in"]
    assert out["name"] == back["name"] == "%a" and out["args"]["bytes"] == back["args"]["bytes"] == 2**18
    assert out["args"]["overlap_percent"] == 100 and back["args"]["overlap_percent"] == 0
    (wait,) = (event for event in found["ops"] if event["cat"] == "wait")
    assert wait["name"] == "wait for %a" and wait["ts"] == back["ts"] and wait["dur"] == back["dur"] == 37.768
    ops = [event["args"]["op"] for event in found["ops"] if event["cat"] == "op"]
    assert ops == ["%a", "%b", "%c", "%d", "%e", "%g", "%i", "%j"]
    end = 0.0
    for event in found["ops"]:
        assert event["ts"] == pytest.approx(end)
        end = event["ts"] + event["dur"]
    assert end / 1e6 == pytest.approx(json.loads(Path("r.json").read_text())["offload"]["makespan_seconds"])
    live = [event["args"]["live"] for event in events if event["name"] == "arena bytes"]
    assert max(live) == 3 * 2**18 and max(e["args"]["live"] for e in events if e["name"] == "host bytes") == 2**18


def test_trace_of_a_plan_without_copies(memc, chain: str) -> None:
    result = memc("compile", chain, "--plan-only", "--trace", "-")
    found = lanes(json.loads(result.out)["traceEvents"], 0)
    assert len(found["ops"]) == 8 and not found["copies out"] and not found["copies in"]
    both = memc("compile", chain, "--plan-only", "--trace", "-", "--json", "-")
    assert both.code == 2
    assert both.err == "memc: error: --json - and --trace -: only one of them can have standard output\n"


def test_measured_times_are_planned_with(memc, chain: str) -> None:
    assert memc("compile", chain, *BUDGET, "-o", "chain.memc", "-q").code == 0
    quick = ("--warmup", "1", "--runs", "3", "-q", "--profiled-runs", "2")
    assert memc("bench", "chain.memc", *quick, "--trace", "run.json", "--save-profile", "p.json").code == 0
    saved = json.loads(Path("p.json").read_text())
    assert saved["link"]["out"].keys() == {"bandwidth", "shared", "latency", "sync", "drag"}
    assert len(saved["ops"]) == 2 and not any("offload" in name or "prefetch" in name for name in saved["ops"])
    found = lanes(json.loads(Path("run.json").read_text())["traceEvents"], 1)
    assert [event["name"] for event in found["copies out"]] == ["%a"] == [event["name"] for event in found["copies in"]]
    result = memc("compile", chain, "--plan-only", *BUDGET, "--link", "p.json", "--json", "-")
    report = json.loads(result.out)
    assert report["link"] == "p.json" and report["offload"]["link_origin"].startswith("measured on ")
    assert report["offload"]["lanes"]["in"]["bandwidth"] == pytest.approx(saved["link"]["in"]["bandwidth"], rel=1e-3)
    pipeline = "offload{budget=1100000 total=true link=p.json profile=p.json},in-place,assign-addresses"
    result = memc("compile", chain, "--plan-only", "-p", pipeline, "--json", "-", "--trace", "plan.json")
    measured = sum(saved["ops"].values())
    assert result.code == 0
    products = [e["dur"] for e in json.loads(Path("plan.json").read_text())["traceEvents"] if e["name"] == "matmul"]
    seconds = next(seconds for name, seconds in saved["ops"].items() if name.startswith("matmul"))
    assert len(products) >= 7  # More where the measured link is so slow that one runs twice.
    assert products == pytest.approx([1e6 * seconds] * len(products), abs=1e-3) and measured > 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--link", "h20"), 2, "link: expected a file or one of h200, h200-alone, h100, a100, titanx, gh200, memory, got 'h20'; did you mean h200?"),
        (("--link", "other.json"), 2, "link other.json: measured on NVIDIA H200 (cuda sm_90), the target is llvm; measure there with memc bench --save-profile"),
        (("--link", "bad.json"), 2, "link bad.json: link: in: shared: expected a number, got 'fast'; such as "),
        (("--link", "ops.json"), 2, "link ops.json: expected a link beside the ops, got none; memc bench --save-profile measures one, or name one of h200, "),
        (("--memory-budget", "1000000"), 4, "memory budget of 1000000 bytes (976.56 KiB) cannot be met: the least reachable peak is 1064960 bytes"),
        (("--memory-budget", "1000000", "--host-budget", "1KiB"), 4, "inputs and outputs 278528) with a host budget of 1024 bytes (1.00 KiB)"),
    ],
)  # fmt: skip
def test_bad_input(memc, chain: str, arguments: tuple[str, ...], code: int, said: str) -> None:
    way = {"bandwidth": 2e9, "shared": 1e9, "latency": 0}
    device = {"kind": "cuda", "arch": "sm_90", "name": "NVIDIA H200"}
    Path("other.json").write_text(json.dumps({"device": device, "link": {"out": way, "in": way}}))
    Path("bad.json").write_text(json.dumps({"link": {"out": way, "in": {**way, "shared": "fast"}}}))
    Path("ops.json").write_text(json.dumps({"ops": {}}))
    given = arguments if "--memory-budget" in arguments else ("--memory-budget", "1100000", *arguments)
    result = memc("compile", chain, "--offload", "auto", *given)
    assert result.code == code and said in result.err and result.err.count("\n") == 1
    assert result.err.startswith("memc: error: ") and not Path("chain.memc").exists()


def test_host_memory_that_is_not_there(memc, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memc("compile", chain, *BUDGET, "-o", "chain.memc", "-q").code == 0
    monkeypatch.setattr(machine, "PROC", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal:       255 kB\nMemFree:      100 kB\n")
    result = memc("run", "chain.memc", "--input", "x=random")
    assert result.code == 4 and result.err.count("\n") == 1
    assert result.err == (
        "memc: error: chain.memc: loading: the space host takes 262144 bytes (256.00 KiB), this machine has 261120 (255.00 KiB) of "
        "memory; compile with a smaller --host-budget\n"
    )
    (tmp_path / "meminfo").write_text("MemTotal:       256 kB\n")
    assert memc("run", "chain.memc", "--input", "x=random", "-q").code == 0


def test_profiles_have_the_link_too(memc, chain: str) -> None:
    way = {"bandwidth": 2e10, "shared": 1e10, "latency": 1e-6}
    product = "matmul(f32[256,256], f32[256,256]) : f32[256,256]"
    Path("p.json").write_text(json.dumps({"ops": {product: 0.5}, "link": {"out": way, "in": way}}))
    found = json.loads(memc("compile", chain, "--plan-only", *BUDGET, "--profile", "p.json", "--json", "-").out)
    assert found["link"] == "p.json" and found["offload"]["makespan_seconds"] == pytest.approx(3.5, rel=1e-3)
    assert found["offload"]["lanes"]["out"]["bandwidth"] == pytest.approx(2e10, rel=1e-3)
    named = ("--profile", "p.json", "--link", "memory", "--json", "-")
    assert json.loads(memc("compile", chain, "--plan-only", *BUDGET, *named).out)["link"] == "memory"
    alone = memc("compile", chain, "--plan-only", "--memory-budget", "1100000", "--profile", "p.json", "--json", "-")
    found = json.loads(alone.out)
    assert found["offload"] is None and "rematerialize{budget=1100000 total=true profile=p.json" in found["pipeline"]
    assert found["recomputation"]["added_percent"] == pytest.approx(100 / 7, rel=1e-3)


def test_profiles_that_are_refused(memc, chain: str) -> None:
    gpu = {"kind": "cuda", "arch": "sm_90", "name": "NVIDIA H200"}
    Path("p.json").write_text(json.dumps({"device": gpu, "ops": {}}))
    result = memc("compile", chain, *BUDGET, "--profile", "p.json")
    assert result.code == 2
    assert result.err == (
        "memc: error: profile p.json: measured on NVIDIA H200 (cuda sm_90), the target is llvm; measure there with memc bench "
        "--save-profile\n"
    )
    result = memc("compile", chain, "--profile", "p.json")
    assert result.code == 2 and result.err.startswith("memc: error: profile: expected a memory budget beside it")
    result = memc("compile", chain, *BUDGET, "--profile", "none.json")
    assert result.code == 2 and result.err.count("\n") == 1
    assert result.err.startswith(
        "memc: error: profile none.json: expected JSON as `memc bench --save-profile` writes it: No such"
    )


def test_policies_are_named(memc, chain: str) -> None:
    found = json.loads(memc("compile", chain, "--plan-only", *BUDGET[:2], "--offload", "all", "--json", "-").out)
    values = {each["value"]: each for each in found["offload"]["values"]}
    assert found["policy"] == "all" and values["a"]["decision"] == "offloaded"
    kept = [each["reason"] for each in values.values() if each["decision"] == "kept"]
    assert kept and set(kept) <= {"is used by ops one after another", "the policy all does not move it"}
    result = memc("compile", chain, "--plan-only", *BUDGET[:2], "--offload", "all")
    assert rows(result.out)["policy"] == ["all", ""]
