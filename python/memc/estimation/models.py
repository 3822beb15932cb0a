# SPDX-License-Identifier: Apache-2.0
"""The events of a loop over an ONNX model, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from memc.garbage import few_collections
from memc.ir.errors import UsageError
from memc.ir.messages import nearest, shown

from .allocators import Allocator
from .frameworks import FRAMEWORKS
from .frameworks.pytorch_2_11 import OPTIMIZERS
from .frameworks.pytorch_2_11.precision import PRECISIONS
from .gpus import DEFAULT, Gpu
from .onnx_graph import read_onnx
from .readings import LoopShape
from .recording import Recording
from .replay import Job
from .training import loop_events
from .workspaces import MOST_KNOWN, Kind, Workspaces, table

MOST_BATCH = 2**20


@dataclass(frozen=True)
class Loop:
    """What is run over a model. Raises UsageError for what cannot be."""

    optimizer: str | None = None
    """None for inference."""
    dims: Mapping[str, int] = field(default_factory=dict)
    framework: str = "pytorch-2.11"
    tf32: bool = True
    """Whether convolutions may use it, as they do by default."""
    zero_grad: str = "first"
    """`first` in a step, or at its `end`."""
    precision: str = "f32"
    """One of PRECISIONS."""
    accumulate: int = 1
    """Batches whose gradients are added up in a step."""
    checkpoint: str | None = None
    """A pattern of modules' names, whose activations are recomputed."""
    channels_last: bool = False
    """Whether images have this layout."""
    cudnn_benchmark: bool = False
    """Whether cuDNN tries its engines."""

    def __post_init__(self) -> None:
        if self.framework not in FRAMEWORKS:
            near = nearest(str(self.framework), FRAMEWORKS)
            raise UsageError(f"framework: expected {', '.join(FRAMEWORKS)}, got {shown(self.framework)}{near}")
        if self.optimizer is not None and self.optimizer not in OPTIMIZERS:
            near = nearest(str(self.optimizer), OPTIMIZERS) or f"; there are: {', '.join(OPTIMIZERS)}"
            raise UsageError(f"optimizer: expected one of pytorch's, got {shown(self.optimizer)}{near}")
        if self.zero_grad not in ("first", "end"):
            raise UsageError(f"zero_grad: expected `first` or `end`, got {shown(self.zero_grad)}")
        if self.precision not in PRECISIONS:
            near = nearest(str(self.precision), PRECISIONS)
            raise UsageError(f"precision: expected {', '.join(PRECISIONS)}, got {shown(self.precision)}{near}")
        if self.precision != "f32" and self.framework != "pytorch-2.11":
            raise UsageError(f"precision: expected f32 with {self.framework}, got {self.precision}")
        if type(self.accumulate) is not int or not 0 < self.accumulate <= 1024:
            raise UsageError(f"accumulate: expected a whole number from 1 to 1024, got {shown(self.accumulate)}")
        if (self.channels_last or self.cudnn_benchmark) and self.framework != "pytorch-2.11":
            raise UsageError(f"channels_last and cudnn_benchmark: expected neither with {self.framework}")
        if self.cudnn_benchmark and (self.kind not in MOST_KNOWN or self.channels_last):
            raise UsageError(
                "cudnn_benchmark: expected f32 without TF32 (tf32=False, --no-tf32) and without channels_last, whose engines' workspaces "
                "are known alone"
            )
        for name, size in self.dims.items():
            if type(size) is not int or not 0 < size <= 2**31:
                raise UsageError(f"dims: `{name}`: expected a whole number from 1 on, got {shown(size)}")

    @property
    def kind(self) -> Kind:
        """In what convolutions compute."""
        if self.precision == "f32":
            return "tf32" if self.tf32 else "f32"
        return "f16" if self.precision == "amp-f16" else "bf16"


def model_recording(path: str | Path, loop: Loop) -> Recording:
    """The events of the loop over the model. Raises UsageError, InvalidError or UnsupportedError."""
    with few_collections():
        return _recorded(path, loop)


def _recorded(path: str | Path, loop: Loop) -> Recording:
    graph = read_onnx(path, loop.dims)
    framework = FRAMEWORKS[loop.framework]
    workspaces = Workspaces(
        table(loop.kind, "channels_last" if loop.channels_last else ""),
        framework.workspace_limit,
        loop.kind != "f32",
        most=table(loop.kind, "most") if loop.cudnn_benchmark else {},
    )
    shape = LoopShape(
        loop.optimizer, loop.zero_grad, loop.precision, loop.accumulate, loop.checkpoint, loop.channels_last
    )
    events, *others = loop_events(str(path), graph, framework, shape, workspaces)
    in_place = "ReLU and additions before it run in place"
    notes = [in_place if loop.optimizer is None else f"the loss is a cross entropy; {in_place}"]
    similar = sum(workspaces.guessed.values())
    if similar:
        notes.append(f"workspaces of {similar} convolutions as of similar ones")
    if len(workspaces.guessed) > similar:
        notes.append(f"workspaces of {len(workspaces.guessed) - similar} convolutions as at other batch sizes")
    if framework.source:
        notes.append(f"{framework.name}: {framework.source}")
    return Recording(
        events,
        others=tuple(others),
        allocator=framework.allocator,
        outside=framework.outside,
        inference=loop.optimizer is None,
        modelled=tuple(notes),
    )


def largest(fits: Callable[[int], bool], least: int, most: int) -> int | None:
    """The largest number from `least` to `most` that fits, None if not even the least does.

    What is reserved does not always grow with the batch: the numbers just above the answer of the bisection are tried, too.
    """
    if not fits(least):
        return None
    low, high = least, most + 1  # What fits, and what does not.
    while True:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        above = [each for each in range(low + 2, min(low + 9, most + 1)) if fits(each)]
        if not above:
            return low
        low, high = above[-1], most + 1


def model_job(
    path: str,
    loop: Loop,
    batches: tuple[str, int, int] | None,
    gpu: Gpu | None,
    memory: int | None,
    allocator: Allocator | None,
) -> tuple[Job, int | None]:
    """The job of a model; with `batches`, the name, least and most of a dimension, that of the largest that fits into `memory`, and which
    that is. Where not even the least fits, the job is that of the least, and the number 0.

    Raises UsageError for batches without a limit of memory, or that are none.
    """

    def job(dims: Mapping[str, int]) -> Job:
        recording = model_recording(path, replace(loop, dims=dims))
        return Job(path, recording, gpu or DEFAULT, gpu is not None, memory)

    if batches is None:
        return job(loop.dims), None
    name, least, most = batches
    if memory is None:
        raise UsageError("find_batch: expected memory or gpu with it, into which the batch is to fit")
    if not 0 < least <= most <= MOST_BATCH:
        raise UsageError(f"find_batch: `{name}`: expected a range within 1 to {MOST_BATCH}, got {least} to {most}")
    if name in loop.dims:
        raise UsageError(f"find_batch: `{name}`: expected a dimension that dims does not bind")
    settings = FRAMEWORKS[loop.framework].allocator if allocator is None else allocator

    def fits(batch: int) -> bool:
        made = job({**loop.dims, name: batch})
        return all(each.simulate(settings, limited=True).failed < 0 for each in made.readings())

    found = largest(fits, least, most)
    return job({**loop.dims, name: found or least}), found or 0
