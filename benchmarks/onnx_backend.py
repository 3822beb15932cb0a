# SPDX-License-Identifier: Apache-2.0
"""Runs the selected onnx node tests through memc and counts the verdicts.

python benchmarks/onnx_backend.py --mode evaluate
python benchmarks/onnx_backend.py --mode compiled --workers 2 --json results.json
python benchmarks/onnx_backend.py --mode compiled --others          # f16, f64, u8 and so on
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "conformance"))

import backend
import workers


def run(
    mode: str,
    count: int,
    timeout: float,
    only: str = "",
    progress: bool = False,
    names: set[str] | None = None,
    others: bool = False,
) -> list[backend.Outcome]:
    """Outcomes of all selected cases whose name contains `only` (and is in `names`, if given).

    With `others`, of the cases of other element types instead, which are static but not selected.
    """
    chosen = backend.selected()
    if others:
        chosen = {n: c for n, c in backend.static().items() if n not in backend.selected()}
    cases = {n: c for n, c in chosen.items() if only in n and (names is None or n in names)}
    done = 0

    def report(outcome: backend.Outcome) -> None:
        nonlocal done
        done += 1
        if progress and (done % 100 == 0 or outcome.verdict in ("wrong", "crash", "hang")):
            print(f"{done}/{len(cases)} {outcome.verdict} {outcome.name} {outcome.detail}", file=sys.stderr)

    return workers.run(
        list(cases),
        lambda name: backend.run_case(cases[name], mode),
        lambda name, verdict: backend.Outcome(name, cases[name].ops, verdict, f"worker {verdict}, limit {timeout} s"),
        workers=count,
        timeout=timeout,
        report=report,
    )


def summary(outcomes: list[backend.Outcome]) -> str:
    """Counts, then everything that is not a match, grouped by op."""
    counts = Counter(o.verdict for o in outcomes)
    lines = ["  ".join(f"{v} {counts[v]}" for v in backend.VERDICTS) + f"  of {len(outcomes)}"]
    lines.append(f"inputs bound to constants in {sum(bool(o.bound) for o in outcomes)}")
    groups: dict[tuple[int, str], list[backend.Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.verdict != "match":
            groups[-backend.VERDICTS.index(outcome.verdict), outcome.ops].append(outcome)
    for (_, ops), group in sorted(groups.items()):
        lines.append(f"{group[0].verdict.upper()} {ops}: {len(group)}")
        lines += [f"    {o.name}: {o.detail}" for o in group]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=sorted(backend.MODES), default="evaluate")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one case")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--others", action="store_true", help="the static cases of other element types instead")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    args = parser.parse_args()
    start = time.perf_counter()
    outcomes = run(args.mode, args.workers, args.timeout, args.only, progress=True, others=args.others)
    print(summary(outcomes))
    print(f"{args.mode}: {time.perf_counter() - start:.0f} s with {args.workers} workers", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n")
    return 1 if any(o.verdict in ("wrong", "crash", "hang", "rejected") for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
