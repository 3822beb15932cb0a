# SPDX-License-Identifier: Apache-2.0
"""Training steps under budgets, by recomputation alone and with copies to the host, on two machines: one has the GPU.

    python benchmarks/gpu_offload.py prepare --models DIR --cache CACHE --out FOLDER [--profiles FOLDER] MODEL:BATCH ...
    python benchmarks/gpu_offload.py run FOLDER [--seconds N] [--profiles FOLDER] [--where] [--json FILE] [--markdown FILE]

    python benchmarks/gpu_offload.py prepare --optimizer adam ...

`prepare` compiles the training step (cross entropy, SGD, f32) of each model of DIR/training without a budget, and within shares
of its arena (`--shares`, percent) by recomputation alone and with `--offload auto`, over a named link or one of a file.
With an `--optimizer` that keeps moments, it is that one's step: with all states on the host and no budget (`states`), with as
many as take at most `--most-added` percent more time in the cost model (`hidden`), and within the shares with states on the device (`resident`) and
where the search puts them (`offload`); `states MiB` are on the host.
Ops' times are those of the cost model or, where `run` has written them, of the profile FOLDER/MODEL.BATCH.json. Weights
are drawn from a seed where the step runs.

Each model runs in a process of its own, with all its plans loaded. A time is the median of steps that are taken in turn, one of
each plan after another, each until the device is idle, so that ratios are of the same minutes. `predicted` is the time that the
plan adds in the cost model, `measured` what the step takes more than the one without a budget. `beyond the plan` is the device
memory in use after the plan's steps, less that before it was loaded and the peak that the compiler reported: code, a CUDA
graph, and the driver's steps of 2 MiB. `host` is what the plan says; the slab has exactly as many bytes, or the run fails. GB/s
are bytes that a step copies over the durations of its copies, which PyTorch's profiler sees; `beside kernels` is the share
of these during which kernels run. `same bits` says whether losses of the first steps stay the same when every copy ends
before the next kernel begins, and `repeats` whether they do in another session of the same plan; `plain's bits` whether these losses and the weights and states
after them (`--losses` steps) are those of the step without a budget; `changing sums` in the JSON counts what the runtime warns of. `--where` also takes each plan's steps without a graph and, of those with copies, with 64
bytes for each copy, which leaves what starts and waits take: a second table.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_artifacts import draw_feeds, fill, strip, vocabularies
from gpu_compare import card, start_device
from gpu_offload_where import PLAIN, environment, other_steps, where
from gpu_rows import measured_apart, write_down
from gpu_step_times import copied_times, interleaved, write_traces
from gpu_training_memory import in_use
from linked_package import link_package

STATES, HIDDEN = "states", "hidden"
"""Plans with all states on the host, and with as many as take little time."""

MIB = 2**20
GB = 1e9

HEAD = [
    *(
        "step",
        "plan",
        "arena %",
        "plan MiB",
        "beyond the plan MiB",
        "host MiB",
        "states MiB",
        "out MiB",
        "in MiB",
        "ms",
        "measured",
    ),
    *("predicted", "out GB/s", "in GB/s", "beside kernels", "repeats", "same bits", "plain's bits", "load s"),
]
"""Of the table."""

TIMES = ("at-start",)
"""Values of MEMC_COPIES with which losses are compared."""


def prepare(args: argparse.Namespace) -> int:
    import models as all_models

    from memc.runtime.artifact.manifest import TEXT

    for case in args.cases:
        name, batch = case.split(":")
        (model,) = [m for m in all_models.MODELS if m.name == f"training/{name}"]
        plain: Any = None
        for way, share in ways_of(args):
            start = time.perf_counter()
            folder = args.out / f"{name}.{batch}" / f"{way}.{share}.memc"
            unlimited = plain is None or way in (STATES, HIDDEN)
            budget = None if unlimited else plain.peak_bytes - plain.arena_bytes * (100 - share) // 100
            try:
                report = compiled(model, int(batch), folder, way, budget, args).report
            except Exception as error:  # A budget that one way does not keep must not lose the other's.
                print(f"{case} {way} {share}: {str(error).splitlines()[0]}", flush=True)
                shutil.rmtree(folder, ignore_errors=True)
                continue
            plain = plain or report
            text = (folder / TEXT).read_bytes() if way == PLAIN else b""
            strip(folder)
            if text:  # By which the profile finds the ops.
                (folder / TEXT).write_bytes(text)
            facts = facts_of(report) | {"way": way, "share": share, "budget": budget, "below": vocabularies(model)}
            (folder / "facts.json").write_text(json.dumps(facts))
            spent = f"{time.perf_counter() - start:.0f} s"
            print(f"{case} {way} {share}: { ({k: v for k, v in facts.items() if k != 'below'}) }, {spent}", flush=True)
    return 0


def ways_of(args: argparse.Namespace) -> list[tuple[str, int]]:
    """The plans of a model, each with its share."""
    if args.optimizer == "sgd":
        return [(PLAIN, 100), *((way, share) for share in args.shares for way in ("recompute", "offload"))]
    ways = ("resident", "offload")
    return [(PLAIN, 100), (STATES, 100), (HIDDEN, 100), *((way, share) for share in args.shares for way in ways)]


def compiled(model: Any, batch: int, folder: Path, way: str, budget: int | None, args: argparse.Namespace) -> Any:
    """One plan of a model's training step."""
    import memc
    from memc.passes.pipelines import pipeline

    offload = "auto" if way in ("offload", "resident") else "none"
    states = {STATES: "all", HIDDEN: "all", "resident": "none"}.get(way, "auto")
    link = args.link if offload == "auto" or states == "all" else None
    profile = None if args.profiles is None else args.profiles / f"{model.name.split('/')[1]}.{batch}.json"
    options: dict[str, Any] = {"memory_budget": budget, "offload": offload, "offload_states": states, "link": link}
    if profile is not None and way != PLAIN:
        options["profile"] = str(profile.resolve())
    if way == HIDDEN:
        text = pipeline(2, "cuda", states="all", link=link, profile=options.get("profile"))
        options = {"pass_pipeline": text.replace("host-states{", f"host-states{{most-added={args.most_added} ")}
    return memc.compile(
        str(model.path(args.models, args.cache)),
        folder,
        target="cuda",
        arch=args.arch,
        input_shapes=model.shapes(batch),
        train=memc.BuildGradient(optimizer=args.optimizer),
        **options,
    )


def facts_of(report: Any) -> dict[str, Any]:
    """What the table needs of a plan; bytes."""
    found = {"peak": report.peak_bytes, "arena": report.arena_bytes, "host": report.host_bytes}
    found["added"] = report.added_percent or 0.0
    moved, states = report.offload, report.states
    found["out"], found["in"] = (0, 0) if moved is None else (moved.offloaded_bytes, moved.prefetched_bytes)
    found["copies"] = 0 if moved is None else moved.copies
    found["waiting"] = 0.0 if moved is None else moved.waiting_percent
    found["states"] = 0 if states is None else states.bytes
    if states is not None:
        found["out"], found["in"] = found["out"] + states.copied_out_bytes, found["in"] + states.copied_in_bytes
        found["copies"] = sum(lane.copies for lane in states.lanes.values())
    return found


def run(args: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + args.seconds
    for folder in sorted(p for p in args.folder.iterdir() if any(p.glob("*.memc/facts.json"))):
        left = end - time.monotonic()
        if left < 30 or not any(part in folder.name for part in args.only or [""]):
            continue
        command = [sys.executable, __file__, "one", str(folder)]
        command += ["--steps", str(args.steps), "--losses", str(args.losses)]
        command += ["--profiles", str(args.profiles)] if args.profiles else []
        command += ["--where"] if args.where else []
        command += ["--traces", str(args.traces)] if args.traces else []
        row, said = measured_apart(command, left)
        rows.append({"case": folder.name, "changing sums": said.count("differs in its last bits")} | row)
        write_down(rows, table, args)
    print(table(rows))
    return 0


def one(args: argparse.Namespace) -> int:
    """Print one model's row as JSON."""
    link_package()
    import tvm

    start_device()
    plans: dict[str, dict[str, Any]] = {}
    steps: dict[str, Callable[[], object]] = {}
    plain: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        for artifact in sorted(args.folder.glob("*.memc"), key=lambda p: (not p.name.startswith(PLAIN), p.name)):
            facts = json.loads((artifact / "facts.json").read_text())
            whole = Path(temporary) / artifact.name
            fill(artifact, whole)
            plans[artifact.stem], steps[artifact.stem], bits = placed(whole, facts, args.losses)
            plain = plain or bits
            if bits:
                plans[artifact.stem]["as plain"] = bits == plain
            if facts["way"] == PLAIN and args.profiles:
                plans[artifact.stem]["profile"] = profiled(whole, args.profiles / f"{args.folder.name}.json")
            if args.where:
                found, plans[artifact.stem]["note"] = other_steps(whole, facts)
                steps |= {f"{artifact.stem}:{name}": step for name, step in found.items()}
            shutil.rmtree(whole)
    for name, ms in interleaved(steps, tvm.cuda(0).sync, args.steps).items():
        stem, _, other = name.partition(":")
        plans[stem] |= {f"{other} ms".strip(): float(np.median(ms)), f"{other} least".strip(): float(np.min(ms))}
    for name in plans:
        if plans[name]["copies"]:
            plans[name] |= copied_times(steps[name], tvm.cuda(0).sync, plans[name])
    if args.traces:
        write_traces(args.traces, args.folder.name, steps, tvm.cuda(0).sync)
    for facts in plans.values():
        del facts["below"]
    print(json.dumps({"plans": plans}))
    return 0


def placed(whole: Path, facts: dict[str, Any], count: int) -> tuple[dict[str, Any], Callable[[], object], list[str]]:
    """A plan's facts with what its first `count` steps took and gave, one more step, and the bits of these steps."""
    from memc.runtime.execute.executable import Executable
    from memc.runtime.execute.load import load

    gc.collect()  # Sessions of the plan before, which would otherwise be given back while this one is measured.
    before, start = in_use(), time.perf_counter()
    step: Any = load(whole)
    facts["load"] = round(time.perf_counter() - start, 2)
    if step.statistics().get("host", 0) != facts["host"]:
        raise AssertionError(f"{whole.name}: a slab of {step.statistics()} bytes, {facts['host']} planned")
    feeds = draw_feeds(step.inputs, facts["below"])
    first = step.state() if count else {}
    losses = losses_of(step, feeds, max(1, count))
    bits = [*losses, *digests(step.state())] if count else []
    gc.collect()
    facts["beyond"] = in_use() - before - facts["peak"]
    facts["loss"] = losses[-1]
    on_device = step.placed_inputs(feeds)
    if not count:
        return facts, lambda: Executable.__call__(step, **on_device), []
    facts["repeats"] = losses_again(step, first, feeds, count) == losses
    if facts["copies"]:
        facts["same"] = []
        for times in TIMES:
            with environment("MEMC_COPIES", times):
                facts["same"].append(losses_again(step, first, feeds, count) == losses)
    facts["checks"] = round(time.perf_counter() - start - facts["load"], 2)
    return facts, lambda: Executable.__call__(step, **on_device), bits


def digests(state: Any) -> list[str]:
    """What tells apart the bits of weights and states."""
    return [f"{name} {zlib.crc32(state[name].reshape(-1).view(np.uint8))}" for name in sorted(state)]


def losses_again(step: Any, first: Any, feeds: dict[str, Any], count: int) -> list[str]:
    """The losses of some steps of another session, from the same state on."""
    step.load_state(first)
    return losses_of(step.session(), feeds, count)


def losses_of(step: Any, feeds: dict[str, Any], count: int) -> list[str]:
    """The losses of some steps, exactly."""
    return [float(step(**feeds)).hex() for _ in range(count)]


def profiled(whole: Path, path: Path) -> str:
    """Write the seconds of the ops of a step by their signatures; a note where that fails."""
    import memc

    try:
        found = memc.bench(whole, runs=3, warmup=2, profiled_runs=5).profile
        assert found is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found.seconds_by_signature()))
    except Exception as error:  # The other figures are worth more.
        return f"{type(error).__name__}: {error}"[:300]
    return str(path.name)


def table(rows: list[dict[str, Any]]) -> str:
    """Sizes in MiB; times beside that of the step without a budget."""
    lines = [f"Card: {card()}", "", "| " + " | ".join(HEAD) + " |", "| --- | --- " + "| --: " * (len(HEAD) - 2) + "|"]
    for row in rows:
        if "note" in row:
            lines.append(f"| {row['case']} | {row['note'].splitlines()[-1][:200]} |")
            continue
        plain = next(p for p in row["plans"].values() if p["way"] == PLAIN)
        for plan in row["plans"].values():
            sizes = [plan.get(key, 0) / MIB for key in ("peak", "beyond", "host", "states", "out", "in")]
            cells = [row["case"], plan["way"], f"{100 * plan['arena'] / plain['arena']:.1f}"]
            cells += [*(f"{size:.1f}" for size in sizes), f"{plan['ms']:.2f}"]
            cells += [f"{100 * (plan['ms'] / plain['ms'] - 1):+.2f} %", f"{plan['added']:+.2f} %"]
            cells += ["" if plan.get(k) is None else f"{plan[k]:.1f}" for k in ("out GB/s", "in GB/s", "beside")]
            kept = (plan.get("repeats"), all(plan["same"]) if "same" in plan else None, plan.get("as plain"))
            cells += ["" if holds is None else "yes" if holds else "NO" for holds in kept]
            cells.append(f"{plan['load']:.1f}")
            lines.append("| " + " | ".join(cells) + " |")
    if any("eager ms" in plan for row in rows for plan in row.get("plans", {}).values()):
        lines += ["", *where(rows)]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    first = verbs.add_parser("prepare", help="compile here, without a GPU")
    first.add_argument("cases", nargs="+", metavar="MODEL:BATCH")
    first.add_argument("--models", type=Path, required=True)
    first.add_argument("--cache", type=Path, required=True)
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--arch", default="sm_90")
    first.add_argument("--link", default="h200", help="as memc compile takes it")
    first.add_argument("--most-added", type=float, default=1.25, help="percent, of the plan `hidden`")
    first.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="sgd")
    first.add_argument("--shares", nargs="*", type=int, default=(50, 27), help="percent of the arena")
    first.set_defaults(verb=prepare)
    second = verbs.add_parser("run", help="measure on a machine with a GPU")
    second.add_argument("folder", type=Path)
    second.add_argument("--only", nargs="*", help="parts of cases' names")
    second.add_argument("--seconds", type=float, default=3600, help="stop beginning models after that many")
    second.add_argument("--json", type=Path)
    second.add_argument("--markdown", type=Path)
    second.set_defaults(verb=run)
    third = verbs.add_parser("one", help="measure one model; what `run` calls")
    third.add_argument("folder", type=Path)
    third.set_defaults(verb=one)
    for verb in (second, third):
        verb.add_argument(
            "--where", action="store_true", help="also without a graph, and with hardly any bytes to copy"
        )
        verb.add_argument("--steps", type=int, default=30, help="that are timed, of each plan")
        verb.add_argument("--traces", type=Path, help="folder for the kernels and copies of a step of each plan")
        verb.add_argument("--losses", type=int, default=8, help="steps whose losses are compared; 0 for times alone")
    for verb in (first, second, third):
        verb.add_argument("--profiles", type=Path, help="folder of ops' times, that `run` writes and `prepare` reads")
    args = parser.parse_args()
    return int(args.verb(args))


if __name__ == "__main__":
    sys.exit(main())
