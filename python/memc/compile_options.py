# SPDX-License-Identifier: Apache-2.0
"""How to compile: the one list of options, of which the command line's flags, the keyword arguments of Python's functions and
the tables of the documentation are made.

A new option is a field of `Options`, its name and type in `Keywords` (a test compares), and the code that heeds it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Annotated, Any, Optional, TypedDict, TypeVar, Union, get_type_hints

from memc.ir.checked_options import Alignment, Amount, Checked, Range, What
from memc.ir.errors import UsageError
from memc.ir.messages import nearest
from memc.ir.target import Kind
from memc.passes.budget import AsBudget, AsHostBytes, Budget
from memc.passes.pipelines import Kernels, Offload, Precision, States, Workspace
from memc.passes.training.build_gradient import BuildGradient
from memc.runtime.code_target import CodeTarget

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SIZES = Range(least=0, most=2**31 - 1)
"""What a dimension can be."""


@dataclass(frozen=True)
class Flag:
    """An option on the command line."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None


def _option(default: T, doc: str, *names: str, help: str, metavar: str | None = None) -> T:
    """A field of `Options`. `doc` tells of it in Python's terms, `help` in those of the command line, where it has `names`."""
    metadata = {"doc": doc, "flag": Flag(names, help, metavar)}
    if isinstance(default, dict):
        return field(default_factory=type(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Options(Checked):
    """How to compile. Raises UsageError for a field of another type or value."""

    target: Kind = _option("llvm", '`"llvm"`: the CPU; or `"cuda"`', "--target", help="llvm (CPU) or cuda.")
    arch: Optional[str] = _option(
        None,
        'GPU architecture for cuda, by default `"sm_90"`',
        "--arch",
        help="GPU architecture for cuda, for example sm_90.",
    )
    mcpu: Optional[str] = _option(
        None,
        "CPU to generate code for, in LLVM's names; None: this machine's level of the x86-64 psABI",
        "--mcpu",
        help="CPU to compile for (default: native).",
    )
    opt_level: int = _option(2, "0 to 3", "-O", "--opt-level", metavar="N", help="Optimization level, 0 to 3.")
    dims: Mapping[str, Annotated[int, SIZES]] = _option(
        {},
        "sizes of open dimensions by name",
        "--dim",
        metavar="NAME=N",
        help="Bind a symbolic dimension (repeatable).",
    )
    input_shapes: Mapping[str, Sequence[Annotated[int, SIZES]]] = _option(
        {},
        "whole shapes by input name",
        "--input-shapes",
        metavar="SHAPES",
        help='Shapes by input name: "x:[1,3,224,224] y:[1,2]".',
    )
    bind: Mapping[str, Any] = _option(
        {},
        "data of inputs that become constants, by name",
        "--bind",
        metavar="NAME=VALUE",
        help="Make an input a constant: a number, JSON list or @file.npy.",
    )
    max_size: Optional[Amount] = _option(
        None,
        "the most elements that a size that depends on data will have, such as the number of boxes that NonMaxSuppression "
        "chooses; a run that finds more raises `UsageError`; None: as many as there can be",
        "--max-size",
        metavar="N",
        help="The most elements that sizes that depend on data will have (default: all there can be).",
    )
    pass_pipeline: Optional[str] = _option(
        None,
        "pipeline text in place of the level's",
        "-p",
        "--pass-pipeline",
        metavar="PASSES",
        help="Passes to run, e.g. 'in-place,share{strategy=color}'.",
    )
    disabled_passes: Sequence[str] = _option(
        (), "names of passes to leave out", "--disabled-pass", metavar="A,B", help="Passes to leave out."
    )
    memory_budget: Optional[Union[Amount, AsBudget]] = _option(
        None,
        "bytes of peak memory (arena, weights, states, inputs and outputs) that must not be exceeded, also as text: "
        '`"4GiB"`, or `"50%"` of what it takes without a budget; from `-O2` on ops run again to keep it; `BudgetError` if that does not do',
        "--memory-budget",
        metavar="SIZE",
        help="Bytes of the peak to keep, by recomputation from -O2 on: 4GiB, or 50% of what it takes without.",
    )
    offload: Offload = _option(
        "none",
        '`"auto"`: also keep the memory budget by copying values to the host and back while ops run, where that takes less time '
        'than recomputation; `"none"`: by recomputation alone; `"vdnn-all"`, `"vdnn-conv"`, `"vdnn-dynamic"`, `"superneurons"`, '
        '`"dymem"`, `"largest-first"`, `"all"`: by what that published policy copies instead, or `BudgetError`',
        "--offload",
        metavar="POLICY",
        help="auto: keep the budget by copies to the host, too; or as a published policy does: vdnn-all, vdnn-conv, "
        "vdnn-dynamic, superneurons, dymem, largest-first, all (default: none).",
    )
    offload_states: States = _option(
        "auto",
        'which states of an optimizer lie on the host between steps, and in the arena while they are updated: `"auto"`, those '
        'that `offload="auto"` moves to keep the memory budget; `"none"`; or `"all"` that nothing but their update reads, with or '
        "without a budget",
        "--offload-states",
        metavar="WHICH",
        help="Optimizer states on the host between steps: auto, as --offload auto chooses; none; or all (default: auto).",
    )
    host_budget: Optional[Union[Amount, AsHostBytes]] = _option(
        None,
        'bytes of the host\'s memory that copies may take at one time, also as text: `"16GiB"`, or `"50%"` of this machine\'s; None: any '
        "number",
        "--host-budget",
        metavar="SIZE",
        help="Bytes of the host's memory for copies: 16GiB, or 50% of this machine's.",
    )
    link: Optional[str] = _option(
        None,
        "how fast values are copied: `h200`, `h200-alone`, `h100`, `a100`, `titanx`, `gh200`, `memory`, or a JSON file of measured rates; None: "
        "`h200` for CUDA, `memory` for the CPU",
        "--link",
        metavar="NAME|FILE",
        help="How fast values are copied: h200, h200-alone, h100, a100, titanx, gh200, memory, or a JSON file.",
    )
    profile: Optional[str] = _option(
        None,
        "a JSON file of measured times, as `memc bench --save-profile` writes it, by which a memory budget is kept in the least time, "
        "the link's rates included where it has them and `link` says nothing; None: a roofline of the target",
        "--profile",
        metavar="FILE",
        help="Measured times, of memc bench --save-profile, by which to keep the budget.",
    )
    train: Optional[Annotated[BuildGradient, What("a BuildGradient, such as memc.BuildGradient()")]] = _option(
        None,
        "make a training step of the model, as this `memc.BuildGradient` says",
        "--train",
        help="Make a training step of the model.",
    )
    alignment: Optional[Alignment] = _option(
        None,
        "bytes that offsets are multiples of, also as text; None: 64 on the CPU, 256 on CUDA",
        "--alignment",
        metavar="SIZE",
        help="Bytes that offsets are multiples of.",
    )
    kernels: Kernels = _option(
        "auto",
        '`"auto"`: library kernels, but for small ops whose workspace would raise the peak; `"library"`: wherever they exist; '
        '`"generated"`: none',
        "--kernels",
        help="auto: library kernels unless a small op's raises the peak; library: always; or generated.",
    )
    precision: Precision = _option(
        "f32",
        '`"f32"`: strict; `"tf32"`: factors of matrix products and convolutions rounded to TF32, on CUDA; `"f16"`, `"bf16"`: '
        "products, and what lies between them, in half precision, for training with weights and updates in f32",
        "--precision",
        help="f32: strict; tf32: products and convolutions on CUDA with factors rounded to TF32; f16, bf16: in half "
        "precision, with what lies between them.",
    )
    workspace: Workspace = _option(
        "free",
        'what library kernels may use beyond their least: `"free"`: what lies free in the arena while they run, from `-O2` on; '
        '`"none"`; or as many bytes, also as text, even if the arena grows',
        "--workspace",
        metavar="none|free|SIZE",
        help="What library kernels may use beyond their least: none; free: what lies free in the arena, from -O2 on; or "
        "SIZE, even if the arena grows.",
    )
    plan_only: bool = _option(
        False,
        "stop after the passes: module and plan, no code",
        "--plan-only",
        help="Stop after the passes; -o takes the planned IR as text.",
    )
    print_ir_after_all: bool = _option(
        False,
        "print the IR after each pass, to standard error",
        "--print-ir-after-all",
        help="Print the IR after each pass (stderr).",
    )
    print_ir_after_change: bool = _option(
        False,
        "print the IR after each pass that changed it, to standard error",
        "--print-ir-after-change",
        help="Print the IR after each pass that changed it (stderr).",
    )

    def check(self) -> None:
        """Raise UsageError for a level that there is not, and a precision that nothing would be computed with."""
        if not 0 <= self.opt_level <= 3:
            raise UsageError(f"optimization level: expected 0 to 3, got {self.opt_level}")
        self.code_target()
        if self.offload != "none" and self.memory_budget is None:
            raise UsageError(f"offload {self.offload}: expected a memory budget to keep beside it, got none")
        if self.offload != "none" and (self.opt_level < 2 or self.pass_pipeline is not None):
            raise UsageError(
                f"offload {self.offload}: expected -O2 or -O3 and no pass pipeline, whose own passes say what they do"
            )
        self._check_states()
        budget = self.budget
        if budget is not None and budget.bytes is None and (self.opt_level < 2 or self.pass_pipeline is not None):
            raise UsageError(
                f"memory budget {budget}: expected -O2 or -O3 and no pass pipeline beside a share, which passes reach; give bytes"
            )
        for name in ("host_budget", "link"):
            if getattr(self, name) is not None and self.offload == "none" and self.offload_states != "all":
                raise UsageError(f"{name}: expected offload auto beside it, got none")
        needed = self.memory_budget is not None or self.offload_states == "all"
        if self.profile is not None and (not needed or self.opt_level < 2 or self.pass_pipeline is not None):
            raise UsageError(
                "profile: expected a memory budget beside it, -O2 or -O3 and no pass pipeline, whose own passes take one"
            )
        if self.precision != "tf32":
            return
        if self.target != "cuda":
            raise UsageError(f"precision tf32: expected target cuda, got {self.target}, which has f32, f16 and bf16")
        if self.kernels == "generated":
            raise UsageError("precision tf32: generated kernels compute in f32; use kernels auto or library")

    @property
    def budget(self) -> Budget | None:
        """The memory budget; None without one."""
        return (
            self.memory_budget if isinstance(self.memory_budget, (Budget, type(None))) else Budget(self.memory_budget)
        )

    def _check_states(self) -> None:
        """Raise UsageError for states on the host that nothing would put there."""
        if self.offload_states != "all":
            return
        if self.opt_level < 2 or self.pass_pipeline is not None:
            raise UsageError(
                "offload_states all: expected -O2 or -O3 and no pass pipeline, whose own passes say what they do"
            )
        if self.memory_budget is not None and self.offload != "auto":
            raise UsageError(f"offload_states all: expected offload auto beside a memory budget, got {self.offload}")

    def code_target(self) -> CodeTarget:
        """What the module is planned, and its code generated, for. Raises UsageError for what there is not."""
        return CodeTarget.create(self.target, self.arch, self.mcpu, self.alignment)


class Keywords(TypedDict, total=False):
    """The options as keyword arguments, for type checkers and editors; `Options` tells what each means."""

    target: Kind
    arch: str | None
    mcpu: str | None
    opt_level: int
    dims: Mapping[str, int]
    input_shapes: Mapping[str, Sequence[int]]
    bind: Mapping[str, Any]
    max_size: int | None
    pass_pipeline: str | None
    disabled_passes: Sequence[str]
    memory_budget: int | str | Budget | None
    offload: Offload
    offload_states: States
    host_budget: int | str | None
    link: str | None
    profile: str | None
    train: BuildGradient | None
    alignment: int | str | None
    kernels: Kernels
    precision: Precision
    workspace: Workspace | str
    plan_only: bool
    print_ir_after_all: bool
    print_ir_after_change: bool


def checked_options(given: Mapping[str, Any]) -> Options:
    """The options by name. Raises UsageError for an unknown one, and as `Options` does, before anything is used."""
    known = [item.name for item in fields(Options)]
    for name in given:
        if name not in known:
            near = nearest(name, known)
            raise UsageError(f"compile: no option `{name}`; options are {', '.join(known)}{near}")
    return Options(**given)


def default_of(option: Field[Any]) -> Any:
    """What an option is where it is not given."""
    return option.default if option.default_factory is MISSING else option.default_factory()


def with_options(function: F) -> F:
    """Show the options of a function that takes them as `**options`: one by one in its signature, as `help` and notebooks
    have it, and in its docstring."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    types = get_type_hints(Keywords)
    options = [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=default_of(each), annotation=types[each.name]
        )
        for each in fields(Options)
    ]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    doc = function.__doc__ or ""
    place = re.search(r"^( *)\*\*options: .*$", doc, re.MULTILINE)
    if place:
        indent = place[1]  # Since Python 3.13 that of the docstring as a whole is taken off.
        told = [
            textwrap.fill(
                f"{each.name}: {each.metadata['doc']}.", 112, initial_indent=indent, subsequent_indent=indent + "    "
            )
            for each in fields(Options)
        ]
        function.__doc__ = doc[: place.start()] + "\n".join(told) + doc[place.end() :]
    return function
