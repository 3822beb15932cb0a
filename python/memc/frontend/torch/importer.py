# SPDX-License-Identifier: Apache-2.0
"""An exported PyTorch program to IR: the one function the rest of memc calls."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.build import IRBuilder
from memc.ir.checked_options import require
from memc.ir.core import Function, Role, Value, fresh_names
from memc.ir.errors import InvalidError, MemcError, UnsupportedError, UsageError
from memc.ir.messages import shown
from memc.ir.module import Module
from memc.ir.types import MAX_BYTES, DType, TensorType

from . import ops  # noqa: F401  (register converters)
from .archive import read_archive
from .bindings import bound_input
from .context import Known, State
from .exported import is_exported, read_exported
from .graph import Graph, Input, Output, Weight
from .handles import Handle, Storage, fresh
from .nodes import import_nodes
from .sizes import bound_symbols, evaluated

_log = logging.getLogger("memc")


def import_torch(
    source: Any,
    *,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    bind: Mapping[str, npt.ArrayLike] | None = None,
    trainable: bool = False,
) -> Module:
    """Import an exported program as a module whose `main` takes the program's inputs and returns its results.

    Parameters
    ----------
    source:
        The path of a `.pt2` file, which is read without PyTorch; an `ExportedProgram`; or a `Graph` of either.
    dims:
        Sizes of symbolic dims by the program's symbols. Those that stay open take the sizes of the export's example, with a
        warning.
    input_shapes:
        Whole shapes by input name, which bind the symbols in them.
    bind:
        Inputs that become constants, by name.
    trainable:
        Import for training: parameters that require gradients stay weights under their module's names, and all else is left
        alone; dropout and batch normalization do what they do in training.

    Parameters and buffers are weights under their module's names; a buffer that the program writes to is a state, whose new
    content is assigned at the end. Locations of ops name the module and the user's source line.

    Raises InvalidError, UnsupportedError (naming overload, module and source line) or UsageError, each of one line.
    """
    sizes = dict(require({} if dims is None else dims, Mapping[str, int], "dims"))
    shapes = dict(require({} if input_shapes is None else input_shapes, Mapping[str, Sequence[int]], "input_shapes"))
    given = dict(require({} if bind is None else bind, Mapping[str, Any], "bind"))
    require(trainable, bool, "trainable")
    graph = _graph(source)
    try:
        return _Import(graph, sizes, shapes, given, trainable).module
    except (RecursionError, MemoryError) as error:
        raise InvalidError(f"invalid: program: {type(error).__name__} during import") from error
    except MemcError as error:
        error.args = ("".join(c if c.isprintable() else "?" for c in str(error)),)
        raise


def _graph(source: Any) -> Graph:
    if isinstance(source, Graph):
        return source
    if isinstance(source, (str, PathLike)):
        return read_archive(source)  # type: ignore[arg-type]
    if is_exported(source):
        return read_exported(source)
    raise UsageError(f"source: expected the path of a .pt2 file or an ExportedProgram, got {shown(source)}")


class _Import:
    """One import."""

    def __init__(
        self,
        graph: Graph,
        dims: Mapping[str, int],
        shapes: Mapping[str, Sequence[int]],
        bind: Mapping[str, Any],
        trainable: bool,
    ) -> None:
        self.graph = graph
        self.function = Function([])
        self.module = Module([self.function])
        taken = {i.name for i in graph.inputs} | {i.target for i in graph.inputs} | set(graph.metas)
        builder = IRBuilder(self.module, self.function, self.function.ops, names=fresh_names(taken))
        self.state = State(builder, graph, trainable)
        self.scope: dict[str, Known] = {}
        self.stored: dict[object, Handle] = {}
        self.of_weight: dict[Value, Weight] = {}
        """Values of stored tensors."""
        self.storages: list[tuple[Input, Storage]] = []
        self._bind(dims, shapes, bind)
        for item in graph.inputs:
            self._add(item)
        import_nodes(self.state, graph, self.scope)
        self._return()
        self._prune()
        self.module.constants = {
            w.name
            for w in self.function.params_of(Role.WEIGHT)
            if w not in self.state.statistics and not (w in self.of_weight and self.of_weight[w].trained)
        }

    def _bind(self, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]], bind: Mapping[str, Any]) -> None:
        known = {i.name for i in self.graph.inputs if i.kind == "input"}
        for name in bind:
            if name not in known:
                there = ", ".join(f"`{n}`" for n in sorted(known)) or "none"
                raise UsageError(f"bind: the model has no `{name}`; there are: {there}")
        self.state.symbols = bound_symbols(self.graph, dims, shapes, known)
        for item in self.graph.inputs:
            if item.name in bind and item.kind == "input":
                array = bound_input(item.name, bind[item.name], self._type(item.name))
                self.module.bound[item.name] = array
                self.scope[item.name] = fresh(self.state.b.constant(array))

    def _type(self, name: str) -> TensorType:
        meta = self.graph.metas.get(name)
        if meta is None:
            raise UnsupportedError(
                f"unsupported: input `{name}`: expected a tensor, got a number that varies; export with it fixed"
            )
        if meta.dtype is None:
            raise UnsupportedError(f"unsupported: input `{name}`: elements of type {meta.kind or 'unknown'}")
        type = TensorType(meta.dtype, tuple(evaluated(dim, self.state.symbols) for dim in meta.shape))
        if not type.is_valid or type.span > MAX_BYTES:
            raise InvalidError(f"invalid: input `{name}`: shape {list(type.shape)} is too large")
        return type

    def _add(self, item: Input) -> None:
        """A parameter of the program as what it is in the IR."""
        if item.name in self.scope:
            return
        if item.kind == "value":
            self.scope[item.name] = item.value
            return
        if item.kind != "input":
            self.scope[item.name] = self._stored(item)
            return
        value = Value(item.name, self._type(item.name), role=Role.INPUT)
        self.function.params.append(value)
        self.scope[item.name] = fresh(value)
        self.storages.append((item, self._storage(item.name)))

    def _storage(self, name: str) -> Storage:
        handle = self.scope[name]
        assert isinstance(handle, Handle)
        return handle.storage

    def _stored(self, item: Input) -> Handle:
        """A stored tensor as a weight; tensors that share bytes are one."""
        weight = self.graph.weights.get(item.target)
        if weight is None:
            raise InvalidError(f"invalid: the {item.kind} `{item.target}` is not stored")
        if weight.key not in self.stored:
            array = weight.read()
            type = TensorType(DType.from_numpy(array.dtype), array.shape)
            value = Value(item.target, type, role=Role.WEIGHT)
            self.function.params.append(value)
            self.module.weights[value.name] = array
            self.of_weight[value] = weight
            handle = fresh(value)
            handle.storage.name = item.target
            self.stored[weight.key] = handle
            self.storages.append((item, handle.storage))
        return self.stored[weight.key]

    def _return(self) -> None:
        """The results, and the new contents of states."""
        b, graph = self.state.b, self.graph
        results = [self._result(o) for o in graph.outputs if o.kind == "output"]
        values = [v for v in results if v is not None]
        names = graph.result_names if len(graph.result_names) == len(results) else []
        if names:
            chosen = [n for n, v in zip(names, results) if v is not None]
        else:
            chosen = ["output"] if len(values) == 1 else [f"output_{n}" for n in range(len(values))]
        if not values:
            raise UnsupportedError("unsupported: the program returns no tensor")
        taken = {p.name for p in self.function.params_of(Role.INPUT)} | {
            i.target for i, s in self.storages if s.version
        }
        taken |= {o.target for o in graph.outputs if o.kind != "output"}
        chosen = [n if n not in taken else next(fresh_names(taken, n)) for n in chosen]
        self.function.returns, self.function.result_names = values, chosen
        for output in graph.outputs:
            if output.kind != "output":
                self._mutated(output)
        for item, storage in self.storages:
            if storage.version:
                self._assign(item, storage, b)

    def _result(self, output: Output) -> Value | None:
        """A result as a value; None for one that is none."""
        from .nodes import known_of

        known = known_of(output.arg, self.scope)
        if isinstance(known, Handle):
            return known.read(self.state.b)
        if isinstance(known, (bool, int, float)):
            return self.state.b.constant(np.asarray(known, np.float32 if isinstance(known, float) else None))
        return None

    def _mutated(self, output: Output) -> None:
        """A result that a functional program names as the new content of one of its parameters."""
        from .nodes import known_of

        known = known_of(output.arg, self.scope)
        for item, storage in self.storages:
            name = item.name if output.kind == "input" else item.target
            if name == output.target and isinstance(known, Handle):
                storage.value, storage.version = known.read(self.state.b), storage.version + 1

    def _assign(self, item: Input, storage: Storage, b: IRBuilder) -> None:
        """Make a written buffer a state, and return its new content."""
        if item.kind != "buffer":
            what = {"input": "its input", "parameter": "its parameter"}.get(item.kind, "the constant")
            raise UnsupportedError(f"unsupported: the module writes to {what} `{item.target or item.name}` in place")
        state = next(p for p in self.function.params if p.name == item.target)
        if self.state.trainable:
            if state not in self.state.statistics and state.type.dtype.is_float:
                raise UnsupportedError(
                    f"unsupported: the module writes to its buffer `{item.target}` while it trains; "
                    "only batch normalization's running statistics may be"
                )
            return
        if storage.value is state:
            return
        state.role = Role.STATE
        self.function.returns.append(b.op("assign", [state, storage.value]))
        self.function.result_names.append(state.name)

    def _prune(self) -> None:
        """Drop ops and weights that no result needs."""
        function = self.function
        read = {id(v) for v in function.returns}
        kept = []
        for op in reversed(function.ops):
            if any(id(r) in read for r in op.results):
                read |= {id(v) for v in op.operands}
                kept.append(op)
        function.ops[:] = reversed(kept)
        function.params = [p for p in function.params if p.role is not Role.WEIGHT or id(p) in read]
        roles = (Role.WEIGHT, Role.STATE)
        self.module.weights = {p.name: self.module.weights[p.name] for p in function.params if p.role in roles}
