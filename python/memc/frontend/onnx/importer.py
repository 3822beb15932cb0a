# SPDX-License-Identifier: Apache-2.0
"""ONNX to IR: the one function the rest of memc calls."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import onnx

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Amount, require
from memc.ir.core import Array, Function, Role, Value, fresh_names
from memc.ir.data_dependent_extents import Extent
from memc.ir.errors import InvalidError, MemcError, UsageError
from memc.ir.messages import shown
from memc.ir.module import Module
from memc.ir.types import TensorType

from . import control_flow, data_dependent_shapes, data_dependent_sums, ops  # noqa: F401  (register importers)
from .constant_weights import store_constants, warn_of_constants
from .context import Known
from .data_dependent_sizes import Sizes
from .graph_walk import Scope, State, add_initializers, import_graph
from .load import Source, Store, load
from .separate_weights import separate
from .signature import bind_shapes, bound_array, declared, numbers

_log = logging.getLogger("memc")


def import_onnx(
    source: Source,
    *,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    bind: Mapping[str, npt.ArrayLike] | None = None,
    trainable: bool = False,
    max_size: int | None = None,
) -> Module:
    """Import an ONNX model as a module whose `main` takes the model's inputs and returns its outputs.

    Parameters
    ----------
    source:
        A path, the bytes of a model, or a `ModelProto` (which is not changed). Tensors in external files are
        memory-mapped, never read here; only a model given by its path may have them.
    dims:
        Sizes of symbolic dims by name.
    input_shapes:
        Whole shapes by input name; they also bind the symbols in them. Dims without a name or of size -1 are unknown
        and bound this way; a size of 0 is one, but may be given otherwise. If only leading dims (the batch) stay open, they become 1 and a warning is
        logged to the logger `memc`; any other open dim is an error that lists all of them.
    bind:
        Inputs that become constants, by name: an array of the input's shape, or a scalar that fills it, cast to the
        input's element type. An input of unknown shape takes the array's.
    trainable:
        Import for training: stored floats stay weights under their names, nothing is computed from them, batch
        normalization stays an op, tensors that were joined for their equal contents are separate again
        (`separate_weights.py`), and Constant nodes are weights of a model that stores none (`constant_weights.py`). Dropout with a ratio becomes `dropout`, whatever its training mode: with a constant seed, for
        `build-gradient` to replace, and a stream of its own.

    max_size:
        The most elements that a size that depends on data, such as the number of boxes that NonMaxSuppression chooses, will
        have; None: as many as there can be.

    Nodes whose inputs are all known are evaluated here, `Shape` of anything is known, `If` with a known condition is
    replaced by its branch, functions (the model's, and those by which the standard defines operators without a
    direct import) are expanded, and nodes that no output needs are left out. Values keep their ONNX names where
    those are free; `main.result_names` are the outputs' names.

    Raises InvalidError, UnsupportedError (naming node and op) or UsageError, each of one line.
    """
    sizes = dict(require({} if dims is None else dims, Mapping[str, int], "dims"))
    shapes = dict(require({} if input_shapes is None else input_shapes, Mapping[str, Sequence[int]], "input_shapes"))
    given = require({} if bind is None else bind, Mapping[str, Any], "bind")
    bound: dict[str, npt.ArrayLike] = {name: numbers(name, value) for name, value in given.items()}
    require(trainable, bool, "trainable")
    require(max_size, Optional[Amount], "max_size")
    if not isinstance(source, (str, PathLike, bytes, onnx.ModelProto)):
        raise UsageError(f"source: expected a path, the bytes of a model or a ModelProto, got {shown(source)}")
    with _import_errors():
        model, store = load(source)
        if trainable:
            stored = store_constants(model)
            warn_of_constants(model, stored)
            model = separate(stored)
        return _import(model, store, sizes, shapes, bound, trainable, max_size)


@contextmanager
def _import_errors() -> Iterator[None]:
    """Whatever goes wrong with a corrupt model, as an error of one line."""
    try:
        yield
    except (RecursionError, MemoryError) as error:
        raise InvalidError(f"invalid: model: {type(error).__name__} during import") from error
    except MemcError as error:
        # Names in a corrupt file may hold anything; the message stays one line.
        error.args = ("".join(c if c.isprintable() else "?" for c in str(error)),)
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        what = (str(error).strip() or "no message").splitlines()[0][:300]
        raise InvalidError(f"invalid: model: {type(error).__name__}: {what}") from error


def _import(
    model: onnx.ModelProto,
    store: Store,
    dims: dict[str, int],
    input_shapes: dict[str, Sequence[int]],
    bind: dict[str, npt.ArrayLike],
    trainable: bool,
    max_size: int | None,
) -> Module:
    graph = model.graph
    function = Function([])
    module = Module([function])
    names = {name for node in graph.node for name in node.output} | {i.name for i in graph.input}
    used: set[str] = set()
    builder = IRBuilder(module, function, function.ops, names=_fresh(names | {t.name for t in graph.initializer}, used))
    functions = {("" if f.domain == "ai.onnx" else f.domain, f.name, f.overload): f for f in model.functions}
    state = State(
        builder, store, functions, used, producer=model.producer_name, trainable=trainable, sizes=Sizes(max_size)
    )
    scope = Scope()
    add_initializers(state, graph, scope)
    _add_inputs(state, graph, scope, dims, input_shapes, bind)
    opsets = {"" if o.domain == "ai.onnx" else o.domain: int(o.version) for o in model.opset_import}
    results = import_graph(state, graph, scope, opsets)
    _add_outputs(state, graph, results)
    _add_counts(state)
    _prune(module)
    _count_runs(state)
    _unique_names(module)
    module.constants = {w.name for w in function.params_of(Role.WEIGHT) if w not in state.parameters}
    return module


def _fresh(taken: set[str], used: set[str]) -> Iterator[str]:
    number = 0
    while True:
        name = str(number)
        number += 1
        if name not in taken and name not in used:
            used.add(name)
            yield name


def _add_inputs(
    state: State,
    graph: onnx.GraphProto,
    scope: Scope,
    dims: dict[str, int],
    input_shapes: dict[str, Sequence[int]],
    bind: dict[str, npt.ArrayLike],
) -> None:
    """Parameters for the inputs that are neither stored nor bound."""
    seen = set()
    for info in graph.input:
        if not info.name or info.name in seen:
            raise InvalidError(f"invalid: graph input `{info.name}` has no name or is declared twice")
        seen.add(info.name)
    inputs = [declared(info, "input") for info in graph.input if info.name not in scope.stored]
    types = bind_shapes(inputs, dims, input_shapes, bind)
    for item in inputs:
        type = types[item.name]
        if item.name in bind:
            array = bound_array(item.name, bind[item.name], type)
            scope.values[item.name] = state.builder.module.bound[item.name] = array
            continue
        state.names.add(item.name)
        value = Value(item.name, type, role=Role.INPUT)
        state.builder.function.params.append(value)
        scope.values[item.name] = value


def _count_runs(state: State) -> None:
    """Have a run move the counter by one, if anything draws by it."""
    b = state.builder
    if state.counter is None:
        return
    if all(state.counter not in op.operands for op in b.ops):
        b.function.params.remove(state.counter)
        return
    b.module.weights[state.counter.name] = np.array(0, np.int64)
    more = b.op("add", [state.counter, b.scalar(1, state.counter.type.dtype)])
    b.function.returns.append(b.op("assign", [state.counter, more]))
    b.function.result_names.append(state.counter.name)


def _add_outputs(state: State, graph: onnx.GraphProto, results: Sequence[Known]) -> None:
    """Return the results under the outputs' names. Raises InvalidError where a declared type contradicts one."""
    function = state.builder.function
    names = [o.name for o in graph.output]
    if not names:
        raise InvalidError("invalid: the graph has no outputs")
    open_inputs = any(d.dim_value <= 0 for i in graph.input for d in i.type.tensor_type.shape.dim)
    for info, result in zip(graph.output, results):
        if names.count(info.name) > 1:
            raise InvalidError(f"invalid: graph output `{info.name}` is declared {names.count(info.name)} times")
        if result is None:
            raise InvalidError(f"invalid: graph output `{info.name}` has no value")
        value = result if isinstance(result, Value) else _constant(state, result, info.name)
        _check_output(info, value.type, state.sizes.of.get(value, {}), open_inputs)
        function.returns.append(value)
        function.result_names.append(info.name)


def _add_counts(state: State) -> None:
    """Return the counts of sizes that depend on data: those of results, and those that may exceed what there is room for."""
    function, sizes = state.builder.function, state.sizes
    cuts: dict[Value, list[tuple[int, int]]] = {}
    most: dict[Value, int] = {}
    for number, value in enumerate(function.returns):
        for axis, count in sizes.of.get(value, {}).items():
            cuts.setdefault(count.value, []).append((number, axis))
            most[count.value] = count.most
    most.update(sizes.checks)
    names = {*function.result_names, *(p.name for p in function.params)}
    for value, room in most.items():
        stem = next((function.result_names[number] for number, _ in cuts.get(value, [])), None)
        if stem is None:
            stem = value.op.location if value.op is not None and value.op.location else value.name
        name = f"{stem}.count" if f"{stem}.count" not in names else next(fresh_names(names, f"{stem}.count"))
        names.add(name)
        function.extents.append(Extent(len(function.returns), room, tuple(cuts.get(value, ()))))
        function.returns.append(value)
        function.result_names.append(name)


def _constant(state: State, array: Array, name: str) -> Value:
    if id(array) not in state.constants:
        state.constants[id(array)] = (array, state.builder.constant(array, name))
    return state.constants[id(array)][1]


def _check_output(info: onnx.ValueInfoProto, type: TensorType, counted: Collection[int], open_inputs: bool) -> None:
    """`counted`: the axes whose size depends on data, of which nothing is checked."""
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.elem_type:
        return
    want = declared(info, "output")
    shape = want.shape if want.shape is not None else type.shape
    sizes = [None if axis in counted else size for axis, size in enumerate(shape)]
    fits = len(shape) == type.rank and all(not isinstance(d, int) or d in (0, s) for d, s in zip(sizes, type.shape))
    if want.dtype is type.dtype and fits:
        return
    text = f"{want.dtype.value}[{','.join('?' if d is None else str(d) for d in shape)}]"
    if want.dtype is type.dtype and open_inputs:
        # Exporters often write the sizes they traced with although the inputs are open.
        _log.warning("graph output `%s` is declared %s, but is %s for these inputs", info.name, text, type)
        return
    raise InvalidError(f"invalid: graph output `{info.name}`: declared {text}, but the ops make {type}")


def _prune(module: Module) -> None:
    """Drop ops and weights that no result needs, such as what only an untaken branch read."""
    function = module.main
    read = {id(v) for v in function.returns}
    kept = []
    for op in reversed(function.ops):
        if any(id(r) in read for r in op.results):
            read |= {id(v) for v in op.operands}
            kept.append(op)
    function.ops[:] = reversed(kept)
    function.params = [p for p in function.params if p.role is not Role.WEIGHT or id(p) in read]
    module.weights = {p.name: module.weights[p.name] for p in function.params if p.role is Role.WEIGHT}


def _unique_names(module: Module) -> None:
    """Rename weights and results whose names clash; inputs keep theirs."""
    function = module.main
    taken = {p.name for p in function.params_of(Role.INPUT)}
    ordered = [p for p in function.params if p.role is Role.WEIGHT] + [r for op in function.ops for r in op.results]
    stems: dict[str, int] = {}
    all_names = taken | {v.name for v in ordered}
    for value in ordered:
        old = value.name
        while value.name in taken:
            stems[old] = stems.get(old, 0) + 1
            candidate = f"{old}.{stems[old]}"
            value.name = candidate if candidate not in all_names else value.name
        taken.add(value.name)
        if value.role is Role.WEIGHT and value.name != old:
            module.weights[value.name] = module.weights.pop(old)
