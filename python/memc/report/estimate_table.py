# SPDX-License-Identifier: Apache-2.0
"""An estimate of GPU memory on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from memc.estimation import Estimate
from memc.estimation.step_plans import StepPlan
from memc.ir.sizes import format_size


def print_estimate(console: Console, found: Estimate) -> None:
    """Print what a job takes at its peak, of what it consists, whether it fits, and what other settings would take."""
    on = f", {found.gpu}" if found.gpu else ""
    console.print(f"{found.source}: {found.allocator}{on}, {found.confidence}", soft_wrap=True, markup=False)
    for note in found.assumed:
        console.print(f"  {note}", soft_wrap=True, markup=False)
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")

    def row(label: str, nbytes: int) -> None:
        table.add_row(label, f"{nbytes:,} B", format_size(nbytes))

    row("allocated", found.allocated_bytes)
    row("reserved", found.reserved_bytes)
    row("on the device", found.device_bytes)
    table.add_section()
    for name, nbytes in found.breakdown.items():
        row(name, nbytes)
    if found.peak_op:
        table.add_row("peak at", found.peak_op, "")
    if found.memory_bytes is not None and found.fits is not None:
        table.add_section()
        share = 100 * (found.fitted_bytes or 0) / found.memory_bytes
        size = format_size(found.memory_bytes)
        table.add_row("fits", "yes" if found.fits else "no", f"{share:.1f} % of {size}" if found.fits else size)
        if found.fits and found.retries:
            table.add_row("cache given back", "once" if found.retries == 1 else f"{found.retries} times", "to fit")
        if found.largest_batch is not None:
            what = "the range's end; more may fit" if found.range_end else "that fits"
            table.add_row("largest batch", f"{found.largest_batch:,}", what)
    if found.plan is not None:
        table.add_section()
        _plan_rows(table, found.plan)
    if found.alternatives:
        table.add_section()
        for other in found.alternatives:
            change = 100 * (other.reserved_bytes / found.reserved_bytes - 1) if found.reserved_bytes else 0.0
            fits = ", fits" if other.fits and found.fits is False else ""
            table.add_row(other.settings, f"{other.reserved_bytes:,} B", f"{change:+.1f} % reserved{fits}")
    console.print(table)


def _plan_rows(table: Table, plan: StepPlan) -> None:
    """What the plan of a step places, and what is reserved with it."""
    table.add_row("arena", f"{plan.arena_bytes:,} B", f"{plan.gap_percent:.2f} % above the lower bound")
    table.add_row("placed", f"{plan.placed:,} of {plan.requests:,} blocks", f"{plan.cyclic:,} into the next step")
    native = plan.native_reserved_bytes
    change = 100 * (plan.reserved_bytes / native - 1) if native else 0.0
    table.add_row("reserved with it", f"{plan.reserved_bytes:,} B", f"{change:+.1f} % of {native:,} B")
