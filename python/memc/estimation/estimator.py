# SPDX-License-Identifier: Apache-2.0
"""`memc.estimate`: what a job takes of a GPU's memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Union

from memc.ir.checked_options import require
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.messages import nearest, shown

from .alloc_conf import parse_alloc_conf
from .allocators import ALLOCATORS, Allocator, Caching
from .artifact import artifact_bytes
from .events import Events
from .gpus import DEFAULT, Gpu, gpu_named
from .models import Loop, model_job
from .options import ModelOptions, ScriptOptions
from .phantom import Script
from .planned import planned_arena
from .recording import Recording
from .replay import Job, Taken, replay
from .result import Alternative, Estimate, OutOfMemory
from .scripts import is_script, script_job
from .sources import is_artifact, is_model, read_source
from .step_plans import step_plan

Source = Union[str, Path, Events, Recording]
"""A script of PyTorch's, a file of events, a memory snapshot, a trace, an artifact's folder, or events as they are."""

ADVICE = ("", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8")
"""Settings that the report compares, beside a planned arena."""


def estimate(
    source: Source,
    *,
    gpu: str | None = None,
    memory: int | str | None = None,
    alloc_conf: str | None = None,
    allocator: str | None = None,
    device: int | None = None,
    train: bool = False,
    optimizer: str | None = None,
    dims: Mapping[str, int] | None = None,
    framework: str | None = None,
    tf32: bool = True,
    zero_grad: str = "first",
    precision: str = "f32",
    accumulate: int = 1,
    checkpoint: str | None = None,
    channels_last: bool = False,
    cudnn_benchmark: bool = False,
    find_batch: tuple[str, int, int] | None = None,
    alternatives: bool = True,
    plan: str | Path | None = None,
    steps: int | None = None,
    python: str | None = None,
    arguments: Sequence[str] = (),
    world_size: int = 1,
    rank: int = 0,
    timeout: float | None = None,
    assume: Mapping[str, object] | None = None,
    show: bool = False,
) -> Estimate:
    """How much GPU memory the job takes.

    Args:
        source: a .py script of PyTorch's, a .json[.gz] recording, a .pickle snapshot, a .csv trace, an .onnx model, an artifact, or events.
        gpu: `h200` (the default for constants), `h100`, `a100` or `rtx4090`.
        memory: bytes of it that the job may take, also as text: `24GiB`, or `50%` of the GPU's.
        alloc_conf: settings as PYTORCH_CUDA_ALLOC_CONF has them, instead of those of the recording.
        allocator: `pytorch` (the default), `tensorflow`, `xla`, `mxnet...` or `cupy`.
        device: by number, of a snapshot with several.
        train: whether a model is trained.
        optimizer: how, such as `sgd`.
        dims: of a model, its open dimensions.
        framework: what runs a model, such as `pytorch-2.11`.
        tf32: whether a model's convolutions may use TF32.
        zero_grad: whether gradients are dropped `first` in a step or at its `end`.
        precision: `f32`, `bf16`, `amp-bf16` or `amp-f16`.
        accumulate: batches of a step.
        checkpoint: modules to recompute, such as `*.layer.*`.
        channels_last: whether a model of images has this layout.
        cudnn_benchmark: whether cuDNN tries its engines.
        find_batch: name, least and most of a dimension, or of a script's number.
        alternatives: whether to try other settings, too.
        plan: where addresses of a step's blocks are written, of a script or recorded events.
        steps: of an optimizer, after which a script ends (by default 3; 0: its own end).
        python: a script's interpreter (by default MEMC_PHANTOM_PYTHON, or this one).
        arguments: of a script.
        world_size: processes of a distributed job.
        rank: which of them the script is.
        timeout: seconds that a script may take (by default 600).
        assume: what a script's data decides.
        show: whether what a script prints is shown.

    Raises:
        UsageError: for wrong arguments.
        InvalidError: for files that cannot be read, and what is in them; UnsupportedError likewise.
    """
    target = _target(gpu, memory, _allocator(allocator, alloc_conf), allocator, alternatives, plan)
    of_steps = (zero_grad, precision, accumulate, checkpoint, channels_last, cudnn_benchmark)
    asked = ModelOptions(train, optimizer, dims, framework, tf32, *of_steps)
    run = ScriptOptions(steps, python, tuple(arguments), show, alloc_conf, world_size, rank, timeout, assume or None)
    if is_script(source):
        asked.refuse(None, "; numbers of a script are arguments of its own, after --")
        return _of_script(run.script(str(source), device), find_batch, target, show)
    run.refuse()
    if is_model(source):
        return _of_model(str(source), asked.loop(device), find_batch, target)
    asked.refuse(find_batch)
    return _of_recording(source, device, target)


@dataclass(frozen=True)
class _Target:
    """What an estimate is for, and when it began."""

    gpu: Gpu | None
    memory: int | None
    settings: Allocator | None
    """That were asked for; None for those of the source."""
    allocator: str | None
    alternatives: bool
    plan: str | Path | None
    begin: float = field(default_factory=time.perf_counter)

    def refuse_plan(self, source: str | Path) -> None:
        """Raises UsageError for a plan of requests that nobody has recorded."""
        if self.plan is not None:
            raise UsageError(f"{source}: plan: expected it with a script or recorded events, whose requests are known")


def _target(
    gpu: str | None,
    memory: int | str | None,
    settings: Allocator | None,
    name: str | None,
    others: bool,
    plan: str | Path | None,
) -> _Target:
    card = None if gpu is None else gpu_named(gpu)
    return _Target(card, _memory(memory, card), settings, name, others, plan)


def _of_script(script: Script, batches: tuple[str, int, int] | None, target: _Target, show: bool) -> Estimate:
    settings = None if isinstance(target.settings, Caching) else target.settings  # PyTorch's own the script runs under.
    ran = script_job(script, batches, target.gpu, target.memory, settings, show)
    found = _estimate(ran.job, ran.taken, target, batches, ran.batch)
    if ran.refused is None:
        return found
    at = ran.refused
    refused = OutOfMemory(at.event, str(at.origin or ""), at.requested, at.allocated, at.reserved)
    return replace(found, out_of_memory=refused)


def _of_model(path: str, loop: Loop, batches: tuple[str, int, int] | None, target: _Target) -> Estimate:
    target.refuse_plan(path)
    job, batch = model_job(path, loop, batches, target.gpu, target.memory, target.settings)
    return _estimate(job, replay(job, target.settings, target.settings is not None), target, batches, batch)


def _of_recording(source: Source, device: int | None, target: _Target) -> Estimate:
    if isinstance(source, (str, Path)) and is_artifact(source):
        if Path(source).is_dir() and not str(source).endswith(".memc") and not Path(source, "plan.json").exists():
            raise UnsupportedError(
                f"{source}: expected a file, or an artifact's folder, got a folder without a plan.json; name the script in it"
            )
        if target.settings is not None:
            raise UsageError(
                f"{source}: alloc_conf and allocator: expected neither for an artifact, whose plan is fixed"
            )
        target.refuse_plan(source)
        return _of_artifact(source, target.memory, target.begin)
    name, recording = read_source(source, device)
    job = Job(name, recording, target.gpu or DEFAULT, target.gpu is not None, target.memory)
    return _estimate(job, replay(job, target.settings, target.settings is not None), target)


def _allocator_name(found: Allocator) -> str:
    return next((name for name, each in ALLOCATORS.items() if each == found), "pytorch")


def _memory(memory: int | str | None, gpu: Gpu | None) -> int | None:
    if memory is None:
        return None if gpu is None else gpu.total
    if isinstance(memory, str):
        from memc.passes.budget import Budget  # With it come the passes, which nothing else here needs.

        asked = require(memory, Budget, "memory")
        if asked.bytes is None and gpu is None:
            raise UsageError(f"memory {asked}: expected gpu with it, of whose memory it is a share")
        memory = asked.of(0 if gpu is None else gpu.total)
    if type(memory) is not int or not 0 < memory < 2**62:
        raise UsageError(f"memory: expected bytes from 1 to 2**62, got {shown(memory)}")
    return memory if gpu is None else min(memory, gpu.total)


def _allocator(name: str | None, alloc_conf: str | None) -> Allocator | None:
    """What was asked for; None for what the source says."""
    if name is not None and name not in ALLOCATORS:
        near = nearest(name, ALLOCATORS) or f"; there are: {', '.join(ALLOCATORS)}"
        raise UsageError(f"allocator: expected a framework's, got {shown(name)}{near}")
    if alloc_conf is None:
        return None if name is None else ALLOCATORS[name]
    if name not in (None, "pytorch"):
        raise UsageError(f"alloc_conf: expected the allocator pytorch, whose settings they are, got {name}")
    return parse_alloc_conf(alloc_conf, "alloc_conf")


def _of_artifact(source: str | Path, memory: int | None, begin: float) -> Estimate:
    """memc's own programs take what their plan says."""
    found = artifact_bytes(source)
    notes = () if found.on_host else ("the CUDA context and the libraries loaded are not counted",)
    confidence = "exact" if found.on_host else "assumed"
    return Estimate(
        source=str(source),
        allocated_bytes=found.peak,
        reserved_bytes=found.peak,
        requested_bytes=found.peak,
        device_bytes=found.peak,
        confidence=confidence,
        assumed=notes,
        peak_op=None,
        breakdown=found.breakdown,
        fits=None if memory is None else found.peak <= memory,
        largest_batch=None,
        seconds=time.perf_counter() - begin,
        allocator="planned",
        gpu=None,
        memory_bytes=memory,
        retries=0,
        fitted_bytes=found.peak if memory is not None and found.peak <= memory else None,
        range_end=False,
        out_of_memory=None,
        alternatives=(),
    )


def _estimate(
    job: Job, taken: Taken, target: _Target, batches: tuple[str, int, int] | None = None, batch: int | None = None
) -> Estimate:
    """`batch`: the largest of `batches` that fits."""
    others = _alternatives(job, taken) if target.alternatives and isinstance(taken.allocator, Caching) else ()
    free = taken.free
    origin = job.events.origin(free.peak_allocated_at)
    return Estimate(
        source=job.name,
        allocated_bytes=free.allocated.peak,
        reserved_bytes=free.reserved.peak,
        requested_bytes=free.requested.peak,
        device_bytes=free.device.peak + job.outside,
        confidence=taken.confidence,
        assumed=taken.assumed,
        peak_op=None if origin is None else str(origin),
        breakdown=taken.breakdown(),
        fits=None if taken.limited is None else taken.limited.failed < 0,
        largest_batch=batch,
        seconds=time.perf_counter() - target.begin,
        allocator=target.allocator or _allocator_name(taken.allocator),
        gpu=job.gpu.name if job.gpu_named else None,
        memory_bytes=job.memory,
        retries=free.retries if taken.limited is None else taken.limited.retries,
        fitted_bytes=taken.fitted,
        range_end=batches is not None and batch == batches[2],
        out_of_memory=_out_of_memory(job, taken),
        alternatives=others,
        recorded=job.recording.peaks,
        plan=None if target.plan is None else step_plan(job, taken.allocator, target.plan),
    )


def _out_of_memory(job: Job, taken: Taken) -> OutOfMemory | None:
    found = taken.limited if taken.limited is not None and taken.limited.failed >= 0 else taken.free
    at = found.failed
    if at < 0:
        return None
    origin = job.events.origin(at)
    asked = int(job.events.nbytes[at])
    return OutOfMemory(at, str(origin or ""), asked, found.allocated.current, found.reserved.current)


def _alternatives(job: Job, taken: Taken) -> tuple[Alternative, ...]:
    """What other settings would reserve, and a planned arena."""
    found = []
    for text in ADVICE:
        settings = parse_alloc_conf(text)
        if settings == taken.allocator:
            continue
        other = job.simulate(settings)
        if other.failed < 0:
            fits = None if job.capacity is None else job.simulate(settings, limited=True).failed < 0
            found.append(Alternative(text or "default", other.reserved.peak, other.retries, fits))
    arena = planned_arena(job.events)
    found.append(Alternative("planned", arena, fits=None if job.capacity is None else arena <= job.capacity))
    return tuple(found)
