# SPDX-License-Identifier: Apache-2.0
"""Jobs near the limit of their memory on the phantom device: what an H200 did with the same PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Script, ScriptOutOfMemory, run_script

pytestmark = pytest.mark.phantom

BENCHMARKS = Path(__file__).resolve().parents[5] / "benchmarks"
MEASURED = json.loads((BENCHMARKS / "data/pytorch_h200_limits.json").read_text())


def run(job: dict[str, Any], fraction: float) -> None:
    conf = f"per_process_memory_fraction:{fraction:.17g}"
    run_script(Script(str(BENCHMARKS / "estimate_job.py"), [json.dumps(job)], 3, alloc_conf=conf), gpu_named("h200"))


def case(model: str, fits: bool) -> dict[str, Any]:
    return next(row for row in MEASURED["out_of_memory"] if row["job"]["model"] == model and row["fits"] == fits)


@pytest.mark.parametrize("model", ["resnet18", "vit_b_16", "lstm"])
def test_two_percent_below_the_limit_the_same_op_fails(model: str) -> None:
    """In the forward pass; between two nodes of the backward pass, where a broadcast gradient is summed; in a node."""
    measured = case(model, False)
    with pytest.raises(ScriptOutOfMemory) as caught:
        run(measured["job"], measured["fraction"])
    refused = caught.value.refused
    assert refused is not None
    at = refused.origin
    assert at.op.removeprefix("aten::") == {"sum_dim_IntList": "sum"}.get(measured["op"], measured["op"])
    assert (at.phase, at.step) == (measured["phase"], measured["step"])
    assert "module" not in measured or at.module == measured["module"]


def test_two_percent_above_the_limit_a_job_fits() -> None:
    measured = case("resnet18", True)
    run(measured["job"], measured["fraction"])


def test_the_largest_batch_is_right_to_the_item() -> None:
    measured = next(row for row in MEASURED["largest_batches"] if row["job"]["model"] == "unet")
    run(measured["job"] | {"batch": measured["largest"]}, measured["fraction"])
    with pytest.raises(ScriptOutOfMemory):
        run(measured["job"] | {"batch": measured["largest"] + 1}, measured["fraction"])
