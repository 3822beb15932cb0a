# SPDX-License-Identifier: Apache-2.0
"""Run time of models on this CPU: memc beside onnxruntime, PyTorch and TVM's own Relax pipeline.

    python benchmarks/cpu_speed.py --models DIR --cache CACHE [--threads 2] [--turns 5] [--peers A,B] [--json FILE] [NAME ...]

All run in one process with the same number of threads, in turns of five runs (of two, if they take more than three seconds),
the first of which does not count. Between turns there is a pause: the worker threads of either go on spinning for a while after a run, on the cores that the others
need. The ratio of the medians is what counts: single times depend on the machine. On a machine that does other work, too,
one thread is disturbed least. `worst` is the largest relative error of the others' first outputs against onnxruntime's.

PyTorch runs the ONNX graph's ops one by one (`torch_onnx.py`), without gradients; TVM imports the model and compiles it with
the pipeline that it has for CPUs, without tuning. Both are optional: peers that are not installed are left out.
Without names: ResNet-18, ResNet-50, MobileNetV2 and BERT-base, batch 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import MODELS, Model, select

Array = npt.NDArray[Any]
Run = Callable[[], Array]
"""One run, which gives the first output."""

DEFAULT = ("training/resnet18", "inference/resnet50", "inference/mobilenet_v2", "inference/bert_base")


@dataclass
class Peer:
    """A way to run a model, and its duration."""

    run: Run
    compile_seconds: float
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def take_turn(self) -> None:
        time.sleep(0.3)
        taken: list[float] = []
        while len(taken) < 2 or (len(taken) < 5 and sum(taken) < 3):
            start = time.perf_counter()
            self.run()
            taken.append(time.perf_counter() - start)
        self.seconds += taken[1:]


def by_memc(model: Model, path: Path, threads: int) -> Run:
    import memc

    executable = memc.compile(path, input_shapes=model.shapes(1), bind=dict(model.bind)).load()
    feeds, first = model.feeds(1), executable.outputs[0].name
    return lambda: executable.run_numpy(feeds)[first]


def by_onnxruntime(model: Model, path: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {**model.feeds(1), **model.constants()}
    return lambda: np.asarray(session.run(None, feeds)[0])


def by_torch(model: Model, path: Path, threads: int) -> Run:
    import torch
    from torch_onnx import Network

    torch.set_num_threads(threads)
    network = Network.load(path, torch.float32, training=False)
    feeds = {name: torch.from_numpy(array) for name, array in {**model.feeds(1), **model.constants()}.items()}

    def run() -> Array:
        with torch.inference_mode():
            return np.asarray(network(feeds).numpy())

    return run


def by_relax(model: Model, path: Path, threads: int) -> Run:
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from memc.runtime.code_target import CodeTarget

    source = onnx.load(str(path))
    shapes: Mapping[str, list[int]] = {name: list(shape) for name, shape in model.shapes(1).items()}
    module = from_onnx(source, shape_dict=shapes, keep_params_in_input=False)
    target = tvm.target.Target({"kind": "llvm", "mcpu": CodeTarget.create("llvm").cpu})
    machine = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
    feeds = {**model.feeds(1), **model.constants()}
    stored = {tensor.name for tensor in source.graph.initializer}
    given = [tvm.runtime.tensor(feeds[item.name]) for item in source.graph.input if item.name not in stored]

    def run() -> Array:
        made = machine["main"](*given)
        return np.asarray((made if hasattr(made, "numpy") else made[0]).numpy())

    return run


PEERS: Mapping[str, tuple[str, Callable[[Model, Path, int], Run]]] = {
    "memc": ("memc", by_memc),
    "onnxruntime": ("onnxruntime", by_onnxruntime),
    "PyTorch": ("torch", by_torch),
    "TVM": ("tvm", by_relax),
}
"""The peers by name: the package that each needs, and what prepares a run."""


def prepare(name: str, model: Model, path: Path, threads: int) -> Peer | None:
    """The peer, if it can run the model."""
    start = time.perf_counter()
    try:
        run = PEERS[name][1](model, path, threads)
        took = time.perf_counter() - start
        run()
    except Exception as error:  # A peer that lacks an op is no reason to leave out the others.
        if name == "memc":
            raise
        print(f"{model.name}: {name} cannot run it: {' '.join(str(error).split())[:200]}", file=sys.stderr)
        return None
    return Peer(run, took)


def measure(model: Model, args: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """By peer: seconds of compiling (or preparing), and of a run; and the largest relative error."""
    path = model.path(args.models, args.cache)
    made = {name: prepare(name, model, path, args.threads) for name in names}
    peers = {name: peer for name, peer in made.items() if peer is not None}
    for _ in range(args.turns):
        for peer in peers.values():
            peer.take_turn()
    outputs = {name: peer.run().astype(np.float64) for name, peer in peers.items()}
    reference = outputs.get("onnxruntime", outputs["memc"])
    errors = [float(np.linalg.norm(o - reference) / np.linalg.norm(reference)) for o in outputs.values()]
    return {
        "model": model.name,
        "compile_seconds": {name: peer.compile_seconds for name, peer in peers.items()},
        "median_seconds": {name: peer.median for name, peer in peers.items()},
        "least_seconds": {name: min(peer.seconds) for name, peer in peers.items()},
        "worst_relative_error": max(errors),
    }


def heading(names: list[str]) -> str:
    cells = ["model", "compile s", *(f"{name} ms" for name in names), *(f"/ {name}" for name in names[1:]), "worst"]
    return f"| {' | '.join(cells)} |\n| --- |{' --: |' * (len(cells) - 1)}"


def line(row: Mapping[str, Any], names: list[str]) -> str:
    """memc's time is over each peer's."""
    times = row["median_seconds"]
    cells = [row["model"], f"{row['compile_seconds']['memc']:.1f}"]
    cells += [f"{1e3 * times[name]:.1f}" if name in times else "" for name in names]
    cells += [f"{times['memc'] / times[name]:.2f}" if name in times else "" for name in names[1:]]
    return f"| {' | '.join([*cells, format(row['worst_relative_error'], '.1e')])} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--models", type=Path, required=True, help="folder with training/ and inference/")
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--peers", default=",".join(list(PEERS)[1:]), help="beside memc (default: %(default)s)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    unknown = [name for name in filter(None, args.peers.split(",")) if name not in PEERS]
    if unknown:
        parser.error(f"--peers {unknown[0]}: expected some of {', '.join(list(PEERS)[1:])}")
    os.environ["TVM_NUM_THREADS"] = str(args.threads)
    wanted = ["memc", *(name for name in args.peers.split(",") if name and name != "memc")]
    names = [name for name in wanted if importlib.util.find_spec(PEERS[name][0]) is not None]
    chosen = select(args.names) if args.names else [m for m in MODELS if m.name in DEFAULT]
    print(heading(names))
    rows = []
    for model in chosen:
        rows.append(measure(model, args, names))
        print(line(rows[-1], names), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
