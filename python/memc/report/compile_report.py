# SPDX-License-Identifier: Apache-2.0
"""What a compilation says about memory: the numbers of the summary table and of `--json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from memc.ir.copies import arena_states, host_params
from memc.ir.core import Function
from memc.ir.footprint import WORKSPACE, Footprint
from memc.ir.function_footprint import footprint_of
from memc.ir.liveness import lifetimes, unoptimized_bytes
from memc.ir.module import Module
from memc.ir.sizes import align, format_size
from memc.ir.snapshot import Snapshot
from memc.ir.spaces import ARENA, HOST, IO, WEIGHTS
from memc.passes.base import Finding
from memc.passes.chunk.chunk import Chunks
from memc.passes.kernels.recognize_attention import Attentions
from memc.passes.manager import PassManager
from memc.passes.offload.state_finding import StatesOnHost
from memc.passes.recompute.choices import Recomputation
from memc.passes.training.labels import LabelInput, label_inputs
from memc.passes.training.step_builder import Training
from memc.report.host_states import HostStates, host_states
from memc.report.offload import Offloaded, offloaded

F = TypeVar("F", bound=Finding)


@dataclass(frozen=True)
class LargestTensor:
    """One of the biggest tensors of the arena."""

    name: str
    type: str
    bytes: int
    lower: int
    """Index of the op that defines it."""
    upper: int
    """One past the index of the op that uses it last."""


@dataclass(frozen=True)
class Recomputed:
    """What keeping a memory budget costs."""

    ops: int
    """Recomputed ops, each time counted; 0 if the budget is kept without."""
    added_percent: float
    """Time that they add in the cost model, in percent of one run of every op."""
    arena_bytes_without: int
    """The arena without recomputation, in the order that `reorder` finds."""
    peak_bytes_without: int
    """The same with weights, inputs and outputs."""


@dataclass(frozen=True)
class Trained:
    """What a training step minimizes."""

    loss: str
    of: str
    """What the loss is of, in words."""
    left_out: str | None
    """The model's last activation, if the loss takes the scores before it: sigmoid, softmax or log_softmax."""
    attention: int
    """How often attention became one op that keeps no scores."""
    attention_missed: tuple[str, ...]
    """Of each softmax before a product that did not: the product, and why."""


@dataclass(repr=False)
class Report:
    """Bytes are counted as planned: each arena tensor rounded up to the alignment."""

    footprint: Footprint
    unoptimized_bytes: int
    """What the arena would take with bytes of its own for every tensor of the imported model (-O0)."""
    given_order_bytes: int | None
    """What `lower_bound_bytes` would be in the order before `reorder`; None if that did not run."""
    target: str
    opt_level: int
    dims: dict[str, int]
    ops: int
    kernels: int
    """Distinct kernels after identical ones were shared; 0 if no code was generated."""
    seconds: dict[str, float]
    """Time per stage and in `total`."""
    largest: list[LargestTensor] = field(default_factory=list)
    pipeline: str = ""
    """The passes that ran, as pipeline text."""
    pass_seconds: list[tuple[str, float]] = field(default_factory=list)
    """Each pass with its options, and its seconds; then what was done between the passes."""
    recomputation: Recomputed | None = None
    """None where `rematerialize` did not run, which is without a memory budget."""
    offload: Offloaded | None = None
    """None where no copies were asked for, or the budget is kept without."""
    states: HostStates | None = None
    """Optimizer states on the host between steps; None if none are."""
    policy: str = "none"
    """What decided on copies to the host: nothing, `auto` for the search, or a published policy by its name."""
    added_percent_bound: float | None = None
    """What `added_percent` is at least for every plan within the budget that runs the ops for the first time in this sequence; None
    where no bound was found or copies were not asked for."""
    added_percent_bound_by: str | None = None
    """How that was found; None where it was not, or the budget is kept without copies and recomputation."""
    training: Trained | None = None
    """None for a model that is not trained."""
    chunks: Chunks | None = None
    """What runs in slices, and which large values stay whole; None where `chunk` did not run."""
    labels: list[LabelInput] = field(default_factory=list)
    """Inputs that hold labels, and what runs check them for."""

    def __repr__(self) -> str:
        return (
            f"<Report: arena {format_size(self.arena_bytes)}, lower bound {format_size(self.lower_bound_bytes)}, "
            f"peak {format_size(self.peak_bytes)}, {self.ops} ops, {self.target}>"
        )

    @property
    def added_percent(self) -> float | None:
        """Time that keeping the budget, and states on the host, add in the cost model, in percent of one run of every op; None without
        both."""
        if self.recomputation is None:
            return None if self.states is None else self.states.added_percent
        return self.recomputation.added_percent

    @property
    def arena_bytes(self) -> int:
        """Size of the arena."""
        return self.footprint[ARENA]

    @property
    def lower_bound_bytes(self) -> int:
        """The largest live set for this order of ops: no assignment of addresses can take less."""
        return self.footprint.arena.lower_bound or 0

    @property
    def weights_bytes(self) -> int:
        """Size of the weight slab."""
        return self.footprint[WEIGHTS]

    @property
    def io_bytes(self) -> int:
        """Inputs and outputs, which live outside the arena."""
        return self.footprint[IO]

    @property
    def workspace_bytes(self) -> int:
        """The largest workspace of a library kernel, in the arena."""
        return self.footprint.arena.kinds[WORKSPACE]

    @property
    def host_bytes(self) -> int:
        """Size of the space `host`, which copies out of the arena go to."""
        return self.footprint[HOST]

    @property
    def host_lower_bound_bytes(self) -> int:
        """The largest live set of the space `host`."""
        return next((space.lower_bound or 0 for space in self.footprint.spaces if space.name == HOST), 0)

    @property
    def offloaded_bytes(self) -> int:
        """Bytes that a run copies out of the arena, states included."""
        states = 0 if self.states is None else self.states.copied_out_bytes
        return states + (0 if self.offload is None else self.offload.offloaded_bytes)

    @property
    def link(self) -> str | None:
        """The link whose rates were counted on; None where no copies were asked for."""
        if self.offload is None:
            return None if self.states is None else self.states.link
        return self.offload.link

    @property
    def peak_bytes(self) -> int:
        """All spaces on the device that runs the kernels but `host`: arena, weights, and inputs and outputs outside the arena."""
        return self.footprint.peak

    @property
    def gap_percent(self) -> float:
        """How far the arena is above the lower bound, in percent of it."""
        return _gap_percent(self.arena_bytes, self.lower_bound_bytes)

    @property
    def host_gap_percent(self) -> float:
        """How far the space `host` is above its lower bound, in percent of it."""
        return _gap_percent(self.host_bytes, self.host_lower_bound_bytes)

    @property
    def order_gain_percent(self) -> float | None:
        """The reduction of the lower bound by `reorder`, in percent of what it was; None where windows of weights or states are a part
        of it."""
        windows = (self.states is not None and bool(self.states.states)) or (
            self.offload is not None and self.offload.streamed is not None
        )
        if self.given_order_bytes is None or windows:
            return None
        saved = self.given_order_bytes - self.lower_bound_bytes
        return 100.0 * saved / self.given_order_bytes if saved else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = {**asdict(self), "footprint": self.footprint.to_dict()}
        names = ("arena_bytes", "lower_bound_bytes", "weights_bytes", "io_bytes", "workspace_bytes", "peak_bytes")
        data |= {
            name: getattr(self, name)
            for name in (*names, "host_bytes", "host_lower_bound_bytes", "offloaded_bytes", "link")
        }
        data |= {name: round(getattr(self, name), 4) for name in ("gap_percent", "host_gap_percent")}
        data["added_percent"] = self.added_percent
        data["order_gain_percent"] = None if self.order_gain_percent is None else round(self.order_gain_percent, 4)
        return data

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)


def _gap_percent(nbytes: int, bound: int) -> float:
    return 100.0 * (nbytes - bound) / bound if bound else 0.0


def largest_tensors(function: Function, count: int = 5) -> list[LargestTensor]:
    """The arena's biggest tensors, largest first."""
    found = sorted(lifetimes(function), key=lambda t: (-t.nbytes, t.lower, t.root.name))[:count]
    return [LargestTensor(t.root.name, str(t.root.type), t.nbytes, t.lower, t.upper) for t in found]


@dataclass(frozen=True)
class Baseline(Finding):
    """A program before any pass works on its memory."""

    arena_bytes: int
    """Without any memory optimization (-O0)."""
    labels: tuple[LabelInput, ...]


def baseline(module: Module) -> Baseline:
    """What a program is measured against. Leaves it as it is."""
    before = Snapshot.of(module, module.main)
    labels = tuple(label_inputs(module.main.ops))
    manager = PassManager.parse("materialize-returns,decompose")
    manager.verify_each = False  # The pipeline's own run of them is verified.
    manager.run(module)
    unoptimized = unoptimized_bytes(module.main, module.target.alignment)
    before.restore()
    return Baseline(unoptimized, labels)


def make_report(
    module: Module, manager: PassManager, *, target: str, opt_level: int, dims: Mapping[str, int]
) -> Report:
    """The report of a module that `manager` has planned, with `baseline` as its measure; no code is made of it yet."""
    function = module.main
    footprint = footprint_of(function, module.target)
    measured = _found(manager, Baseline)
    assert measured is not None
    recomputation, training = _found(manager, Recomputation), _found(manager, Training)
    moved = _found(manager, StatesOnHost) if recomputation is None else recomputation.states
    return Report(
        footprint=footprint,
        unoptimized_bytes=measured.arena_bytes,
        given_order_bytes=manager.given_peak,
        target=target,
        opt_level=opt_level,
        dims=dict(dims),
        ops=len(function.ops),
        kernels=0,
        seconds={},
        largest=largest_tensors(function),
        pipeline=str(manager),
        pass_seconds=[(name, round(value, 4)) for name, value in (*manager.timings, *manager.checking.items())],
        recomputation=None if recomputation is None else _recomputed(recomputation, footprint, _on_host(module)),
        offload=None if recomputation is None else offloaded(module, manager, recomputation),
        states=host_states(module, moved),
        policy="none" if recomputation is None else recomputation.policy,
        added_percent_bound=None if recomputation is None else _bound(recomputation),
        added_percent_bound_by=None if recomputation is None else _bound_by(recomputation),
        training=None if training is None else _trained(training),
        chunks=_found(manager, Chunks),
        labels=list(measured.labels if training is None else training.labels),
    )


def _trained(found: Training) -> Trained:
    attention = found.attention or Attentions(0, ())
    return Trained(found.loss, found.of, found.left_out, attention.recognized, attention.missed)


def _found(manager: PassManager, kind: type[F]) -> F | None:
    """The first finding of a kind."""
    return next((found for found in manager.findings if isinstance(found, kind)), None)


def _bound(found: Recomputation) -> float | None:
    """Percent that every plan adds."""
    if found.copied is None:
        return None if found.policy == "none" else 0.0  # The budget is kept without.
    return None if found.copied.at_least is None else round(100 * found.copied.at_least, 4)


def _bound_by(found: Recomputation) -> str | None:
    """How `_bound` was found."""
    return None if found.copied is None or found.copied.at_least is None else found.copied.at_least_by


def _recomputed(found: Recomputation, footprint: Footprint, on_host: int) -> Recomputed:
    """What the pass found. `footprint`: that of the function as it is planned; `on_host`: bytes of weights and states there."""
    without = footprint.with_bytes(ARENA, found.without).peak + on_host
    return Recomputed(found.repeats, round(100 * found.added, 4), found.without, without)


def _on_host(module: Module) -> int:
    """Bytes that the weights and states which leave the device would take in the slab of weights."""
    moved = (*host_params(module.main), *arena_states(module.main))
    return sum(align(p.type.nbytes, module.target.alignment) for p in moved)
