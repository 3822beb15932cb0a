# SPDX-License-Identifier: Apache-2.0
"""Whether PyTorch jobs fit in limits near what they need, and the largest batches that do, as estimated and as on an H200.

    python benchmarks/estimate_limits.py --python PYTHON [--cases 0-100] [--batches 0-100]

PYTHON is as for `estimate_jobs.py`. What an H200 did is in `data/pytorch_h200_limits.json`. A largest batch is right if it is
estimated to fit and one more is not. The tables are printed, with a summary below each.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Process, Script, ScriptOutOfMemory, run_in

HERE = Path(__file__).parent
STEPS = 3


def outcome(process: Process, job: dict[str, Any], fraction: float) -> dict[str, Any]:
    """Whether a job fits in a fraction of the device; if not, the op that fails, its phase, step and module."""
    settings = f"per_process_memory_fraction:{fraction:.17g}"
    script = Script(str(HERE / "estimate_job.py"), [json.dumps(job)], STEPS, alloc_conf=settings, seconds=900)
    try:
        run_in(process, script)
    except ScriptOutOfMemory as error:
        at = error.refused.origin if error.refused is not None else None
        if at is None:
            return {"fits": False}
        return {
            "fits": False,
            "op": at.op.removeprefix("aten::"),
            "phase": at.phase,
            "step": at.step,
            "module": at.module,
        }
    return {"fits": True}


def agrees(found: dict[str, Any], measured: dict[str, Any]) -> bool:
    """Whether an estimate names what was measured. Functions of `at::_ops` carry their overload: `sum_dim_IntList`."""
    if found["fits"] or measured["fits"]:
        return bool(found["fits"] == measured["fits"])
    named = measured["op"] == found.get("op") or measured["op"].startswith(f"{found.get('op')}_")
    return named and all(found.get(key) == measured[key] for key in ("phase", "step", "module") if key in measured)


def shown(row: dict[str, Any]) -> str:
    """An outcome as a cell."""
    if row["fits"]:
        return "fits"
    module = f", {row['module']}" if row.get("module") and row.get("phase") == "forward" else ""
    return f"{row.get('op')} ({row.get('phase')}, step {row.get('step')}{module})"


def name(job: dict[str, Any]) -> str:
    """What a job is, shortly."""
    rest = [str(job[key]) for key in ("batch", "optimizer") if key in job]
    rest += [job["precision"]] if job["precision"] != "fp32" else []
    return " ".join([job["model"], *rest, *(key for key in ("channels_last",) if job.get(key))])


def out_of_memory(process: Process, cases: list[dict[str, Any]], total: int) -> None:
    """Print the table of calls near the limit."""
    right = 0
    print("| job | limit, bytes | estimated | on the H200 | |\n| --- | --: | --- | --- | --- |")
    for case in cases:
        found = outcome(process, case["job"], case["fraction"])
        same = agrees(found, case)
        right += same
        cells = [name(case["job"]), f"{int(case['fraction'] * total):,}", shown(found), shown(case)]
        print(f"| {' | '.join(cells)} | {'' if same else 'differs'} |", flush=True)
    print(f"\n{right} of {len(cases)} calls are right.\n")


def largest_batches(process: Process, cases: list[dict[str, Any]]) -> None:
    """Print the table of largest batches."""
    right = 0
    print("| model | largest batch on the H200 | estimated to fit | one more |\n| --- | --: | --- | --- |")
    for case in cases:
        batches = (case["largest"], case["largest"] + 1)
        fits, more = (outcome(process, case["job"] | {"batch": each}, case["fraction"]) for each in batches)
        right += fits["fits"] and not more["fits"]
        print(f"| {case['job']['model']} | {case['largest']} | {shown(fits)} | {shown(more)} |", flush=True)
    print(f"\n{right} of {len(cases)} are right to the item.")


def chosen(rows: list[dict[str, Any]], span: str) -> list[dict[str, Any]]:
    """The rows FIRST-LAST, without the last."""
    first, _, last = span.partition("-")
    return rows[int(first) : int(last)]


def main() -> None:
    """Run all that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--cases", default="0-100", help="FIRST-LAST of the calls near the limit")
    parser.add_argument("--batches", default="0-100", help="FIRST-LAST of the largest batches")
    options = parser.parse_args()
    data = json.loads((HERE / "data/pytorch_h200_limits.json").read_text())
    gpu = gpu_named("h200")
    print(data["about"] + "\n")
    with Process(options.python, gpu) as process:
        out_of_memory(process, chosen(data["out_of_memory"], options.cases), gpu.total)
        largest_batches(process, chosen(data["largest_batches"], options.batches))


if __name__ == "__main__":
    main()
