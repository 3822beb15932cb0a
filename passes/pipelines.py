# SPDX-License-Identifier: Apache-2.0
"""What the optimization levels run, as pipeline text."""

from __future__ import annotations

from typing import Annotated, Literal, Union

from memc.ir.checked import Range
from memc.ir.durations import Seconds
from memc.ir.errors import UsageError
from memc.ir.target import Kind

Kernels = Literal["auto", "library", "generated"]

KERNELS: tuple[Kernels, ...] = ("auto", "library", "generated")

Precision = Literal["f32", "tf32", "f16", "bf16"]

PRECISIONS: tuple[Precision, ...] = ("f32", "tf32", "f16", "bf16")

HALVES: tuple[Precision, ...] = ("f16", "bf16")
"""What the values of a model are rounded to, where `tf32` concerns single calls of libraries."""

Workspace = Union[Literal["none", "free"], Annotated[int, Range(least=0, what="a number of bytes")]]

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
    memory_budget: int | None = None,
    workspace: Workspace = "free",
    precision: Precision = "f32",
) -> str:
    """The passes of -O`level` for modules of a kind of target. `kernels`: `auto`, library kernels but for small ops whose workspace would raise the peak;
    `library`, for those too; `generated`, none. `memory_budget`: bytes of the peak, weights, inputs and outputs included,
    that -O2 and -O3 reach by recomputation where it is needed. `workspace`: what library kernels may use beyond the least that
    they need: `none`; `free`, from -O2 on, what lies free in the arena while they run; or as many bytes, even if the arena grows. `precision`: of the
    model's values, `tf32` of library calls alone.

    -O0  every value its own bytes: the reference for "before"
    -O1  in-place and sharing in linear time (Chen et al. 2016, section 3), addresses one after another
    -O2  fusion, an order of ops and addresses by search, with work bounded by count
    -O3  as -O2, with order and addresses searched for until they are proven optimal or `TIME_LIMIT` is over, each

    At -O2 and -O3 the order is sought while library kernels have their least workspaces, which then grow into what is
    free under the peak. Raises UsageError for another level.
    """
    library = "none" if kernels == "generated" else target
    none = "target=none" if library == "none" else ""
    slow = "slow-flops=0" if kernels == "library" else ""
    select = _with("select-kernels", none, slow)
    select_least = _with("select-kernels", none, "workspace=least", slow)
    beyond = "" if isinstance(workspace, str) else f"beyond={workspace}"
    half = [f"mixed-precision{{to={precision}}}"] if precision in HALVES else []
    grow = _with("select-workspace", none, beyond)
    if level == 0:
        passes = [
            "materialize-returns",
            *half,
            "decompose",
            select_least,
            "donate",
            "assign-addresses{solver=none}",
        ]
        passes += [grow] if beyond else []
    elif level == 1:
        passes = [
            "materialize-returns",
            "canonicalize",
            *half,
            "decompose",
            "canonicalize",
            select_least,
            *(["pack-weights"] if library == "llvm" else []),
            "in-place",
            "share{strategy=color}",
            "assign-addresses{solver=sequential}",
            *([grow] if beyond else []),
        ]
    elif level in (2, 3):
        search = ["solver=auto"] if level == 2 else ["solver=auto", f"time-limit={TIME_LIMIT}"]
        # Workspaces that grow before there are addresses may cost some.
        late = library == "cuda" or memory_budget is not None or bool(beyond)
        effort = [f"slack={SLACK}", f"work={WORK}"] if level == 2 else []
        order = _with("reorder", *effort, *search)
        if memory_budget is not None:
            order = _with("rematerialize", f"budget={memory_budget}", "total", *effort)
        passes = [
            "materialize-returns",
            "canonicalize",
            *half,
            *(["recognize-attention"] if library == "cuda" else []),
            "decompose",
            "canonicalize",
            "join-products",
            *(["find-last"] if target == "cuda" else []),
            *(["fuse-library"] if library != "none" else []),
            _with("fuse", none),
            select_least,
            *(["pack-weights"] if library == "llvm" else []),
            order,
            *(["delay-updates"] if target == "cuda" else []),
            *([select] if workspace != "none" and not late else []),
            "in-place",
            _with("assign-addresses", *search),
            *([grow] if workspace != "none" and late else []),
            *(["join-updates", "join-rows", "join-kernels"] if target == "cuda" else []),
        ]
    else:
        raise UsageError(f"optimization level: expected 0, 1, 2 or 3, got {level}")
    if precision == "tf32":
        passes.append("set-precision{mode=tf32}")
    return ",".join(passes)


def _with(name: str, *options: str) -> str:
    """A pass as text, with the options that are not empty."""
    given = " ".join(filter(None, options))
    return f"{name}{{{given}}}" if given else name
