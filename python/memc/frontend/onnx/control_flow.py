# SPDX-License-Identifier: Apache-2.0
"""Control flow whose course is known at import: `If` replaced by its branch, `Loop` and `Scan` unrolled. Where it depends on
data of a run, `run_time_flow` takes over.

Importing this module registers the three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union, cast

import numpy as np
from onnx import GraphProto, NodeProto

from memc.ir.core import Array, Role, Value
from memc.ir.errors import InvalidError
from memc.ir.types import DType

from .context import Known, NodeContext
from .data_dependent_axes import counts_of, has_counts, refused
from .data_dependent_sizes import Count
from .graph_walk import SPECIAL, Scope, State, add_initializers, enter, import_graph
from .run_time_flow import (
    Turns,
    checked_where,
    choose,
    counted,
    flag_of,
    require_inference,
    require_static,
    run_if,
    run_loop,
)
from .schema import label

MAX_ITERATIONS = 10_000
"""Loops that run longer are not unrolled."""

Inputs = list[Union[Known, None]]


def _graph(node: NodeProto, name: str) -> GraphProto:
    return next(a.g for a in node.attribute if a.name == name)


def _body(
    state: State, node: NodeProto, graph: GraphProto, inputs: Inputs, scope: Scope, opsets: Mapping[str, int]
) -> list[Known]:
    """Import a subgraph once, its formal inputs standing for `inputs`."""
    if len(inputs) != len(graph.input):
        raise InvalidError(
            f"invalid: {label(node)}: its subgraph `{graph.name}` has {len(graph.input)} inputs, expected {len(inputs)}"
        )
    inner = Scope(scope)
    inner.values.update({formal.name: actual for formal, actual in zip(graph.input, inputs)})
    add_initializers(state, graph, inner)
    enter(state, node)
    results = import_graph(state, graph, inner, opsets)
    state.depth -= 1
    return results


def import_if(
    state: State, node: NodeProto, inputs: Inputs, scope: Scope, opsets: Mapping[str, int]
) -> Sequence[Known]:
    """`If` with a condition known at import: the branch takes its place."""

    def branch(name: str) -> list[Known]:
        return _body(state, node, _graph(node, name), [], scope, opsets)

    context = _context(state, node, inputs, opsets)
    condition = inputs[0]
    if isinstance(condition, Value) and condition.role is not Role.WEIGHT:
        return run_if(context, condition, lambda _: branch("then_branch"), lambda _: branch("else_branch"))
    return branch("then_branch" if bool(np.all(context.const(0))) else "else_branch")


def _context(state: State, node: NodeProto, inputs: Inputs, opsets: Mapping[str, int]) -> NodeContext:
    return NodeContext(
        node, opsets[""], inputs, state.builder, state.trainable, state.constants, state.streams, state.sizes
    )


def import_loop(
    state: State, node: NodeProto, inputs: Inputs, scope: Scope, opsets: Mapping[str, int]
) -> Sequence[Known]:
    """`Loop` whose trip count and conditions are known at import, unrolled."""

    def at_run_time(turns: Turns) -> list[Known]:
        return run_loop(
            context,
            turns,
            inputs[0],
            MAX_ITERATIONS,
            lambda given: _body(state, node, graph, list(given), scope, opsets),
            lambda items: _stack(state, items, 0),
        )

    context = _context(state, node, inputs, opsets)
    graph = _graph(node, "body")
    if any(isinstance(x, Value) and x.role is not Role.WEIGHT for x in inputs[:2]):
        start = flag_of(context, cast(Known, inputs[1])) if context.has(1) else True
        empty: list[list[Known]] = [[] for _ in range(len(graph.output) - 1 - len(inputs[2:]))]
        return at_run_time(Turns([cast(Known, x) for x in inputs[2:]], empty, start))
    trips = int(context.const(0).reshape(())) if context.has(0) else MAX_ITERATIONS + 1
    going = bool(np.all(context.const(1))) if context.has(1) else True
    carried = list(inputs[2:])
    scanned: list[list[Known]] = [[] for _ in range(len(graph.output) - 1 - len(carried))]
    iteration = 0
    while going and iteration < trips:
        if iteration == MAX_ITERATIONS:
            raise context.unsupported(f"it runs more than {MAX_ITERATIONS} times")
        number = np.asarray(iteration, np.int64)
        results = _body(state, node, graph, [number, np.asarray(True), *carried], scope, opsets)
        carried = list(results[1 : 1 + len(carried)])
        for items, item in zip(scanned, results[1 + len(carried) :]):
            items.append(item)
        iteration += 1
        if not isinstance(results[0], np.ndarray):
            again = flag_of(context, results[0])
            return at_run_time(Turns([cast(Known, x) for x in carried], scanned, again, iteration))
        going = bool(np.all(results[0]))
    if scanned and iteration == 0:
        turn = [np.asarray(0, np.int64), np.asarray(True), *carried]
        stacked = [_empty(item, 0) for item in _body(state, node, graph, turn, scope, opsets)[1 + len(carried) :]]
    else:
        stacked = [_stack(state, items, 0) for items in scanned]
    return [cast(Known, value) for value in carried] + stacked


def _empty(item: Known, axis: int) -> Known:
    """The scan output of a loop that runs zero times, whose `item` in a first turn, imported for its type alone, would be."""
    shape = _shape(item)
    return np.zeros((*shape[:axis], 0, *shape[axis:]), _kind(item))


def _kind(known: Known) -> np.dtype[Any]:
    return known.type.dtype.numpy if isinstance(known, Value) else known.dtype


def import_scan(
    state: State, node: NodeProto, inputs: Inputs, scope: Scope, opsets: Mapping[str, int]
) -> Sequence[Known]:
    """`Scan`, unrolled: its length is a static size, or the most that one which depends on data can be. From opset 9 on."""
    context = _context(state, node, inputs, opsets)
    if context.opset < 9:
        if has_counts(inputs, state.sizes.of):
            raise refused(context, "in this opset this op")
        return _scan_of_batches(state, node, inputs, scope, opsets)
    graph = _graph(node, "body")
    number = int(context.attr("num_scan_inputs"))
    carried = list(inputs[: len(inputs) - number])
    sources = [cast(Known, x) for x in inputs[len(inputs) - number :]]
    if number < 1 or len(inputs) < number or any(x is None for x in sources):
        raise InvalidError(f"invalid: {label(node)}: expected {number} scan inputs, got {len(inputs)} inputs in all")
    outputs = len(graph.output) - len(carried)
    axes = _axes(context, "scan_input_axes", [len(_shape(x)) for x in sources])
    lengths = {_shape(x)[axis] for x, axis in zip(sources, axes)}
    if len(lengths) != 1:
        raise InvalidError(f"invalid: {label(node)}: scan inputs have different lengths {sorted(lengths)}")
    (length,) = lengths
    if length > MAX_ITERATIONS:
        raise context.unsupported(f"it runs {length} times, expected at most {MAX_ITERATIONS}")
    count = _scanned_count(context, carried, sources, axes)
    if length == 0:
        shapes = [tuple(d for a, d in enumerate(_shape(x)) if a != axis) for x, axis in zip(sources, axes)]
        turn = [*carried, *(np.zeros(shape, _kind(x)) for shape, x in zip(shapes, sources))]
        items = _body(state, node, graph, turn, scope, opsets)[len(carried) :]
        places = _axes(context, "scan_output_axes", [len(_shape(item)) + 1 for item in items])
        return [*cast(list[Known], carried), *(_empty(item, axis) for item, axis in zip(items, places))]
    backward = context.attr("scan_input_directions", (0,) * number)
    scanned: list[list[Known]] = [[] for _ in range(outputs)]
    for turn_number in range(length):
        items = [
            _item(context, state, x, axis, turn_number, back, count) for x, axis, back in zip(sources, axes, backward)
        ]
        flag = True if count is None else _is_below(context, turn_number, count)
        with checked_where(context, flag):
            results = _body(state, node, graph, [*carried, *items], scope, opsets)
        new = results[: len(carried)]
        if isinstance(flag, Value):
            new = [choose(context, flag, a, cast(Known, b)) for a, b in zip(new, carried)]
        carried = list(new)
        for collected, item in zip(scanned, results[len(carried) :]):
            collected.append(item)
    out_axes = _axes(context, "scan_output_axes", [len(_shape(items[0])) + 1 for items in scanned])
    directions = context.attr("scan_output_directions", (0,) * outputs)
    stacked = [
        _stacked(context, state, items, axis, back, count) for items, axis, back in zip(scanned, out_axes, directions)
    ]
    return [cast(Known, value) for value in carried] + stacked


def _scanned_count(
    context: NodeContext, carried: Inputs, sources: Sequence[Known], axes: Sequence[int]
) -> Count | None:
    """How many elements there are along the axes that a `Scan` goes over, if that depends on data. Raises UnsupportedError
    where not all have that size, or anything else of them depends on data."""
    found = [counts_of(context, x) for x in sources]
    if not any(found) and not has_counts(carried, context.sizes.of):
        return None
    require_inference(context)
    count = found[0].get(axes[0])
    same = count is not None and all(own == {axis: count} for own, axis in zip(found, axes))
    if not same or has_counts(carried, context.sizes.of):
        raise refused(context, "as anything but the axis along which it scans all its inputs this op")
    return count


def _is_below(context: NodeContext, turn: int, count: Count) -> Value:
    return context.b.op("less", [context.b.scalar(turn, DType.I64), count.value])


def _from_the_end(context: NodeContext, places: Value, count: Count) -> Value:
    """Where what stands at some places from the beginning is, counted from the end of the data; 0 for padding."""
    last = context.b.op("sub", [count.value, context.b.scalar(1, DType.I64)])
    return context.b.op("max", [context.b.op("sub", [last, places]), context.b.scalar(0, DType.I64)])


def _item(
    context: NodeContext, state: State, source: Known, axis: int, turn: int, back: int, count: Count | None
) -> Known:
    """What one turn of a `Scan` gets of an input."""
    if not back:
        return _take(state, source, axis, turn)
    if count is None:
        return _take(state, source, axis, _shape(source)[axis] - 1 - turn)
    at = _from_the_end(context, context.b.scalar(turn, DType.I64), count)
    return context.b.op("gather", [cast(Value, source), at], axis=axis)


def _stacked(
    context: NodeContext, state: State, items: Sequence[Known], axis: int, back: int, count: Count | None
) -> Known:
    """A scan output: what the turns gave, in their order or the other way."""
    if count is None:
        return _stack(state, items[::-1] if back else items, axis)
    require_static(context, items)
    found = _stack(state, items, axis)
    if back:
        value = found if isinstance(found, Value) else context.b.constant(found)
        places = context.b.op("iota", [], shape=(len(items),), axis=0, dtype=DType.I64)
        found = context.b.op("gather", [value, _from_the_end(context, places, count)], axis=axis)
    return counted(context, found, axis, Count(count.value, len(items)))


def _scan_of_batches(
    state: State, node: NodeProto, inputs: Inputs, scope: Scope, opsets: Mapping[str, int]
) -> Sequence[Known]:
    """`Scan` of opset 8, unrolled: it scans axis 1 of its inputs for each entry of axis 0, after an optional input of lengths.
    What lies beyond an entry's length is zero in the scan outputs."""
    context = NodeContext(node, opsets[""], inputs, state.builder)
    graph, count = _graph(node, "body"), int(context.attr("num_scan_inputs"))
    carried = [cast(Known, x) for x in inputs[1 : len(inputs) - count]]
    sources = [cast(Known, x) for x in inputs[len(inputs) - count :]]
    if count < 1 or len(inputs) <= count or any(x is None for x in (*carried, *sources)):
        raise InvalidError(f"invalid: {label(node)}: expected {count} scan inputs, got {len(inputs)} inputs in all")
    sizes = {_shape(x)[:2] for x in sources}
    if len(sizes) != 1 or len(next(iter(sizes))) != 2:
        raise InvalidError(f"invalid: {label(node)}: expected scan inputs of one batch and length, got {sorted(sizes)}")
    ((batch, length),) = sizes
    lengths = context.ints(0) if context.has(0) else (length,) * batch
    if len(lengths) != batch or any(not 1 <= each <= length for each in lengths) or sum(lengths) > MAX_ITERATIONS:
        raise context.unsupported(
            f"lengths {list(lengths)}, expected {batch} from 1 to {length}, {MAX_ITERATIONS} in all"
        )
    backward = context.attr("directions", (0,) * count)
    entries: list[list[Known]] = [[] for _ in graph.output]
    for entry, steps in enumerate(lengths):
        states = [_take(state, x, 0, entry) for x in carried]
        rows = [_take(state, x, 0, entry) for x in sources]
        scanned: list[list[Known]] = [[] for _ in range(len(graph.output) - len(states))]
        for step in range(steps):
            items = [_take(state, x, 0, steps - 1 - step if back else step) for x, back in zip(rows, backward)]
            results = _body(state, node, graph, [*states, *items], scope, opsets)
            states = list(results[: len(states)])
            for collected, item in zip(scanned, results[len(states) :]):
                collected.append(item)
        for collected in scanned:
            collected += [_zeros_like(collected[0])] * (length - steps)
        for found, result in zip(entries, [*states, *(_stack(state, items, 0) for items in scanned)]):
            found.append(result)
    return [_stack(state, found, 0) for found in entries]


def _zeros_like(known: Known) -> Known:
    return np.zeros(_shape(known), _kind(known))


def _axes(context: NodeContext, name: str, ranks: Sequence[int]) -> list[int]:
    given = context.attr(name, (0,) * len(ranks))
    if len(given) != len(ranks) or any(not -rank <= axis < rank for axis, rank in zip(given, ranks)):
        raise InvalidError(f"invalid: {label(context.node)}: {name} {list(given)} do not fit ranks {list(ranks)}")
    return [axis % rank for axis, rank in zip(given, ranks)]


def _shape(known: Known) -> tuple[int, ...]:
    return known.type.shape if isinstance(known, Value) else known.shape


def _take(state: State, source: Known, axis: int, place: int) -> Known:
    """Element `place` along an axis, which goes away."""
    if isinstance(source, np.ndarray):
        taken: Array = np.take(source, place, axis)
        return taken
    shape = source.type.shape
    starts = tuple(place if a == axis else 0 for a in range(len(shape)))
    stops = tuple(place + 1 if a == axis else d for a, d in enumerate(shape))
    part = state.builder.op("slice", [source], starts=starts, stops=stops, steps=(1,) * len(shape))
    return state.builder.op("reshape", [part], shape=shape[:axis] + shape[axis + 1 :])


def _stack(state: State, items: Sequence[Known], axis: int) -> Known:
    """The items along a new axis."""
    if all(isinstance(item, np.ndarray) for item in items):
        return np.stack([np.asarray(item) for item in items], axis)
    values = []
    for item in items:
        value = item if isinstance(item, Value) else state.builder.constant(item)
        shape = value.type.shape
        values.append(state.builder.op("reshape", [value], shape=(*shape[:axis], 1, *shape[axis:])))
    return values[0] if len(values) == 1 else state.builder.op("concat", values, axis=axis)


SPECIAL.update({"If": import_if, "Loop": import_loop, "Scan": import_scan})
