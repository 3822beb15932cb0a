# SPDX-License-Identifier: Apache-2.0
"""Results on a terminal, as tables: of a compilation, a benchmark, a profile and an address plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from memc.ir.sizes import format_size
from memc.measure.benchmark import Benchmark
from memc.measure.op_times import Profile
from memc.passes.chunk.chunk import Chunks
from memc.planning import Plan

from .compile_report import Report, Trained
from .host_states import HostStates
from .lane_use import LaneUse, Stall
from .offload import Offloaded
from .streamed import Streamed


def _print_attention(console: Console, training: Trained) -> None:
    """How much attention keeps no scores, and why the first that is written out does."""
    missed = training.attention_missed
    if training.attention:
        console.print(f"attention: {training.attention} without scores in memory", soft_wrap=True, markup=False)
    if missed:
        more = f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
        console.print(f"attention written out: {missed[0]}{more}", soft_wrap=True, markup=False)


def _print_chunks(console: Console, chunks: Chunks) -> None:
    """What runs in slices, and why the first large value at the peak does not."""
    for found in chunks.chosen:
        sums = f"; sums over the {found.of} are split" if found.splits_sums else ""
        text = (
            f"slices: {found.ops} ops around %{found.value} ({format_size(found.nbytes)}) in {found.slices} of {found.positions} {found.of}, "
            f"peak {format_size(found.peak)} to {format_size(found.lowered)}{sums}"
        )
        console.print(text, soft_wrap=True, markup=False)
    if chunks.missed:
        more = f" (and {len(chunks.missed) - 1} more)" if len(chunks.missed) > 1 else ""
        console.print(f"whole: {chunks.missed[0]}{more}", soft_wrap=True, markup=False)


def print_compilation(console: Console, model: str, report: Report, path: str | None) -> None:
    """Print the table of a compilation. `path`: where the artifact was written; None if it was not."""
    console.print(f"{Path(model).name}: {report.target}, -O{report.opt_level}", soft_wrap=True, markup=False)
    if report.training is not None:
        console.print(f"loss: {report.training.loss}, {report.training.of}", soft_wrap=True, markup=False)
        _print_attention(console, report.training)
    if report.chunks is not None:
        _print_chunks(console, report.chunks)
    table = _figures_table()

    def row(label: str, nbytes: int, note: str = "") -> None:
        table.add_row(label, f"{nbytes:,} B", note or format_size(nbytes))

    row("unoptimized", report.unoptimized_bytes)
    row("arena", report.arena_bytes)
    row("lower bound", report.lower_bound_bytes)
    table.add_row("gap", f"{report.gap_percent:.2f} %", "of the lower bound")
    if report.order_gain_percent is not None:
        table.add_row("order gain", f"{report.order_gain_percent:.2f} %", "of the given order")
    if report.workspace_bytes:
        row("largest workspace", report.workspace_bytes)
    if report.host_bytes:
        row("host", report.host_bytes)
        gap = f"of {format_size(report.host_lower_bound_bytes)}"
        table.add_row("host gap", f"{report.host_gap_percent:.2f} %", gap)
    row("weights", report.weights_bytes)
    row("inputs and outputs", report.io_bytes)
    row("peak", report.peak_bytes)
    if report.recomputation is not None:
        found = report.recomputation
        row("peak, no recomputation", found.peak_bytes_without)
        table.add_row("ops recomputed", f"{found.ops}", f"{found.added_percent:.2f} % more time")
    if report.offload is not None:
        _add_copies(table, report.offload)
        if report.policy != "auto":
            table.add_row("policy", report.policy, "")
        if report.offload.copies and report.added_percent_bound is not None:
            how = f"more time, in this order: {report.added_percent_bound_by}"
            table.add_row("any plan, at least", f"{report.added_percent_bound:.2f} %", how)
    if report.states is not None and report.states.states:
        _add_states(table, report.states, report.offload is None)
    table.add_section()
    table.add_row("ops", f"{report.ops}", f"{report.kernels} kernels" if report.kernels else "")
    for name, seconds in report.seconds.items():
        table.add_row(name, f"{seconds:.2f} s", "")
    if report.largest:
        table.add_section()
    for tensor in report.largest:
        table.add_row(f"%{tensor.name}", tensor.type, format_size(tensor.bytes))
    console.print(table)
    if report.offload is not None:
        console.print(report.offload.verdict, soft_wrap=True, markup=False)
        _print_decisions(console, report.offload)
    if report.states is not None:
        console.print(report.states.summary, soft_wrap=True, markup=False)
    if path:
        console.print(f"wrote {path}", soft_wrap=True)


def _add_copies(table: Table, moved: Offloaded) -> None:
    """Rows of what is copied, and of what it costs beside the alternatives."""
    table.add_row("link", moved.link, moved.link_origin)
    if not moved.copies:
        return
    if moved.streamed is not None:
        _add_streamed(table, moved.streamed)
    for label, way, nbytes in (
        ("copied to the host", "out", moved.offloaded_bytes),
        ("copied back" if moved.streamed is None else "copied in", "in", moved.prefetched_bytes),
    ):
        if moved.streamed is not None and not nbytes:
            continue
        table.add_row(label, f"{nbytes:,} B", format_size(nbytes))
        _add_lane(table, way, moved.lanes[way])
    table.add_row("waits for copies", f"{moved.waiting_percent:.2f} %", "of the ops' time")
    _add_stalls(table, moved.stalls)
    if moved.streamed is not None:
        seconds = (moved.makespan_seconds, moved.streamed.resident_seconds)
        run, resident = (f"{1e3 * each:,.3f} ms" for each in seconds)
        table.add_row("a run, predicted", run, f"{resident} with all weights resident")
        table.add_row("copies alone, at least", f"{moved.copies_only_percent_bound:.2f} %", "more time")
        return
    alone = moved.recompute_only_percent
    table.add_row("recomputation alone", "impossible" if alone is None else f"{alone:.2f} %", "more time")
    table.add_row("copies alone, at least", f"{moved.copies_only_percent_bound:.2f} %", "more time")


def _add_stalls(table: Table, stalls: Sequence[Stall]) -> None:
    for stall in stalls:
        table.add_row(
            f"  %{stall.result}" if stall.result else "  the end",
            f"{stall.percent:.2f} %",
            f"for %{stall.waits_for}, {stall.direction}",
        )


def _add_lane(table: Table, way: str, lane: LaneUse) -> None:
    copies = "1 copy" if lane.copies == 1 else f"{lane.copies} copies"
    table.add_row(f"lane {way} is busy", f"{lane.busy_percent:.2f} %", copies)


def _add_states(table: Table, found: HostStates, alone: bool) -> None:
    """Rows of states on the host. `alone`: nothing is said of other copies, nor of the link."""
    if alone:
        table.add_row("link", found.link, found.link_origin)
    count = f"{len(found.states)} of {len(found.states) + len(found.resident)}"
    table.add_row("states on the host", f"{found.bytes:,} B", f"{count}, {format_size(found.bytes)}")
    table.add_row(
        "their windows", f"{found.window_bytes:,} B", f"at most at one time, {_count(found.groups, 'group')} of updates"
    )
    if found.staying_bytes:
        table.add_row("leave a step later", f"{found.staying_bytes:,} B", "in the arena between steps")
    for label, way, nbytes in (
        ("states copied in", "in", found.copied_in_bytes),
        ("states written back", "out", found.copied_out_bytes),
    ):
        table.add_row(label, f"{nbytes:,} B", format_size(nbytes))
        if alone:
            _add_lane(table, way, found.lanes[way])
    if alone:
        table.add_row("waits for copies", f"{found.waiting_percent:.2f} %", "of the ops' time")
        _add_stalls(table, found.stalls)
    table.add_row("states take", f"{found.added_percent:.2f} %", "more time than on the device")


def _add_streamed(table: Table, found: Streamed) -> None:
    """Rows of what lies on the host, and what it takes of the arena."""
    count = f"{len(found.weights)} of {len(found.weights) + found.resident}"
    table.add_row("weights on the host", f"{found.bytes:,} B", f"{count}, {format_size(found.bytes)}")
    windows = _count(found.windows, "window")
    table.add_row("windows", f"{found.windows_bytes:,} B", f"at most at one time, of {windows}")


SHOWN_VALUES = 10
"""How many results of ops the table of decisions has; JSON has all values."""


def _print_decisions(console: Console, moved: Offloaded) -> None:
    """What became of the largest results of ops, and how many others there are."""
    if not moved.values:
        return
    shown = (each for each in moved.values if each.is_result or each.decision == "streamed")
    results = sorted(shown, key=lambda v: (-v.bytes, v.decision == "kept"))
    table = Table()
    for heading in ("value", "size", "decision"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why", overflow="fold")
    for each in results[:SHOWN_VALUES]:
        table.add_row(f"%{each.value}", format_size(each.bytes), each.decision, each.reason)
    console.print(table)
    others = Counter(each.decision for each in results[SHOWN_VALUES:])
    fixed = others.pop("none", 0)
    parts = [f"{count} {decision}" for decision, count in others.items()]
    parts += [f"{fixed} that may not be copied"] if fixed else []
    outside = len(moved.values) - len(results)
    parts += [f"{outside} inputs, weights, states, constants and workspaces"] if outside else []
    parts += [f"{moved.small_values} below the least copy"] if moved.small_values else []
    if parts:
        console.print(f"and others: {', '.join(parts)}; --json has all", soft_wrap=True)


def print_benchmark(console: Console, model: str, found: Benchmark) -> None:
    """Print times, throughput and memory."""
    what = "training step" if found.training else "inference"
    how = [found.target, what, *([_count(found.threads, "thread")] if found.threads else [])]
    how.append(f"{_count(found.runs, 'run')} after {found.warmup}")
    console.print(f"{Path(model).name}: {', '.join(how)}", soft_wrap=True, markup=False)
    table = _figures_table()
    table.add_row("median", f"{1e3 * found.median:.3f} ms", "")
    table.add_row("p90", f"{1e3 * found.p90:.3f} ms", "")
    table.add_row("least", f"{1e3 * found.least:.3f} ms", "")
    items = found.items_per_second
    table.add_row("throughput", f"{found.runs_per_second:.2f} runs/s", "" if items is None else f"{items:.2f} items/s")
    table.add_section()
    for name, nbytes in found.memory.items():
        table.add_row(name.replace("_", " "), f"{nbytes:,} B", format_size(nbytes))
    if found.grown_bytes is not None:
        table.add_row("measured", f"{found.grown_bytes:,} B", format_size(found.grown_bytes))
    console.print(table)


def print_profile(console: Console, found: Profile, top: int | None) -> None:
    """Print the ops by time, longest first. `top`: only so many."""
    table = Table()
    for heading in ("op", "result", "type"):
        table.add_column(heading, no_wrap=True)
    for heading in ("ms", "share", "bytes", "MFLOP", "roof"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = found.slowest(top)
    for op in shown:
        names = (_short(op.name, 12), "%" + _short(op.result, 10), _short(op.type, 17))
        table.add_row(*names, *_figures(op.seconds, op.share, op.bytes, op.flops, op.roofline))
    table.add_section()
    reached = found.least_seconds / found.seconds if found.seconds else 0.0
    totals = _figures(found.seconds, 1.0, found.bytes, found.flops, reached)
    table.add_row(f"all {_count(len(found.ops), 'op')}", "", "", *totals)
    console.print(table)
    console.print(
        f"medians of {_count(found.runs, 'run')}, {1e3 * found.run_seconds:.3f} ms from the first kernel to the last; "
        f"roofline of {found.device}: {found.peak_flops / 1e9:,.0f} GFLOP/s, {found.bandwidth / 1e9:,.0f} GB/s",
        soft_wrap=True,
    )


def print_plan(console: Console, result: Plan) -> None:
    """Print the peak of an address plan, and how it was found."""
    table = _figures_table()
    table.add_row("peak", f"{result.peak:,} B", format_size(result.peak))
    table.add_row("lower bound", f"{result.lower_bound:,} B", format_size(result.lower_bound))
    table.add_row("gap", f"{result.gap_percent:.2f} %", "proven optimal" if result.proven_optimal else "not proven")
    table.add_row("seconds", f"{result.seconds:.2f}", "")
    table.add_row("solver", result.solver, "")
    if len(result.spaces) > 1:
        table.add_section()
        for space in result.spaces:
            table.add_row(space.name, f"{space.peak:,} B", format_size(space.peak))
    console.print(table)


def _figures_table() -> Table:
    """A table of a name, a figure and a note in each row."""
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    return table


def _short(name: str, most: int) -> str:
    """The end of a long name, which is what tells it from others."""
    return name if len(name) <= most else "…" + name[1 - most :]


def _figures(seconds: float, share: float, nbytes: int, flops: int, roofline: float) -> list[str]:
    """The cells of a row after its names."""
    times = [f"{1e3 * seconds:.3f}", f"{100 * share:.1f} %" if share < 1 else "100 %"]
    return [*times, format_size(nbytes), f"{flops / 1e6:,.2f}", f"{100 * roofline:.1f} %"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number != 1 else "")
