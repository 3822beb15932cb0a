# SPDX-License-Identifier: Apache-2.0
"""onnx's node tests, random graphs, epilogues and training steps on a GPU, compiled where there is a compiler.

    python benchmarks/gpu_conformance.py build OUT [--arch sm_90] [--jobs N] nodes graphs:0:2000 epilogues:0:2000 training:0:100
    python benchmarks/gpu_conformance.py run OUT [--jobs N] [--json FILE] [--markdown FILE]

`build` compiles each case and stores its artifact, without text and model, beside inputs, expected results and tolerances
(`conformance_cases.py`); KIND:FIRST:COUNT names seeds, `nodes` all of onnx's tests. It goes on where it was broken off, and
packs what is finished into OUT/pack.*.tar.xz, in which equal files are there once: 5 to 10 kB a node test or graph, 120 kB a
training step. `run` loads each artifact, runs it twice, a training step three times, and compares all results. Both work in
processes of 24 cases; one that dies or hangs is noticed, its case named, and the others go on.

On two machines, from the repository's root, OUT in an ignored folder that is carried to the other:

    python benchmarks/gpu_conformance.py build build/conformance nodes graphs:0:2000 epilogues:0:2000 training:0:100
    # On the GPU's machine, with TVM's runtime and tvm_ffi in SITE, and libmemc_core.so in CORE:
    PYTHONPATH=SITE MEMC_CORE=CORE python3 benchmarks/gpu_conformance.py run build/conformance --jobs 14 \\
        --json $OUT/conformance.json --markdown $OUT/gpu_conformance.md

What travels are the packs alone (`--packs-only` removes the folders that they were made of); `run --only pack.0` takes some of
them. Where the GPU's machine has TVM's compiler, nvcc, onnx and onnxruntime too, both verbs run there. Exit code 1 if any case
was wrong, failed or died.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_compare import card, start_device
from linked_package import link_package

Row = dict[str, str]
"""Of a case: name, verdict, detail."""

CHUNK = 24
"""Cases of a process: starting one takes seconds."""

PACK = 400
"""Cases of a pack."""

SECONDS = 120
"""For one case."""

FILTERS = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]
"""Of packs: for machine code, with room to find what is alike far away."""

CASE = "case.pkl"
BAD = ("wrong", "failed", "died", "hung")


def build(args: argparse.Namespace) -> int:
    args.out.mkdir(parents=True, exist_ok=True)
    log = args.out / "build.jsonl"
    known = {row["name"]: row for row in map(json.loads, log.read_text().splitlines())} if log.exists() else {}
    names = [name for text in args.cases for name in case_names(text)]
    todo = [name for name in names if name not in known or known[name]["verdict"] in BAD]
    print(f"{len(names)} cases, {len(todo)} to build", flush=True)
    with log.open("a") as file:

        def report(row: Row) -> None:
            known[row["name"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()

        supervise(["build-some", str(args.out), args.arch], todo, args.jobs, report)
    built = [name for name in names if known[name]["verdict"] == "built"]
    pack(args.out, built, args.packs_only)
    return summary([known[name] for name in names])


def case_names(text: str) -> list[str]:
    """The names of the cases that `KIND` or `KIND:FIRST:COUNT` stands for."""
    kind, *numbers = text.split(":")
    if kind == "nodes" and not numbers:
        from conformance_cases import node_count

        numbers = ["0", str(node_count())]
    if kind not in ("nodes", "graphs", "epilogues", "training") or len(numbers) != 2:
        sys.exit(f"{text}: expected nodes, or graphs, epilogues or training with :FIRST:COUNT")
    first, count = map(int, numbers)
    return [f"{kind}.{number}" for number in range(first, first + count)]


def build_some(args: Sequence[str]) -> None:
    """The body of a building process."""
    out, arch, *names = args
    each(names, lambda name: build_case(Path(out), name, arch))


def build_case(out: Path, name: str, arch: str) -> tuple[str, str]:
    """Verdict and detail."""
    from conformance_cases import KINDS

    import memc
    from memc.ir.errors import UnsupportedError
    from memc.runtime.artifact.manifest import SOURCE, TEXT

    kind, _, number = name.partition(".")
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        case = KINDS[kind](int(number))
        if case is None:
            return "empty", ""
        memc.compile(case.source, folder / "m.memc", target="cuda", arch=arch, **case.options)
    except UnsupportedError as error:
        return "unsupported", str(error)
    for left in (SOURCE, TEXT):
        (folder / "m.memc" / left).unlink(missing_ok=True)
    case.source, case.options = None, {}
    (folder / CASE).write_bytes(pickle.dumps(case))
    return "built", ""


def pack(out: Path, names: Sequence[str], packs_only: bool) -> None:
    """Pack the folders of the cases, `PACK` together; equal files are links to the first of them."""
    whole = [name for name in names if (out / name / CASE).exists()]
    if not whole:
        return
    for old in out.glob("pack.*.tar.xz"):
        old.unlink()
    for start in range(0, len(whole), PACK):
        path = out / f"pack.{start // PACK}.tar.xz"
        first: dict[bytes, str] = {}
        with lzma.open(path, "wb", filters=FILTERS) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
            files = [f for name in whole[start : start + PACK] for f in sorted((out / name).rglob("*")) if f.is_file()]
            for file in sorted(files, key=lambda f: f.name):  # Like beside like: it compresses better.
                info = archive.gettarinfo(file, str(file.relative_to(out)))
                data = file.read_bytes()
                seen = first.setdefault(hashlib.sha256(data).digest(), info.name)
                if seen != info.name and data:
                    info.type, info.linkname, info.size = tarfile.LNKTYPE, seen, 0
                    archive.addfile(info)
                else:
                    archive.addfile(info, io.BytesIO(data))
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)
    if packs_only:
        for name in whole:
            shutil.rmtree(out / name)


def run(args: argparse.Namespace) -> int:
    rows: list[Row] = []
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="memc-cases-") as scratch:
        for archive in sorted(args.out.glob("pack.*.tar.xz")):
            if args.only in archive.name:
                subprocess.run(["tar", "-xf", str(archive.resolve()), "-C", scratch], check=True)
        folder = Path(scratch) if any(Path(scratch).iterdir()) else args.out
        names = sorted(path.parent.name for path in folder.glob(f"*/{CASE}"))
        supervise(["run-some", str(folder.resolve())], names, args.jobs, rows.append)
    rows.sort(key=lambda row: row["name"])
    if args.json:
        args.json.write_text(
            json.dumps({"card": card(), "seconds": time.perf_counter() - start, "rows": rows}, indent=1)
        )
    if args.markdown:
        args.markdown.write_text(table(rows))
    return summary(rows)


def run_some(args: Sequence[str]) -> None:
    """The body of a running process."""
    folder, *names = args
    link_package()
    start_device()
    each(names, lambda name: run_case(Path(folder) / name))


def run_case(folder: Path) -> tuple[str, str]:
    """Verdict and detail."""
    import numpy as np
    from conformance_cases import Case, difference

    from memc.runtime.execute.load import load

    case: Case = pickle.loads((folder / CASE).read_bytes())
    executable: Any = load(folder / "m.memc")
    for number, inputs in enumerate(case.inputs):
        if case.trains:
            loss = executable(**inputs)
            found = {"loss": np.float32(loss), **executable.state()}
        else:
            found = executable.run_numpy(inputs)
        wrong = difference(found, case, number)
        if wrong:
            return "wrong", f"run {number}: {wrong}"
        if not case.trains:
            again = executable.run_numpy(inputs)
            changed = [name for name in found if found[name].tobytes() != again[name].tobytes()]
            if changed and (wrong := difference(again, case, number)):
                return "wrong", f"second run: {wrong}"
    return "match", ""


def each(names: Sequence[str], task: Callable[[str], tuple[str, str]]) -> None:
    """Do the task for each name, and say so: its name before, a row after."""
    import warnings

    warnings.filterwarnings("ignore")
    for name in names:
        print(f"\n@start {name}", flush=True)
        try:
            verdict, detail = task(name)
        except Exception as error:
            verdict, detail = "failed", f"{type(error).__name__}: {error}"
        row = {"name": name, "verdict": verdict, "detail": " ".join(detail.split())[:300]}
        print(f"\n@row {json.dumps(row)}", flush=True)


def supervise(command: Sequence[str], names: Sequence[str], jobs: int, report: Callable[[Row], None]) -> None:
    """Have processes of this script do the cases; `report` takes each row. One that dies is followed by another."""
    count = max(1, min(CHUNK, -(-len(names) // max(jobs, 1))))
    chunks = [list(names[start : start + count]) for start in range(0, len(names), count)]
    done = Counter[str]()

    def tell(row: Row) -> None:
        report(row)
        done[row["verdict"]] += 1
        if row["verdict"] in BAD or done.total() % 100 == 0:
            print(f"{done.total()}/{len(names)} {row['verdict']} {row['name']} {row['detail']}", flush=True)

    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        for rows in pool.map(lambda chunk: rows_of(command, chunk), chunks):
            for row in rows:
                tell(row)


def rows_of(command: Sequence[str], names: list[str]) -> list[Row]:
    """A row for each case, whatever becomes of the processes."""
    rows: list[Row] = []
    while names:
        line = [sys.executable, __file__, *command, *names]
        env = {"OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1", **os.environ}
        try:
            limit = 60 + SECONDS * len(names)
            ended = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=limit, env=env)
            said, complaint, verdict = ended.stdout, ended.stderr, "died"
        except subprocess.TimeoutExpired as expired:
            said, complaint, verdict = decoded(expired.stdout), decoded(expired.stderr), "hung"
        found = [json.loads(text[5:]) for text in said.splitlines() if text.startswith("@row ")]
        rows += found
        if len(found) == len(names):
            break
        # The next one was it: started, or never reached.
        rows.append({"name": names[len(found)], "verdict": verdict, "detail": " ".join(complaint.split())[-300:]})
        names = names[len(found) + 1 :]
    return rows


def decoded(text: bytes | str | None) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text or ""


def summary(rows: Sequence[Row]) -> int:
    """Print counts by kind, and what is bad; the exit code."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row["name"].partition(".")[0], Counter())[row["verdict"]] += 1
    bad = [row for row in rows if row["verdict"] in BAD]
    for row in bad:
        print(row["verdict"], row["name"], row["detail"])
    for kind, found in counts.items():
        print(f"{kind}: " + ", ".join(f"{verdict} {n}" for verdict, n in sorted(found.items())))
    return 1 if bad else 0


def table(rows: Sequence[Row]) -> str:
    """The results as a page."""
    import numpy as np

    kinds = sorted({row["name"].partition(".")[0] for row in rows})
    verdicts = ["match", *BAD]
    lines = [
        "# Conformance on a GPU",
        "",
        "`benchmarks/gpu_conformance.py`: cases that were compiled elsewhere, run twice.",
    ]
    lines += ["", f"Card: {card()}; numpy {np.__version__}, Python {platform.python_version()}", ""]
    lines += ["| cases | " + " | ".join(verdicts) + " |", "| --- |" + " --- |" * len(verdicts)]
    for kind in kinds:
        found = Counter(row["verdict"] for row in rows if row["name"].partition(".")[0] == kind)
        lines.append(f"| {kind} | " + " | ".join(f"{found[verdict]:,}" for verdict in verdicts) + " |")
    bad = [row for row in rows if row["verdict"] in BAD]
    lines += ["", *(f"- {row['name']}: {row['verdict']}: {row['detail']}" for row in bad)]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    if sys.argv[1:2] in (["build-some"], ["run-some"]):
        (build_some if sys.argv[1] == "build-some" else run_some)(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    first = verbs.add_parser("build", help="compile the cases; needs no GPU")
    first.add_argument("out", type=Path)
    first.add_argument("cases", nargs="+", metavar="KIND[:FIRST:COUNT]")
    first.add_argument("--arch", default="sm_90")
    first.add_argument("--packs-only", action="store_true", help="remove the folders once they are packed")
    first.set_defaults(verb=build)
    second = verbs.add_parser("run", help="run them on this machine's GPU")
    second.add_argument("out", type=Path)
    second.add_argument("--only", default="", help="packs whose names contain this")
    second.add_argument("--json", type=Path)
    second.add_argument("--markdown", type=Path)
    second.set_defaults(verb=run)
    for verb in (first, second):
        verb.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    return int(args.verb(args))


if __name__ == "__main__":
    sys.exit(main())
