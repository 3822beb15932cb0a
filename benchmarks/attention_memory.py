# SPDX-License-Identifier: Apache-2.0
"""Memory of training steps with attention as one op that keeps no scores, beside attention written out.

    python benchmarks/attention_memory.py --models DIR --cache CACHE [--out FILE.md] [NAME ...]

bert_base, vit_b_16 and transformer take a step of plain SGD at batch 32; gpt2 and llama160, 4 sequences of 1,024 tokens and of
next-token classes, one of AdamW. All are planned at -O2 for the CPU, in f32, and nothing is recomputed. Stored numbers without
axes, such as an exporter's scale of the scores, and llama's table of angles are no weights there: they are frozen. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from seeded_weights import write_external

import memc
from memc.compile_options import Options
from memc.driver import load_module
from memc.ir.core import Role
from memc.passes.rewrite.recognize import recognize
from memc.report.compile_report import Report

MB = 1e6
SGD = memc.BuildGradient(optimizer="sgd")
SEQUENCES = memc.BuildGradient(optimizer="adamw", loss="mse")
"""The models' classes are on the last axis: of all losses, this one takes scores as they are."""

JOBS = {
    "bert_base": ("training/bert_base.onnx", {"batch": 32}, SGD),
    "vit_b_16": ("training/vit_b_16.onnx", {"batch": 32}, SGD),
    "transformer": ("training/transformer.onnx", {"batch": 32}, SGD),
    "gpt2": ("transformers/gpt2_b4_s1024.onnx", {}, SEQUENCES),
    "llama160": ("transformers/llama160_b4_s1024.onnx", {}, SEQUENCES),
}


@dataclass(frozen=True)
class Row:
    """One model: its plan with attention as one op, and written out."""

    name: str
    attentions: int
    report: Report
    written_out: Report

    def markdown(self) -> str:
        arenas = [self.written_out.arena_bytes, self.report.arena_bytes]
        peaks = [self.written_out.peak_bytes, self.report.peak_bytes]
        cells = [self.name, f"{self.attentions}", *(f"{size / MB:,.1f}" for size in arenas)]
        cells += [f"{100 * (1 - arenas[1] / arenas[0]):.1f} %", *(f"{size / MB:,.1f}" for size in peaks)]
        return f"| {' | '.join([*cells, f'{self.report.gap_percent:.2f} %'])} |"


def frozen(path: Path, train: memc.BuildGradient, dims: dict[str, int]) -> memc.BuildGradient:
    """The step without stored numbers and tables among what it trains."""
    module = load_module(str(path), Options(dims=dims, train=train))
    recognize(module, module.main)  # As the step does first: then the constants of activations are gone.
    floats = [p for p in module.main.params_of(Role.WEIGHT) if p.type.dtype.is_float]
    return replace(train, frozen=tuple(p.name for p in floats if p.type.rank == 0 or p.name == "mul"))


def measure(name: str, models: Path, cache: Path) -> Row:
    file, dims, train = JOBS[name]
    path = write_external(models / file, cache / name)
    train = frozen(path, train, dims)
    found = []
    for attention in (True, False):
        how = replace(train, attention=attention)
        found.append(memc.compile(str(path), dims=dims, train=how, plan_only=True, target="llvm"))
    ops = Counter(op.name for op in found[0].module.main.ops)
    return Row(name, ops["attention_training"], found[0].report, found[1].report)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="; ".join(JOBS))
    parser.add_argument("--models", type=Path, required=True, metavar="DIR", help="holds training/ and transformers/")
    parser.add_argument("--cache", type=Path, required=True, metavar="CACHE", help="where seeded weights are kept")
    parser.add_argument("--out", type=Path, metavar="FILE.md")
    options = parser.parse_args()
    lines = [
        "| model | attentions | arena MB, written out | arena MB, one op | lower | peak MB, written out | peak MB, one op "
        "| arena over its bound |",
        "| --- " * 8 + "|",
    ]
    for name in options.names or JOBS:
        lines.append(measure(name, options.models, options.cache).markdown())
        print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
