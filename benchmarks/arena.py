# SPDX-License-Identifier: Apache-2.0
"""Arena bytes of every model at each level, beside the lower bound and onnxsim's activation planner.

    python benchmarks/arena.py --models DIR --cache CACHE [--batch 1 4] [--json FILE] [NAME ...]

onnxsim simplifies the same model with the same shapes and plans its activations (`plan_activation_memory`, greedy best
fit). memc's arena excludes outputs, which go to buffers of the caller; `arena+out` adds them, rounded up to the
alignment, for a comparison on equal terms: onnxsim's plan holds them. Last come the totals that the targets speak of.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import Model, select

import memc
from memc.ir.errors import MemcError
from memc.ir.sizes import align
from memc.report.compile_report import Report


@dataclass(frozen=True)
class Row:
    """One model at one batch size; all sizes in bytes."""

    model: str
    batch: int
    unoptimized: int
    level1: int
    arena: int
    bound: int
    outputs: int
    onnxsim: int | None
    """None where onnxsim fails."""
    seconds: float
    """Import and passes at -O2."""

    @property
    def gap(self) -> float:
        return 100 * (self.arena - self.bound) / self.bound if self.bound else 0.0


def plan(model: Model, path: Path, batch: int, level: int) -> tuple[Report, int]:
    """The report at a level and the bytes of the outputs."""
    compilation = memc.compile(
        path, opt_level=level, input_shapes=model.shapes(batch), bind=dict(model.bind), plan_only=True
    )
    outputs = sum(align(value.type.nbytes, 64) for value in compilation.module.main.returns)
    return compilation.report, outputs


def onnxsim_arena(model: Model, path: Path, batch: int) -> int | None:
    """Arena bytes of onnxsim's planner on its own simplification of the model; bound inputs become constants."""
    import onnxsim

    proto = onnx.load(path)
    proto.ir_version = max(proto.ir_version, 8)  # Before 4, initializers had to be inputs too.
    constants = model.constants()
    for name, array in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    kept = [item for item in proto.graph.input if item.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    shapes = {name: list(shape) for name, shape in model.shapes(batch).items()}
    try:
        simplified, _ = onnxsim.simplify(proto, overwrite_input_shapes=shapes)
        return int(onnxsim.plan_activation_memory(simplified).arena_bytes)
    except Exception as error:
        print(f"onnxsim fails on {model.name}: {' '.join(str(error).split())[:120]}", file=sys.stderr)
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only models whose name contains one of these")
    parser.add_argument("--models", type=Path, required=True, help="folder with training/ and inference/")
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[Row] = []
    print("| model | batch | -O0 | -O1 | -O2 arena | gap % | arena+out | onnxsim | ratio | s |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |")
    for model in select(args.names):
        for batch in args.batch if model.open_batch else [1]:
            try:
                path = model.path(args.models, args.cache)
                report, outputs = plan(model, path, batch, 2)
                first = plan(model, path, batch, 1)[0].arena_bytes
            except (MemcError, FileNotFoundError) as error:
                print(f"| {model.name} | {batch} | {error} |")
                continue
            row = Row(
                model.name,
                batch,
                report.unoptimized_bytes,
                first,
                report.arena_bytes,
                report.lower_bound_bytes,
                outputs,
                onnxsim_arena(model, path, batch),
                report.seconds["import"] + report.seconds["passes"],
            )
            rows.append(row)
            ratio = f"{(row.arena + outputs) / row.onnxsim:.3f}" if row.onnxsim else "-"
            print(
                f"| {row.model} | {batch} | {row.unoptimized:,} | {row.level1:,} | {row.arena:,} | {row.gap:.2f} | "
                f"{row.arena + outputs:,} | {row.onnxsim or '-'} | {ratio} | {row.seconds:.2f} |",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    at_bound = sum(row.gap == 0 for row in rows)
    above = [f"{row.model} b{row.batch}" for row in rows if row.onnxsim is not None and row.arena > row.onnxsim]
    above_out = [
        f"{row.model} b{row.batch}" for row in rows if row.onnxsim is not None and row.arena + row.outputs > row.onnxsim
    ]
    print(
        f"\n{len(rows)} plans: {at_bound} at the lower bound, worst gap {max((r.gap for r in rows), default=0):.2f} %; "
        f"above onnxsim: {above or 'none'}; above it with the outputs counted: {above_out or 'none'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
