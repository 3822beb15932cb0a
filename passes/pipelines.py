# SPDX-License-Identifier: Apache-2.0
"""What the optimization levels run, as pipeline text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Union

from memc.ir.checked_options import InBytes, Range
from memc.ir.durations import Seconds
from memc.ir.errors import UsageError
from memc.ir.target import Kind
from memc.passes.base import quoted
from memc.passes.budget import Budget

Kernels = Literal["auto", "library", "generated"]

KERNELS: tuple[Kernels, ...] = ("auto", "library", "generated")

Precision = Literal["f32", "tf32", "f16", "bf16"]

PRECISIONS: tuple[Precision, ...] = ("f32", "tf32", "f16", "bf16")

HALVES: tuple[Precision, ...] = ("f16", "bf16")
"""What the values of a model are rounded to, where `tf32` concerns single calls of libraries."""

Offload = Literal[
    "none", "auto", "vdnn-all", "vdnn-conv", "vdnn-dynamic", "superneurons", "dymem", "largest-first", "all"
]
"""What decides on copies to the host: nothing, the search, or a published policy by its name."""

States = Literal["none", "auto", "all"]
"""Which optimizer states lie on the host: none; those that a memory budget asks for, beside `Offload` `auto`; or all that may."""

Workspace = Union[Literal["none", "free"], Annotated[int, Range(least=0, what="a number of bytes"), InBytes()]]

TIME_LIMIT = Seconds(10)
"""What -O3 gives the order of ops, and again the addresses, of each function."""

SLACK = 0.001
"""The part of the peak that -O2 does not look for better orders for."""

WORK = 200_000_000
"""Steps of searches for an order that -O2 takes at most: about two seconds of them."""


def pipeline(
    level: int,
    target: Kind = "llvm",
    kernels: Kernels = "auto",
    memory_budget: int | Budget | None = None,
    workspace: Workspace = "free",
    precision: Precision = "f32",
    offload: Offload = "none",
    host_budget: int | None = None,
    link: str | None = None,
    profile: str | None = None,
    states: States = "auto",
) -> str:
    """The passes of -O`level` for modules of a kind of target.

    Args:
        kernels: `auto`, library kernels but for small ops whose workspace would raise the peak; `library`, for those too;
            `generated`, none.
        memory_budget: bytes of the peak, or a share of it, weights, inputs and outputs included, that -O2 and -O3 reach by recomputation
            where it is needed.
        workspace: what library kernels may use beyond the least that they need: `none`; `free`, from -O2 on, what lies
            free in the arena while they run; or as many bytes, even if the arena grows.
        precision: of the model's values, `tf32` of library calls alone.
        offload: `auto`, to keep a memory budget by copies to the host, too, where that takes less time; or a published policy, to
            keep it by that instead.
        host_budget: bytes of copies on the host at one time; None for any number.
        link: how fast values are copied, as the pass `offload` takes it.
        profile: a file of measured times, as `rematerialize` and `offload` take it.
        states: which optimizer states lie on the host between steps.

    -O0  every value its own bytes: the reference for "before"
    -O1  in-place and sharing in linear time (Chen et al. 2016, section 3), addresses one after another
    -O2  heads of language models slice by slice, fusion, an order of ops and addresses by search, with work bounded by count
    -O3  as -O2, with order and addresses searched for until they are proven optimal or `TIME_LIMIT` is over, each

    At -O2 and -O3 the order is sought while library kernels have their least workspaces, which then grow into what is
    free under the peak. Raises UsageError for another level.
    """
    if level not in (0, 1, 2, 3):
        raise UsageError(f"optimization level: expected 0, 1, 2 or 3, got {level}")
    wanted = _Wanted(target, kernels, memory_budget, workspace, precision, offload, host_budget, link, profile, states)
    passes = _unplanned(wanted) if level == 0 else _linear(wanted) if level == 1 else _searched(wanted, level)
    if precision == "tf32":
        passes.append("set-precision{mode=tf32}")
    return ",".join(passes)


@dataclass(frozen=True)
class _Wanted:
    """`pipeline`'s arguments, and the passes that they decide the options of."""

    target: Kind
    kernels: Kernels
    memory_budget: int | Budget | None
    workspace: Workspace
    precision: Precision
    offload: Offload
    host_budget: int | None
    link: str | None
    profile: str | None
    states: States

    @property
    def library(self) -> str:
        return "none" if self.kernels == "generated" else self.target

    @property
    def no_library(self) -> str:
        """The option by which a pass uses no library."""
        return "target=none" if self.library == "none" else ""

    @property
    def decompose(self) -> str:
        return _with("decompose", self.no_library)

    def select(self, workspace: str = "") -> str:
        slow = "slow-flops=0" if self.kernels == "library" else ""
        return _with("select-kernels", self.no_library, workspace, slow)

    @property
    def beyond(self) -> str:
        """The option by which workspaces may make the arena larger."""
        return "" if isinstance(self.workspace, str) else f"beyond={self.workspace}"

    @property
    def grow(self) -> str:
        budget = self.memory_budget
        known = (
            budget.bytes if isinstance(budget, Budget) else budget
        )  # Of a share, the pass that keeps it alone knows.
        within = "" if known is None or self.library != "cuda" else f"within={known}"
        return _with("select-workspace", self.no_library, self.beyond, within)

    def order(self, effort: Sequence[str], search: Sequence[str]) -> str:
        """The pass that orders the ops, and keeps the budget if there is one."""
        if self.memory_budget is None:
            return _with("reorder", *effort, *search)
        budget = (f"budget={self.memory_budget}", "total", self.profiled)
        if self.offload == "none":
            return _with("rematerialize", *budget, *effort)
        host = "" if self.host_budget is None else f"host-budget={self.host_budget}"
        policy = "" if self.offload == "auto" else f"policy={self.offload}"
        states = "" if self.states == "auto" or self.offload != "auto" else f"states={self.states}"
        return _with("offload", policy, *budget, host, self.linked, states, *effort)

    @property
    def profiled(self) -> str:
        """The option that names the profile."""
        return "" if self.profile is None else f"profile={quoted(self.profile)}"

    @property
    def linked(self) -> str:
        """The option that names the link."""
        return "" if self.link is None else f"link={quoted(self.link)}"

    @property
    def host_states(self) -> list[str]:
        """The pass that puts all states on the host, where no budget is kept meanwhile."""
        if self.states != "all" or self.memory_budget is not None:
            return []
        return [_with("host-states", self.linked, self.profiled)]

    @property
    def has_copies(self) -> bool:
        """Whether values or states may be copied to the host."""
        return self.offload != "none" or bool(self.host_states)

    @property
    def half(self) -> list[str]:
        return [f"mixed-precision{{to={self.precision}}}"] if self.precision in HALVES else []

    @property
    def layout(self) -> list[str]:
        """Where convolutions may run on tensor cores of a GPU."""
        if self.library != "cuda" or self.precision == "f32":
            return []
        return [_with("channels-last", "tf32" if self.precision == "tf32" else "")]

    @property
    def pack(self) -> list[str]:
        return ["pack-weights"] if self.library == "llvm" else []


LEAST = "workspace=least"


def _unplanned(wanted: _Wanted) -> list[str]:
    passes = ["materialize-returns", *wanted.half, wanted.decompose, wanted.select(LEAST), "donate"]
    return [*passes, "assign-addresses{solver=none}", *([wanted.grow] if wanted.beyond else [])]


def _linear(wanted: _Wanted) -> list[str]:
    passes = ["materialize-returns", "canonicalize", *wanted.half, wanted.decompose, "canonicalize"]
    passes += [wanted.select(LEAST), *wanted.pack, "in-place", "share{strategy=color}"]
    return [*passes, "assign-addresses{solver=sequential}", *([wanted.grow] if wanted.beyond else [])]


def _searched(wanted: _Wanted, level: int) -> list[str]:
    cuda = wanted.target == "cuda"
    search = ["solver=auto"] if level == 2 else ["solver=auto", f"time-limit={TIME_LIMIT}"]
    effort = [f"slack={SLACK}", f"work={WORK}"] if level == 2 else []
    order = wanted.order(effort, search)
    # Workspaces that grow before there are addresses may cost some.
    late = wanted.library == "cuda" or wanted.memory_budget is not None or bool(wanted.beyond)
    has_workspaces = wanted.workspace != "none"
    return [
        *("materialize-returns", "canonicalize", *wanted.half),
        *(["recognize-attention"] if wanted.library == "cuda" else []),
        *(
            wanted.decompose,
            "canonicalize",
            "join-products",
            *wanted.layout,
            _with("chunk", "heads", wanted.no_library),
        ),
        *(["find-last"] if cuda and wanted.library == "none" else []),
        *(["fuse-library"] if wanted.library != "none" else []),
        *(_with("fuse", wanted.no_library), wanted.select(LEAST), *wanted.pack, order),
        *([_with("delay-updates", "" if wanted.memory_budget is None else "keep-arena")] if cuda else []),
        *wanted.host_states,
        *([wanted.select()] if has_workspaces and not late else []),
        *("in-place", _with("assign-addresses", *search)),
        *([wanted.grow] if has_workspaces and late else []),
        *(["group-copies"] if wanted.has_copies else []),
        *(["join-updates", "join-rows", "join-kernels"] if cuda else []),
    ]


def _with(name: str, *options: str) -> str:
    """A pass as text, with the options that are not empty."""
    given = " ".join(filter(None, options))
    return f"{name}{{{given}}}" if given else name
