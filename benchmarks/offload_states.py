# SPDX-License-Identifier: Apache-2.0
"""Training steps with all optimizer states on the host between steps, in the cost model.

    python benchmarks/offload_states.py --models FOLDER [--cache FOLDER] [--link h200] [--optimizer adam] [MODEL:BATCH ...]

Each row is a model's step planned for CUDA twice, with its states on the device and on the host. `added`: time in percent of one run
of every op (an H100's roofline, and the named link); `at the end`: how much of that is spent after the last op, while states leave;
`peak`: of arena, weights, states, inputs and outputs; `stay`: states that lie in the arena between steps and leave as the next one begins;
`s`: of the passes, without and with.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import models as all_models

import memc
from memc.report.compile_report import Report

CASES = ("bert_base:32", "bert_base:64", "vit_b_16:32", "resnet50:32", "transformer:32", "lstm:32")

MIB = 2**20


def planned(case: str, states: str, arguments: argparse.Namespace) -> Report:
    """A model's training step."""
    name, batch = case.split(":")
    (model,) = [m for m in all_models.MODELS if m.name == f"training/{name}"]
    return memc.compile(
        str(model.path(arguments.models, arguments.cache)),
        target="cuda",
        arch="sm_90",
        input_shapes=model.shapes(int(batch)),
        train=memc.BuildGradient(optimizer=arguments.optimizer),
        offload_states="all" if states == "all" else "none",
        link=arguments.link if states == "all" else None,
        plan_only=True,
    ).report


def row(case: str, arguments: argparse.Namespace) -> str:
    """A table row."""
    plain, moved = (planned(case, states, arguments) for states in ("none", "all"))
    found = moved.states
    assert found is not None
    end = sum(stall.percent for stall in found.stalls if stall.op == "return")
    cells = [
        case.replace(":", " b"),
        f"{found.bytes / MIB:.1f}",
        f"{plain.peak_bytes / MIB:.0f}",
        f"{moved.peak_bytes / MIB:.0f}",
        str(found.groups),
        f"{found.staying_bytes / MIB:.1f}",
        f"**{found.added_percent:.2f}**",
        f"{end:.2f}",
        f"{plain.seconds['passes']:.1f}",
        f"{moved.seconds['passes']:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--link", default="h200")
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:BATCH")
    arguments = parser.parse_args()
    print(
        "| step | states MiB | peak MiB, on the device | on the host | groups | stay MiB | added % | at the end % | s without | with |"
    )
    print("| --- |" + " --: |" * 9)
    for case in arguments.cases:
        print(row(case, arguments), flush=True)


if __name__ == "__main__":
    main()
