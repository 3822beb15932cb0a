# SPDX-License-Identifier: Apache-2.0
"""Inference with weights on the host, beside the same with all of them on the device, on two machines: one has the GPU.

    python benchmarks/gpu_stream.py prepare --models DIR --cache CACHE --out FOLDER [--shares 25 ...] CASE ...
    python benchmarks/gpu_stream.py run FOLDER [--seconds N] [--json FILE] [--markdown FILE]

A CASE is MODEL:BATCH[:PRECISION], of DIR/training and for inference: it is compiled with all weights on the device, and within
budgets that leave shares of their bytes (`--shares`, percent). Or it is stack:GIB:BUDGET[:ROWS]: a stack of bf16 products of 16384
by 16384 with so many GiB of weights, for so many rows (64), within BUDGET GiB; where all of them fit in 40 GiB, with all on the
device as well. `--profiles FOLDER` takes ops' times of FOLDER/CASE.json, where `run --profiles` has written them.

Weights do not travel: those of stacks are drawn from a seed straight into the spaces as the artifact is loaded, those of models where
it is run. Each case runs in a process of its own, with all its plans loaded. A time is the median of runs that are taken in turn,
one of each plan after another, each until the device is idle. `predicted` is the time that a plan adds in the cost model, `measured`
what it takes more than with all weights on the device. GB/s are bytes that a run copies over its time; `link` is what a copy of 1 GiB
from pinned memory reaches alone in the same process. `same bits` says whether outputs are finite and the same every time, `away`
by how much they differ at most from those of the plan with all weights on the device, beside the largest: each executable chooses its
libraries' algorithms by their times.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_artifacts import draw_feeds, fill, strip, vocabularies
from gpu_compare import card, start_device
from gpu_rows import measured_apart, write_down
from gpu_step_times import interleaved
from gpu_training_memory import in_use
from linked_package import link_package

PLAIN = "resident"

WIDTH = 16384
"""Of a stack's products: weights of 512 MiB."""

FITS = 40
"""GiB of weights that are also tried on the device."""

MIB, GIB, GB = 2**20, 2**30, 1e9


def prepare(args: argparse.Namespace) -> int:
    for case in args.cases:
        folder = args.out / case.replace(":", ".")
        ways = stack_ways(case, args) if case.startswith("stack:") else model_ways(case, args)
        for name, found, below in ways:
            report = found.report
            facts: dict[str, Any] = {"plan": name, "peak": report.peak_bytes, "arena": report.arena_bytes}
            facts |= {
                "weights": report.weights_bytes,
                "host": report.host_bytes,
                "below": below,
                "stack": "stack" in case,
            }
            facts["added"] = report.added_percent or 0.0
            moved = report.offload
            facts["copies"] = 0 if moved is None else moved.copies
            facts["copied"] = 0 if moved is None else moved.prefetched_bytes
            facts["windows"] = 0 if moved is None or moved.streamed is None else moved.streamed.windows_bytes
            (folder / f"{name}.memc" / "facts.json").write_text(json.dumps(facts))
            print(f"{case} {name}: { ({k: v for k, v in facts.items() if k != 'below'}) }", flush=True)
    return 0


def model_ways(case: str, args: argparse.Namespace) -> Any:
    """A model's plans by their names."""
    import models as all_models

    import memc

    name, batch, precision = (*case.split(":"), "f32")[:3]
    (model,) = [m for m in all_models.MODELS if m.name == f"training/{name}"]
    options: dict[str, Any] = {"target": "cuda", "arch": args.arch, "input_shapes": model.shapes(int(batch))}
    options["precision"] = precision
    profile = None if args.profiles is None else args.profiles / f"{case.replace(':', '.')}.json"
    plain: Any = None
    for share in (100, *args.shares):
        way = PLAIN if share == 100 else f"streamed.{share}"
        folder = args.out / case.replace(":", ".") / f"{way}.memc"
        budget = None if plain is None else plain.peak_bytes - plain.weights_bytes * (100 - share) // 100
        moves: dict[str, Any] = (
            {} if budget is None else {"memory_budget": budget, "offload": "auto", "link": args.link}
        )
        moves |= {} if budget is None or profile is None else {"profile": str(profile)}
        found = memc.compile(str(model.path(args.models, args.cache)), folder, **options, **moves)
        plain = plain or found.report
        text = (folder / "model.memir").read_bytes()
        strip(folder)
        if way == PLAIN:  # By which the profile finds the ops.
            (folder / "model.memir").write_bytes(text)
        yield way, found, vocabularies(model)


def stack_ways(case: str, args: argparse.Namespace) -> Any:
    """A stack's plans by their names. Nothing is stored of the weights, nor do they take memory."""
    import memc
    from memc.runtime.artifact import manifest, safetensors

    gib, budget, rows = (int(number) for number in (*case.split(":")[1:], "64")[:3])
    safetensors.write = lambda path, entries: path.write_bytes(b"")  # type: ignore[assignment]
    ways: list[tuple[str, dict[str, Any]]] = [(PLAIN, {})] if gib <= FITS else []
    ways.append(("streamed", {"memory_budget": budget * GIB, "offload": "auto", "link": args.link}))
    for way, options in ways:
        folder = args.out / case.replace(":", ".") / f"{way}.memc"
        found = memc.compile(stack(gib, rows), folder, target="cuda", arch=args.arch, **options)
        (folder / manifest.TEXT).unlink()
        yield way, found, {}


def stack(gib: int, rows: int) -> Any:
    """A module of products and ReLUs one after another."""
    from memc.ir.text.parser import parse
    from memc.ir.types import DType

    count = gib * GIB // (2 * WIDTH * WIDTH)
    square, data = f"bf16[{WIDTH},{WIDTH}]", f"[{rows},{WIDTH}]"
    lines = [f"  %v0 = cast(%x) {{to = bf16}} : bf16{data}"]
    for n in range(count):
        lines.append(f"  %p{n} = matmul(%v{n}, %w{n}) {{transpose_a = false, transpose_b = false}} : f32{data}")
        lines.append(f"  %c{n} = cast(%p{n}) {{to = bf16}} : bf16{data}")
        lines.append(f"  %v{n + 1} = relu(%c{n}) : bf16{data}")
    params = ", ".join(f"%w{n}: {square} {{role = weight}}" for n in range(count))
    head = f'func @main(%x: f32{data} {{role = input}}, {params}) -> (f32{data} {{name = "y"}}) {{'
    module = parse(
        "\n".join([head, *lines, f"  %y = cast(%v{count}) {{to = f32}} : f32{data}", "  return %y", "}", ""])
    )
    zero = np.zeros((), DType.BF16.numpy)
    module.weights.update({f"w{n}": np.broadcast_to(zero, (WIDTH, WIDTH)) for n in range(count)})
    return module


def run(args: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + args.seconds
    for folder in sorted(p for p in args.folder.iterdir() if any(p.glob("*.memc/facts.json"))):
        left = end - time.monotonic()
        if left < 30 or not any(part in folder.name for part in args.only or [""]):
            continue
        command = [sys.executable, __file__, "one", str(folder), "--steps", str(args.steps)]
        command += ["--profiles", str(args.profiles)] if args.profiles else []
        rows.append({"case": folder.name} | measured_apart(command, left)[0])
        write_down(rows, table, args)
    print(table(rows))
    return 0


def one(args: argparse.Namespace) -> int:
    """Print one case's row as JSON."""
    link_package()
    import tvm

    start_device()
    plans: dict[str, dict[str, Any]] = {}
    steps: dict[str, Any] = {}
    results: dict[str, dict[str, Any]] = {}
    note = ""
    with tempfile.TemporaryDirectory() as temporary:
        for artifact in sorted(args.folder.glob("*.memc")):
            facts = json.loads((artifact / "facts.json").read_text())
            name = facts["plan"]
            whole = artifact
            if not facts["stack"]:
                whole = Path(temporary) / artifact.name
                fill(artifact, whole)
            executable = loaded(whole, facts)
            feeds = draw_feeds(executable.inputs, facts.pop("below"))
            outputs = [{key: v.numpy() for key, v in executable(**feeds).items()} for _ in range(3)]
            facts["same"] = all(o[key].tobytes() == v.tobytes() for o in outputs for key, v in outputs[0].items())
            found = {key: v.astype(np.float64) for key, v in outputs[0].items()}
            facts["finite"] = all(bool(np.isfinite(v).all()) for v in found.values())
            plain = results.setdefault(PLAIN, found) if name == PLAIN else results.get(PLAIN, found)
            facts["away"] = max(
                float(np.abs(v - plain[key]).max() / np.abs(plain[key]).max()) for key, v in found.items()
            )
            facts["beyond"] = in_use() - facts.pop("before") - facts["peak"]
            on_device = executable.placed_inputs(feeds)
            steps[name] = lambda executable=executable, on_device=on_device: executable(**on_device)
            plans[name] = facts
            if name == PLAIN and args.profiles and not facts["stack"]:
                note = profiled(whole, args.profiles / f"{args.folder.name}.json")
    for name, ms in interleaved(steps, tvm.cuda(0).sync, args.steps, warm=2).items():
        plans[name] |= {"ms": float(np.median(ms)), "least": float(np.min(ms))}
    print(json.dumps({"plans": plans, "link": link_rate(), "profile": note}))
    return 0


def loaded(whole: Path, facts: dict[str, Any]) -> Any:
    """An executable; of a stack with weights from a seed."""
    import memc
    from memc.runtime.execute import memory

    facts["before"], start = in_use(), time.perf_counter()
    if facts["stack"]:
        memory.upload = draw_into
    executable = memc.load(whole)
    facts["load"] = round(time.perf_counter() - start, 1)
    if executable.statistics().get("host", 0) != facts["host"]:
        raise AssertionError(f"{whole.name}: a slab of {executable.statistics()} bytes, {facts['host']} planned")
    return executable


def draw_into(manifest: Any, space: Any, slab: Any) -> None:
    """Fill a space of weights: each one the same numbers, from another place on."""
    import ml_dtypes

    from memc.runtime.execute.tensors import array_over

    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(WIDTH * WIDTH, np.float32) * np.float32((2.0 / WIDTH) ** 0.5)
    block = numbers.astype(ml_dtypes.bfloat16).view(np.uint8)
    on_host = space.device.kind != "cuda"
    staged = array_over(slab, "u8") if on_host else np.zeros(space.bytes, np.uint8)
    for weight in (w for w in manifest.weights if w.spec.space == space.name):
        part = staged[weight.offset : weight.offset + weight.spec.nbytes]
        at = 2 * WIDTH * (1 + int(weight.spec.name[1:]) % WIDTH)  # Whole rows.
        part[:-at], part[-at:] = block[at:], block[:at]
    if not on_host:
        slab.copyfrom(staged)


def profiled(whole: Path, path: Path) -> str:
    """Write the seconds of the ops of a run by their signatures; a note where that fails."""
    import memc

    try:
        found = memc.bench(whole, runs=3, warmup=2, profiled_runs=5).profile
        assert found is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found.seconds_by_signature()))
    except Exception as error:  # The other figures are worth more.
        return f"{type(error).__name__}: {error}"[:300]
    return str(path.name)


def link_rate(nbytes: int = GIB, count: int = 5) -> float:
    """GB/s of a copy from pinned memory, the best of some."""
    from memc.runtime.cuda.pinned_copies import pinned_copies

    seconds = []
    with pinned_copies(0, nbytes) as copies:
        for _ in range(count):
            start = time.perf_counter()
            copies.begin("in", nbytes)
            copies.finish("in")
            seconds.append(time.perf_counter() - start)
    return nbytes / min(seconds) / GB


def table(rows: list[dict[str, Any]]) -> str:
    """Sizes in MiB; times beside those with all weights on the device."""
    head = [
        "case",
        "plan",
        "peak MiB",
        "weights MiB",
        "host MiB",
        "windows MiB",
        "copied MiB",
        "copies",
        "ms",
        "measured",
    ]
    head += ["predicted", "GB/s", "link GB/s", "of the link", "beyond the plan MiB", "same bits", "away", "load s"]
    lines = [f"Card: {card()}", "", "| " + " | ".join(head) + " |", "| --- | --- " + "| --: " * (len(head) - 2) + "|"]
    for row in rows:
        if "note" in row:
            lines.append(f"| {row['case']} | {row['note'].splitlines()[-1][:200]} |")
            continue
        plain = row["plans"].get(PLAIN)
        for name, plan in row["plans"].items():
            sizes = [plan[key] / MIB for key in ("peak", "weights", "host", "windows", "copied")]
            cells = [row["case"], name, *(f"{size:.1f}" for size in sizes), str(plan["copies"]), f"{plan['ms']:.3f}"]
            cells.append("" if plain is None else f"{100 * (plan['ms'] / plain['ms'] - 1):+.2f} %")
            rate = plan["copied"] / plan["ms"] / 1e6
            cells += [
                f"{plan['added']:+.2f} %",
                f"{rate:.1f}",
                f"{row['link']:.1f}",
                f"{100 * rate / row['link']:.1f} %",
            ]
            same = "yes" if plan["same"] and plan["finite"] else "NO"
            cells += [f"{plan['beyond'] / MIB:.1f}", same, f"{plan['away']:.1e}", f"{plan['load']:.1f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    first = verbs.add_parser("prepare", help="compile here, without a GPU")
    first.add_argument("cases", nargs="+", metavar="CASE")
    first.add_argument("--models", type=Path)
    first.add_argument("--cache", type=Path)
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--arch", default="sm_90")
    first.add_argument("--link", default="h200", help="as memc compile takes it")
    first.add_argument("--shares", nargs="+", type=int, default=(25,), help="percent of the weights")
    first.set_defaults(verb=prepare)
    second = verbs.add_parser("run", help="measure on a machine with a GPU")
    second.add_argument("folder", type=Path)
    second.add_argument("--only", nargs="*", help="parts of cases' names")
    second.add_argument("--seconds", type=float, default=3600, help="stop beginning cases after that many")
    second.add_argument("--json", type=Path)
    second.add_argument("--markdown", type=Path)
    second.set_defaults(verb=run)
    third = verbs.add_parser("one", help="measure one case; what `run` calls")
    third.add_argument("folder", type=Path)
    third.set_defaults(verb=one)
    for verb in (second, third):
        verb.add_argument("--steps", type=int, default=20, help="that are timed, of each plan")
    for verb in (first, second, third):
        verb.add_argument("--profiles", type=Path, help="folder of ops' times, that `run` writes and `prepare` reads")
    args = parser.parse_args()
    return int(args.verb(args))


if __name__ == "__main__":
    sys.exit(main())
