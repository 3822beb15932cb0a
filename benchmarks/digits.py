# SPDX-License-Identifier: Apache-2.0
"""Training on scikit-learn's digits by every way to recompute: accuracy, memory, added compute, and whether bits stay.

    python benchmarks/digits.py [--only NAME ...]

The networks are those of `examples/train_digits.py`, trained from scratch. `-O1` has no recomputation but `--mirror`'s;
`-O2` recomputes as far as `--memory-budget` asks, here shares of the peak that it has without. `bits` says whether the
losses of all steps and in the end all weights and moments are bit for bit those of the same level without recomputation.
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import memc
from memc.ir.errors import BudgetError
from memc.ir.sizes import format_size

EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[1] / "examples" / "train_digits.py"))
SHARES = (0.95, 0.9, 0.85, 0.8, 0.75)
MIRRORS = ("none", "cheap", "sublinear")


@dataclass(frozen=True)
class Case:
    """A network and how it is trained."""

    kind: str
    optimizer: str
    rate: float

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.optimizer}"

    def compile(self, level: int, budget: int | None, mirror: str = "none", plan_only: bool = False) -> Any:
        how = memc.BuildGradient(
            optimizer=self.optimizer, momentum=0.9 if self.optimizer == "sgd" else 0.0, mirror=mirror
        )
        dims = {"batch": EXAMPLE["BATCHES"][self.kind]}
        model = EXAMPLE["build_model"](self.kind)
        return memc.compile(model, dims=dims, train=how, opt_level=level, memory_budget=budget, plan_only=plan_only)


CASES = (
    Case("mlp", "sgd", 0.03),
    Case("mlp", "adamw", 2e-3),
    Case("dropout", "adam", 2e-3),
    Case("cnn", "sgd", 0.03),
    Case("cnn", "adam", 2e-3),
)


@dataclass(frozen=True)
class Trained:
    """What came of training."""

    report: memc.Report
    losses: list[float]
    state: dict[str, np.ndarray]
    accuracy: float

    @staticmethod
    def of(case: Case, compilation: Any, digits: Any) -> Trained:
        step = compilation.load()
        losses = EXAMPLE["train"](step, digits, EXAMPLE["EPOCHS"][case.kind], case.rate)
        with tempfile.TemporaryDirectory() as folder:
            step.export_onnx(Path(folder) / "trained.onnx")
            accuracy = EXAMPLE["accuracy"](Path(folder) / "trained.onnx", digits)
        return Trained(compilation.report, losses, step.state(), accuracy)

    def same_bits(self, other: Trained) -> bool:
        same = all(np.array_equal(content, other.state[name]) for name, content in self.state.items())
        return self.losses == other.losses and same


def row(case: Case, how: str, trained: Trained, plain: Trained) -> str:
    found = trained.report.recomputation
    again = "" if found is None else f"{found.ops}"
    added = "" if found is None else f"{found.added_percent:.2f}"
    bits = "" if trained is plain else ("same" if trained.same_bits(plain) else "DIFFERENT")
    peaks = f"{format_size(trained.report.arena_bytes)} | {format_size(trained.report.peak_bytes)}"
    result = f"{trained.losses[-1]:.4f} | {100 * trained.accuracy:.2f}"
    return f"| {case.name} | {how} | {peaks} | {again} | {added} | {result} | {bits} |"


def rows(case: Case, digits: Any) -> list[str]:
    """Both levels without recomputation, each mirror policy, and each share of the peak that makes another plan."""
    found = []
    plain = None
    for mirror in MIRRORS:
        trained = Trained.of(case, case.compile(1, None, mirror), digits)
        plain = plain or trained
        found.append(row(case, "-O1" if mirror == "none" else f"-O1, mirror {mirror}", trained, plain))
    plain = Trained.of(case, case.compile(2, None), digits)
    found.append(row(case, "-O2", plain, plain))
    reached = plain.report.peak_bytes
    for share in SHARES:
        budget = int(share * plain.report.peak_bytes)
        try:
            planned = case.compile(2, budget, plan_only=True).report.peak_bytes
        except BudgetError:
            break
        if planned < reached:
            reached = planned
            trained = Trained.of(case, case.compile(2, budget), digits)
            found.append(row(case, f"-O2, budget {100 * share:.0f} %", trained, plain))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[case.name for case in CASES])
    arguments = parser.parse_args()
    digits = EXAMPLE["load_digits"]()
    print("| network | compiled by | arena | peak | ops recomputed | added % | last loss | accuracy % | bits |")
    print("| --- | --- | --: | --: | --: | --: | --: | --: | --- |")
    for case in CASES:
        if case.name in arguments.only:
            print("\n".join(rows(case, digits)), flush=True)


if __name__ == "__main__":
    main()
