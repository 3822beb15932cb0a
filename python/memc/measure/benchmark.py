# SPDX-License-Identifier: Apache-2.0
"""How fast an artifact runs: times of whole runs, and of each op."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import numpy as np

from memc import driver
from memc.compile_options import Keywords, Options, with_options
from memc.frontend.sources import Source
from memc.ir.checked_options import Amount, Range, require
from memc.ir.core import Array
from memc.ir.cost_model import DEVICES
from memc.ir.durations import Seconds
from memc.ir.errors import UsageError
from memc.ir.footprint import Footprint
from memc.ir.machine import device_names
from memc.ir.spaces import IO
from memc.measure.link import LinkTimes
from memc.measure.op_times import Profile, make_profile
from memc.measure.planned_module import planned_events, planned_module
from memc.measure.random_data import random_inputs
from memc.runtime.code_target import CodeTarget

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from memc.runtime.artifact.manifest import Manifest, Spec
    from memc.runtime.execute.executable import Executable

RATE = "learning_rate"
"""The input of training steps that is not data."""


@dataclass(frozen=True)
class Benchmark:
    """What `bench` measured. A run of a training step is one step."""

    target: str
    training: bool
    """Whether the runs were training steps."""
    threads: int | None
    """Threads that kernels used on the CPU; None on CUDA."""
    warmup: int
    """Runs before those that count."""
    seconds: tuple[float, ...]
    """Seconds of each run that counts, until its results were there."""
    batch: int | None
    """Items to a run: the first axis of all inputs, where they have one in common."""
    memory: Mapping[str, int]
    """Bytes as planned: of arena, weights (with the states), inputs and outputs, and together (`peak`)."""
    grown_bytes: int | None
    """Measured: by how much the process, on CUDA the use of the device's memory, has grown since code was loaded: arena,
    weights, inputs, outputs, and whatever libraries take in their first calls. None where the system does not say."""
    profile: Profile | None
    device: Mapping[str, str] = field(default_factory=dict)
    """`kind`, `arch` and `name` of what ran it."""
    link: LinkTimes | None = None
    """The device's link with its host; None unless asked for."""
    planned: Sequence[Mapping[str, Any]] = ()
    """The timeline of the plan as events of a trace, with the ops' times as profiled; empty without a profile, and for programs
    without copies."""

    @property
    def runs(self) -> int:
        """Runs that count."""
        return len(self.seconds)

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)

    @property
    def p90(self) -> float:
        """Seconds that nine of ten runs did not exceed: the nearest rank."""
        return sorted(self.seconds)[math.ceil(0.9 * self.runs) - 1]

    @property
    def least(self) -> float:
        """Seconds."""
        return min(self.seconds)

    @property
    def runs_per_second(self) -> float:
        """The rate of all runs that count, one after another."""
        return self.runs / sum(self.seconds)

    @property
    def items_per_second(self) -> float | None:
        """None where the batch is not known."""
        return None if self.batch is None else self.batch * self.runs_per_second

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; times in seconds."""
        data = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "planned"}
        named = ("runs", "median", "p90", "least", "runs_per_second", "items_per_second")
        measured = {name: getattr(self, name) for name in named}
        profile = None if self.profile is None else self.profile.to_dict()
        link = None if self.link is None else self.link.to_dict()
        return {**data, **measured, "memory": dict(self.memory), "profile": profile, "link": link}

    def trace(self) -> dict[str, Any]:
        """A profiled run in Chrome's trace format and, of a program with copies, the plan's timeline. Raises ValueError without a
        profile."""
        if self.profile is None:
            raise ValueError("expected a benchmark with profiled runs")
        found = self.profile.trace()
        return {**found, "traceEvents": [*found["traceEvents"], *self.planned]}

    def saved_profile(self) -> str:
        """The file of measured times that passes read (`passes/measured_times.py`)."""
        data: dict[str, Any] = {"device": dict(self.device)}
        if self.profile is not None:
            data["ops"] = self.profile.seconds_by_signature()
        if self.link is not None:
            data["link"] = self.link.to_dict()
        return json.dumps(data, indent=1)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)


@with_options
def bench(
    source: Source,
    *,
    inputs: Mapping[str, Array] | Callable[[Sequence[Spec]], Mapping[str, Array]] | None = None,
    seed: int = 0,
    warmup: int = 5,
    runs: int = 50,
    min_seconds: float = 0.0,
    threads: int | None = None,
    cuda_graph: bool = True,
    profiled_runs: int = 0,
    measure_link: bool = False,
    progress: driver.Progress | None = None,
    **options: Unpack[Keywords],
) -> Benchmark:
    """Run an artifact again and again, and measure.

    Args:
        source: an artifact's folder, or what `memc.compile` takes, which is compiled with `options` first.
        inputs: data by input name, or what makes it of the inputs' descriptions; what is missing is random, from `seed`,
            and the learning rate is 0.01. Inputs lie on the device before the runs.
        warmup: runs before those that count.
        runs: how many count, at least; more until they have taken `min_seconds` together.
        threads: that kernels use, on the CPU; None for all.
        cuda_graph: whether runs on CUDA are launched as graphs.
        profiled_runs: further runs, which take the time of each op.
        measure_link: whether to time copies between the device and its host, too, after the runs.
        **options: as for `memc.compile`.

    Raises:
        MemcError: if the model does not compile or run, or an option makes no sense.
    """
    for name, value, least in (("warmup", warmup, 0), ("runs", runs, 1), ("profiled runs", profiled_runs, 0)):
        require(value, Annotated[int, Range(least=least, what="a number")], name)
    _require_call(inputs, seed, threads, cuda_graph, measure_link)
    min_seconds = require(min_seconds, Seconds, "min seconds")
    path, keeps = _artifact(source, progress, options)
    measured = _Runs(warmup, runs, min_seconds, threads, profiled_runs, measure_link, progress or (lambda stage: None))
    return measured.of(path, keeps, cuda_graph, inputs or {}, seed)


@dataclass(frozen=True)
class _Runs:
    """The runs that are measured."""

    warmup: int
    runs: int
    min_seconds: float
    threads: int | None
    profiled_runs: int
    measure_link: bool
    report: driver.Progress

    def of(
        self,
        path: Path,
        keeps: object,
        cuda_graph: bool,
        inputs: Mapping[str, Array] | Callable[[Sequence[Spec]], Mapping[str, Array]],
        seed: int,
    ) -> Benchmark:
        """What runs of an artifact take. All modules are imported before its memory is measured."""
        self.report("load")
        from memc.runtime.artifact.read import read_manifest
        from memc.runtime.execute import profile as profiling
        from memc.runtime.execute.load import executable_of
        from memc.runtime.execute.load_code import open_artifact

        manifest = read_manifest(path)
        loaded = open_artifact(manifest, cuda_graph)
        before = _bytes_in_use(loaded.device, manifest)
        executable = executable_of(loaded)
        executable.keeps = keeps
        if self.threads is not None and manifest.kind == "cuda":
            raise UsageError("threads: expected an artifact for the CPU, got one for cuda")
        data = inputs(executable.inputs) if callable(inputs) else inputs
        given = executable.placed_inputs(_complete(executable.inputs, data, seed))
        with profiling.threads(self.threads) as used:
            self.report("run")
            seconds = _timed(executable, given, self.warmup, self.runs, self.min_seconds)
            after = _bytes_in_use(executable.device, manifest)
            link = self._link(manifest, executable.device) if self.measure_link else None
            profile, planned = None, []
            if self.profiled_runs:
                self.report("profile")
                module = planned_module(manifest)
                calls = profiling.profile(executable, given, self.profiled_runs)
                profile = make_profile(module.main, calls, manifest.kind, DEVICES[manifest.kind])
                planned = planned_events(manifest, module, profile, link)
        grown = None if before is None or after is None else max(after - before, 0)
        return Benchmark(
            target=str(CodeTarget.create(manifest.kind, manifest.arch or None, manifest.cpu)),
            training=manifest.trains,
            threads=None if manifest.kind == "cuda" else used,
            warmup=self.warmup,
            seconds=tuple(seconds),
            batch=batch_of(executable.inputs),
            memory=_memory(manifest.footprint),
            grown_bytes=grown,
            profile=profile,
            device=_device(manifest, executable.device),
            link=link,
            planned=planned,
        )

    def _link(self, manifest: Manifest, device: Any) -> LinkTimes:
        """The link of the device with its host."""
        from memc.runtime.execute.copy_times import copy_times
        from memc.runtime.execute.device_errors import device_errors

        self.report("link")
        with device_errors(manifest, device, "measuring the link"):
            return LinkTimes.of(copy_times(manifest.kind, int(device.index)), manifest.kind)


def _device(manifest: Manifest, device: Any) -> dict[str, str]:
    """What ran the artifact, as files of measured times name it."""
    if manifest.kind == "cuda":
        return {"kind": "cuda", "arch": manifest.arch, "name": str(device.device_name)}
    return {"kind": "llvm", "name": next(iter(device_names("llvm")), "")}


def _require_call(inputs: object, seed: object, threads: object, cuda_graph: object, measure_link: object) -> None:
    """Raise UsageError for arguments of another kind."""
    require(threads, Optional[int], "threads")
    require(seed, Amount, "seed")
    require(cuda_graph, bool, "cuda_graph")
    require(measure_link, bool, "measure_link")
    if inputs is not None and not isinstance(inputs, Mapping) and not callable(inputs):
        raise UsageError(f"inputs: expected a dict of arrays by name, got {type(inputs).__name__}")


def _timed(
    executable: Executable, inputs: Mapping[str, Any], warmup: int, runs: int, min_seconds: float
) -> Sequence[float]:
    """The seconds of each of `runs` runs after `warmup` others, and of more until they are `min_seconds` together."""
    from memc.runtime.execute.executable import Executable

    def run() -> float:
        start = time.perf_counter()
        Executable.__call__(executable, **inputs)  # A training step's own call copies the loss to the host.
        executable.synchronize()
        return time.perf_counter() - start

    for _ in range(warmup):
        run()
    seconds = array("d")  # A list's objects would count as memory that the model takes.
    total = 0.0
    while len(seconds) < runs or total < min_seconds:
        seconds.append(run())
        total += seconds[-1]
    return seconds


def is_artifact(source: object) -> bool:
    """Whether `source` names an artifact, be it there or not, and not a model."""
    return isinstance(source, (str, Path)) and (Path(source).is_dir() or Path(source).suffix == ".memc")


def _artifact(source: Any, progress: driver.Progress | None, options: Mapping[str, Any]) -> tuple[Path, object]:
    """The artifact's folder, and what must live as long as it is to."""
    if not is_artifact(source):
        compilation = driver.compile(source, progress=progress, **options)
        if compilation.path is None:
            raise UsageError("nothing to run: compiled with plan_only")
        return compilation.path, compilation.temporary
    standard = asdict(Options())
    said = [name for name, value in options.items() if name not in standard or value != standard[name]]
    if said:
        raise UsageError(f"{source}: is an artifact; expected a model for the option {said[0].replace('_', '-')}")
    return Path(source), None


def _complete(specs: Sequence[Spec], given: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """`given`, and data for the other inputs. Raises UsageError for a name that there is not."""
    types = {spec.name: spec.type for spec in specs}
    for name in given:
        if name not in types:
            raise UsageError(f"input {name}: no such input; expected {', '.join(types) or 'none'}")
    rate = {RATE: np.asarray(0.01, np.float32)} if RATE in types else {}
    return random_inputs(types, {**rate, **given}, seed)


def batch_of(specs: Sequence[Spec]) -> int | None:
    """The first axis of all inputs that have axes; None if they differ in it, or there are none."""
    found = {spec.shape[0] for spec in specs if spec.shape}
    return found.pop() if len(found) == 1 else None


def _memory(footprint: Footprint) -> dict[str, int]:
    """Bytes by space, and their sum on the device that runs the kernels."""
    titles = {IO: "inputs_and_outputs"}
    spaces = {titles.get(space.name, space.name): space.bytes for space in footprint.spaces}
    return {**spaces, "peak": footprint.peak}


def _bytes_in_use(device: Any, manifest: Manifest) -> int | None:
    """Bytes of this process that are in memory, on CUDA of all processes in the device's; None where nothing says."""
    if manifest.kind == "cuda":
        return int(device.total_global_memory) - int(device.available_global_memory)
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
