# SPDX-License-Identifier: Apache-2.0
"""What cuDNN takes on the phantom device, beside what it took on an H200."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Script, run_script

pytestmark = pytest.mark.phantom

SIZES = Path(__file__).resolve().parents[5] / "benchmarks/data/cudnn_h200_sizes.json"

CONVOLUTIONS = """
import json, sys, torch
torch.backends.cudnn.allow_tf32 = True
found = []
for case in json.load(open(sys.argv[1]))["convolutions"]:
    kind, pad, stride = getattr(torch, case["type"]), case["pad"], case["stride"]
    x, w = (torch.empty(case[name], dtype=kind, device="cuda") for name in "xw")
    y = torch.conv2d(x, w, None, stride, pad)
    def run():
        if case["direction"] == "forward":
            return [torch.conv2d(x, w, None, stride, pad)]
        mask = [case["direction"] == "data", case["direction"] == "weights", False]
        return torch.ops.aten.convolution_backward(y, x, w, None, stride, pad, [1, 1], False, [0, 0], 1, mask)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    made = run()
    own = sum(each.numel() * each.element_size() for each in made if each is not None)
    found.append(torch.cuda.memory_stats()["requested_bytes.all.peak"] - before - own)
json.dump(found, open(sys.argv[2], "w"))
"""

RECURRENT = """
import json, sys, torch
case = json.loads(sys.argv[1])
torch.backends.cudnn.allow_tf32 = case["precision"] == "tf32"
kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(case["precision"], torch.float32)
make = getattr(torch.nn, case["cell"])
network = make(case["inputs"], case["hidden"], case["layers"], bidirectional=case["directions"] == 2).to("cuda", kind)
network.train(case["train"])
x = torch.empty(case["length"], case["batch"], case["inputs"], device="cuda", dtype=kind)
with torch.set_grad_enabled(case["train"]):
    network(x)
"""


def test_workspaces_of_convolutions_on_tensor_cores(tmp_path: Path) -> None:
    """Convolutions that had no part in finding how they come about: nine of ten to the byte."""
    (tmp_path / "train.py").write_text(CONVOLUTIONS)
    run_script(
        Script(str(tmp_path / "train.py"), [str(SIZES), str(tmp_path / "found.json")], steps=0), gpu_named("h200")
    )
    found = json.loads((tmp_path / "found.json").read_text())
    measured = [case["workspace"] for case in json.loads(SIZES.read_text())["convolutions"]]
    assert len(found) == len(measured) > 100
    assert sum(mine == theirs for mine, theirs in zip(found, measured)) >= 0.9 * len(measured)
    assert max(abs(mine - theirs) for mine, theirs in zip(found, measured)) < 16 * 2**20


@pytest.mark.parametrize(
    "case", json.loads(SIZES.read_text())["recurrent"], ids=lambda case: "-".join(map(str, case.values()))
)
def test_sizes_of_recurrent_networks(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RECURRENT)
    recording = run_script(Script(str(tmp_path / "train.py"), [json.dumps(case)], steps=0), gpu_named("h200"))
    asked = recording.events.nbytes.tolist()
    assert case["workspace"] in asked
    assert case["reserve"] == 0 or case["reserve"] in asked
