# SPDX-License-Identifier: Apache-2.0
"""Runs passes in order, verifies after each one and names the culprit, prints IR, and measures time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Optional

from memc.ir.checked_options import Amount, require
from memc.ir.core import Value
from memc.ir.errors import CheckError, InvalidError, MemcError, PluginError
from memc.ir.liveness import covers_root, is_fixed, updates_state
from memc.ir.module import Module
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.kernel_races import check_kernel_races
from memc.ir.verify.structure import Known, verify
from memc.passes.base import Finding, Pass, alignment_of, class_name
from memc.passes.check_plans import check_whole_plan
from memc.passes.pipeline_text import parse_pipeline
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.registry import known_passes, line, third_party

Dump = Callable[[str], None]
Measure = Callable[[Module], Finding]


@dataclass
class PassManager:
    """Passes and how to run them.

    >>> PassManager.parse("in-place,share{strategy=color}").passes
    [InPlace(alignment=None), Share(strategy='color', alignment=None)]
    """

    passes: list[Pass]
    verify_each: bool = True
    print_ir_after_all: bool = False
    print_ir_after_change: bool = False
    """Like `print_ir_after_all`, but only after passes that changed the text."""
    stop_after: int | None = None
    """Run only this many passes: bisects a wrong result."""
    dump: Dump = field(default=lambda text: print(text, file=sys.stderr))
    """Takes the printed IR."""
    timings: list[tuple[str, float]] = field(default_factory=list)
    """Pass text and seconds, of the last run."""
    checking: dict[str, float] = field(default_factory=dict)
    """Seconds of what the last run did between the passes: it verified the IR, and measured the peaks before some passes."""
    given_peak: int | None = None
    """The lower bound of @main, in bytes, in the order that the first pass which `orders` was given, with the aliases that
    @main then had or would have got; None if there was no such pass."""

    findings: list[Finding] = field(default_factory=list)
    """What passes, and `measure`, found of @main in the last run."""
    head: int = 0
    """How many of the first passes make the program that the others work on, such as a training step of a model."""
    on_pass: Callable[[str, int, int], None] | None = None
    """Called as each pass begins, with its name, its number from 1, and how many there are."""
    measure: Measure | None = None
    """Looks at the program between the head and the other passes, and leaves it as it is."""

    @staticmethod
    def parse(text: str) -> PassManager:
        """The passes of pipeline `text`. Raises UsageError with the position in the text."""
        known = known_passes()
        return PassManager(parse_pipeline(text, known, known.broken))

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))

    def run(self, module: Module) -> None:
        """Apply the passes to `module`. Raises CheckError naming the pass that broke the IR or made a bad plan."""
        require(self.stop_after, Optional[Amount], "stop_after")
        self.timings, self.checking, self.given_peak, self.findings = [], {}, None, []
        known: Known = {}
        before = str(module) if self.print_ir_after_change else ""
        chosen = self.passes[: self.stop_after]
        for number, item in enumerate(chosen):
            if self.on_pass is not None:
                self.on_pass(item.name, number + 1, len(chosen))
            with self._timed("peaks before passes"):
                if number == self.head:
                    self._measure(module)
                if item.orders and self.given_peak is None:
                    self.given_peak = _peak(item, module)
            if item.plans:
                _require_plannable(item, module)
            start = time.perf_counter()
            found = applied(item, module)
            if found is not None:
                self.findings.append(found)
            self.timings.append((str(item), time.perf_counter() - start))
            if self.print_ir_after_all or self.print_ir_after_change:
                text = str(module)
                if self.print_ir_after_all or text != before:
                    self.dump(f"// -----// IR Dump After {class_name(item.name)} ({item.name}) //----- //\n{text}")
                before = text
            with self._timed("verification"):
                self._verify(item, module, known)
        if self.head >= len(chosen):
            self._measure(module)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.checking[what] = self.checking.get(what, 0.0) + time.perf_counter() - start

    def _measure(self, module: Module) -> None:
        if self.measure is not None:
            self.findings.append(self.measure(module))

    def _verify(self, item: Pass, module: Module, known: Known) -> None:
        try:
            if self.verify_each:
                verify(module, known)
                check_kernel_races(module)
            if item.plans:
                check_whole_plan(module, _alignment(item, module))
            elif self.verify_each:
                check_copy_races(module)
        except MemcError as error:
            raise CheckError(f"after pass {item.name}: {error}") from error
        except Exception as error:
            who = third_party(type(item))
            if who is None:
                raise
            raise CheckError(f"after pass {item.name} of {who}: invalid IR: {line(error)}") from error


def _alignment(item: Pass, module: Module) -> int:
    """Bytes that the plan of a pass is checked with: its target's, unless an option of the pass says otherwise. Code is made
    only of plans that keep the target's."""
    return alignment_of(getattr(item, "alignment", None), module)


def applied(item: Pass, module: Module) -> Finding | None:
    """What a pass finds. What goes wrong in a third party's is a PluginError that says whose it is."""
    try:
        return item.apply(module)
    except (MemcError, KeyboardInterrupt):
        raise
    except BaseException as error:
        who = third_party(type(item))
        if who is None:
            raise
        raise PluginError(
            f"pass {item.name} of {who} failed: {line(error)}; report it there, or leave the pass out"
        ) from error


def _require_plannable(item: Pass, module: Module) -> None:
    """Raise InvalidError for what no plan can make up for: returned values without buffers of their own, and aliases at
    offsets that the pass's alignment does not allow. Both were given, or left by the passes that were asked for."""
    alignment = _alignment(item, module)
    for function in module.functions:
        taken: set[Value] = set()
        for value in function.returns:
            if value.root in taken or not covers_root(value) or (is_fixed(value.root) and not updates_state(value)):
                raise InvalidError(
                    f"pass {item.name}: @{function.name}, %{value.name}: expected each returned value in a buffer of its own, "
                    "got one that is shared; run materialize-returns before"
                )
            taken.add(value.root)
        for value in function.values():
            if value.offset_in_root % alignment and value.type.nbytes:
                raise InvalidError(
                    f"pass {item.name}: @{function.name}, %{value.name}: expected an alias at a multiple of {alignment} bytes, "
                    f"got {value.offset_in_root}; take away the alias, or use {item.name}{{alignment=N}}"
                )


def _peak(item: Pass, module: Module) -> int | None:
    """The lower bound of @main, if there is one, as `item` sees it."""
    main = next((function for function in module.functions if function.name == "main"), None)
    return None if main is None else planned_peak(main, _alignment(item, module), refine=True)
