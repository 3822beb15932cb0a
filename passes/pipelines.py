# SPDX-License-Identifier: Apache-2.0
"""What the optimization levels run, as pipeline text."""

from __future__ import annotations

from typing import Annotated, Literal, Union

from memc.ir.checked import Range
from memc.ir.durations import Seconds
from memc.ir.errors import UsageError
from memc.ir.liveness import ALIGNMENT

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
    target: Literal["llvm", "cuda"] = "llvm",
    alignment: int = ALIGNMENT,
    kernels: Kernels = "auto",
    memory_budget: int | None = None,
    workspace: Workspace = "free",
    precision: Precision = "f32",
) -> str:
    """The passes of -O`level`. `kernels`: `auto`, library kernels but for small ops whose workspace would raise the peak;
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
    at = f"alignment={alignment}"
    slow = " slow-flops=0" if kernels == "library" else ""
    select = f"select-kernels{{target={library}{slow} {at}}}"
    select_least = f"select-kernels{{target={library} workspace=least{slow} {at}}}"
    beyond = "" if isinstance(workspace, str) else f" beyond={workspace}"
    half = [f"mixed-precision{{to={precision}}}"] if precision in HALVES else []
    grow = f"select-workspace{{target={library}{beyond} {at}}}"
    if level == 0:
        passes = [
            "materialize-returns",
            *half,
            "decompose",
            select_least,
            "donate",
            f"assign-addresses{{solver=none {at}}}",
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
            f"in-place{{{at}}}",
            f"share{{strategy=color {at}}}",
            f"assign-addresses{{solver=sequential {at}}}",
            *([grow] if beyond else []),
        ]
    elif level in (2, 3):
        search = f"solver=auto {at}" if level == 2 else f"solver=auto time-limit={TIME_LIMIT} {at}"
        # Workspaces that grow before there are addresses may cost some.
        late = library == "cuda" or memory_budget is not None or bool(beyond)
        effort = f"slack={SLACK} work={WORK} " if level == 2 else ""
        order = f"reorder{{{effort}{search}}}"
        if memory_budget is not None:
            order = f"rematerialize{{budget={memory_budget} total device={target} {effort}{at}}}"
        passes = [
            "materialize-returns",
            "canonicalize",
            *half,
            *([f"recognize-attention{{target={library} {at}}}"] if library == "cuda" else []),
            "decompose",
            "canonicalize",
            f"join-products{{{at}}}",
            *([f"find-last{{{at}}}"] if target == "cuda" else []),
            *([f"fuse-library{{target={library} {at}}}"] if library != "none" else []),
            f"fuse{{library={library} {at}}}",
            select_least,
            *(["pack-weights"] if library == "llvm" else []),
            order,
            *([f"delay-updates{{{at}}}"] if target == "cuda" else []),
            *([select] if workspace != "none" and not late else []),
            f"in-place{{{at}}}",
            f"assign-addresses{{{search}}}",
            *([grow] if workspace != "none" and late else []),
            *(["join-updates", "join-rows", "join-kernels"] if target == "cuda" else []),
        ]
    else:
        raise UsageError(f"optimization level: expected 0, 1, 2 or 3, got {level}")
    if precision == "tf32":
        passes.append("set-precision{mode=tf32}")
    return ",".join(passes)
