# SPDX-License-Identifier: Apache-2.0
"""Walking graphs, subgraphs and function bodies node by node."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Role, Value
from memc.ir.errors import InvalidError, MemcError, OpError, UnsupportedError
from memc.ir.types import DType, TensorType

from .context import Known, NodeContext, importer_of
from .data_dependent_axes import has_counts, import_counted
from .data_dependent_sizes import Sizes
from .folding import fold
from .load import MAX_BYTES, Store
from .node_order import needed
from .schema import check, domain_of, function_body, label, schema, substitute
from .stored_constants import is_parameter

COUNTER = "random.counter"
"""The state that counts runs, for ops that draw at random."""

MAX_DEPTH = 40
"""Functions and subgraphs nested deeper than this are taken for endless recursion."""
MAX_NODES = 500_000
"""Nodes imported in all, repeated expansions counted: the bound on functions that multiply."""


@dataclass
class Scope:
    """Names visible in a graph, and those of the graphs around it."""

    parent: Scope | None = None
    values: dict[str, Known | None] = field(default_factory=dict)
    """None: an optional input of a function that was left out."""
    stored: dict[str, Callable[[], Known]] = field(default_factory=dict)
    """Initializers that nobody has read yet."""

    def get(self, name: str) -> Known | None:
        """Raises KeyError for a name that is not visible."""
        if name not in self.values and name in self.stored:
            self.values[name] = self.stored[name]()
        if name in self.values:
            return self.values[name]
        if self.parent is None:
            raise KeyError(name)
        return self.parent.get(name)


@dataclass
class State:
    """One import: what all scopes share."""

    builder: IRBuilder
    store: Store
    functions: Mapping[tuple[str, str, str], FunctionProto]
    """Functions local to the model by domain, name and overload."""
    names: set[str]
    """Value names in use."""
    constants: dict[int, tuple[Array, Value]] = field(default_factory=dict)
    """Values made of known arrays, by the array's identity: each becomes one weight however often it is read."""
    producer: str = ""
    """What wrote the model."""
    trainable: bool = False
    """Whether stored floats become weights that can be trained, rather than data known at import."""
    parameters: set[Value] = field(default_factory=set)
    """Those weights."""
    streams: Iterator[int] = field(default_factory=itertools.count)
    """Numbers for ops that draw at random: bodies that are imported more than once get new ones each time."""
    counter: Value | None = None
    """The counter of runs, if something draws by it."""
    sizes: Sizes = field(default_factory=Sizes)
    """The sizes that depend on data."""
    depth: int = 0
    nodes: int = 0

    def runs(self) -> Value:
        """The counter of runs, which ops that draw at random share: a state, or a constant that training replaces."""
        if self.trainable:
            return self.builder.scalar(0, DType.I64)
        if self.counter is None:
            if COUNTER in self.names:
                raise UnsupportedError(
                    f"random ops need the name `{COUNTER}` for a state, but the model has a tensor of it"
                )
            self.names.add(COUNTER)
            self.counter = Value(COUNTER, TensorType(DType.I64, ()), role=Role.STATE)
            self.builder.function.params.append(self.counter)
        return self.counter


def add_initializers(state: State, graph: GraphProto, scope: Scope) -> None:
    """Make a graph's stored tensors visible, which are read when first used. Raises InvalidError for a name given twice."""

    def add(name: str, read: Callable[[], Array]) -> None:
        if name in scope.stored:
            raise InvalidError(f"invalid: graph `{graph.name}`: initializer `{name}` is stored twice")
        scope.stored[name] = (lambda: _as_weight(state, name, read())) if state.trainable else read

    def dense(tensor: TensorProto) -> Callable[[], Array]:
        return lambda: state.store.array(tensor)

    def sparse(tensor: onnx.SparseTensorProto) -> Callable[[], Array]:
        return lambda: state.store.dense(tensor)

    for tensor in graph.initializer:
        add(tensor.name, dense(tensor))
    for item in graph.sparse_initializer:
        add(item.values.name, sparse(item))


def _as_weight(state: State, name: str, array: Array) -> Known:
    """A parameter as a weight, whatever its size; other data as it is."""
    if not is_parameter(state.producer, name, array):
        return array
    value = Value(name, TensorType(DType.from_numpy(array.dtype), array.shape), role=Role.WEIGHT)
    state.parameters.add(value)
    state.builder.function.params.append(value)
    state.builder.module.weights[name] = array
    return value


def import_graph(state: State, graph: GraphProto, scope: Scope, opsets: Mapping[str, int]) -> list[Known]:
    """Import what the graph's outputs need; returns those."""
    taken = set(scope.stored) | set(scope.values)
    for node in needed(graph.node, [o.name for o in graph.output], taken):
        import_node(state, node, scope, opsets)
    results = []
    for output in graph.output:
        results.append(_read(scope, output.name, f"graph `{graph.name}`: output"))
    return results


def import_node(state: State, node: NodeProto, scope: Scope, opsets: Mapping[str, int]) -> None:
    """Import one node and name its results. Every error names the node and its op."""
    state.nodes += 1
    if state.nodes > MAX_NODES:
        raise InvalidError(f"invalid: {label(node)}: more than {MAX_NODES} nodes after expanding functions")
    inputs = [_read(scope, name, f"{label(node)}: input") if name else None for name in node.input]
    outer = state.builder.location
    mark = len(state.builder.ops)
    state.builder.location = node.name or next((o for o in node.output if o), None)
    try:
        results = _import(state, node, inputs, scope, opsets)
    except OpError as error:
        raise OpError(f"invalid: {label(node)}: {error}") from error
    except MemcError:
        raise
    except Exception as error:
        what = (str(error).strip() or "no message").splitlines()[0][:300]
        raise InvalidError(f"invalid: {label(node)}: cannot be imported: {type(error).__name__}: {what}") from error
    finally:
        state.builder.location = outer
    if len(results) > len(node.output):
        results = results[: len(node.output)]
    for name, result in zip(node.output, results):
        if name:
            scope.values[name] = result
            if isinstance(result, Value):
                _name(state, result, name, mark)


def _name(state: State, value: Value, name: str, mark: int) -> None:
    """Give a value that the node just made the node's output name, if that is free."""
    if value.type.span > MAX_BYTES:
        raise InvalidError(f"invalid: output `{name}`: {value.type} is larger than 1 TiB")
    made_now = value.op is not None and any(value.op is op for op in state.builder.ops[mark:])
    if made_now and value.name.isdigit() and name not in state.names:
        state.names.add(name)
        value.name = name


def _read(scope: Scope, name: str, where: str) -> Any:
    try:
        return scope.get(name)
    except KeyError:
        raise InvalidError(
            f"invalid: {where} `{name}` is not defined: no node, graph input or initializer has this name"
        ) from None


def _import(
    state: State, node: NodeProto, inputs: list[Known | None], scope: Scope, opsets: Mapping[str, int]
) -> Sequence[Known | None]:
    domain = domain_of(node)
    local = state.functions.get((domain, node.op_type, node.overload))
    if local is not None:
        return _expand(state, node, local, inputs, opsets)
    if domain not in opsets:
        raise InvalidError(f"invalid: {label(node)}: the model imports no version of domain `{domain or 'ai.onnx'}`")
    opset = opsets[domain]
    if domain == "":
        check(node, opset, domain)
        special = SPECIAL.get(node.op_type)
        if special is not None and (node.op_type in TAKE_COUNTS or not has_counts(inputs, state.sizes.of)):
            found = special(state, node, inputs, scope, opsets)
            if found is not None:
                return found
    importer = importer_of(node.op_type, domain)
    if all(x is None or isinstance(x, np.ndarray) for x in inputs):
        arrays = [x if isinstance(x, np.ndarray) else None for x in inputs]
        folded = fold(node, domain, opset, arrays, importer)
        if folded is not None:
            return folded
    shared = (state.trainable, state.constants, state.streams, state.sizes, state.runs)
    context = NodeContext(node, opset, list(inputs), state.builder, *shared)
    if importer is None and node.op_type in SPECIAL and has_counts(inputs, state.sizes.of):
        return import_counted(context, lambda _: [], lambda _: None)
    if importer is None:
        body = _body(node, opset, domain, context)
        if body is not None:
            return _expand(state, node, body, inputs, opsets)
        known = domain in ("", "ai.onnx.ml") and schema(node.op_type, opset, domain) is not None
        full = f"{domain}::{node.op_type}" if domain else node.op_type
        why = "this op is not supported yet" if known else f"unknown op {full} in opset {opset}"
        raise context.unsupported(why)
    mark = len(state.builder.ops)
    if has_counts(inputs, state.sizes.of) or has_counts(inputs, state.sizes.numbers):
        return import_counted(context, importer, lambda known: fold(node, domain, opset, known, importer))
    try:
        return importer(context)
    except UnsupportedError:
        # The standard's own definition may do what the direct import cannot.
        body = _body(node, opset, domain, context)
        if body is None:
            raise
        _undo(state, mark)
        try:
            return _expand(state, node, body, inputs, opsets)
        except MemcError:
            _undo(state, mark)
        raise


def _undo(state: State, mark: int) -> None:
    """Drop the ops from `mark` on, and the constants among them."""
    dropped = {id(op) for op in state.builder.ops[mark:]}
    del state.builder.ops[mark:]
    for key in [k for k, (_, value) in state.constants.items() if id(value.op) in dropped]:
        del state.constants[key]


def _body(node: NodeProto, opset: int, domain: str, context: NodeContext) -> FunctionProto | None:
    types = []
    for index, known in enumerate(context.inputs):
        proto = onnx.TypeProto()
        if known is not None:
            dtype, shape = context.type(index).dtype.numpy, context.type(index).shape
            proto = onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(dtype), shape)
        types.append(proto)
    return function_body(node, opset, domain, types)


def _expand(
    state: State, node: NodeProto, body: FunctionProto, inputs: list[Known | None], opsets: Mapping[str, int]
) -> list[Known | None]:
    """Import a function's body in the place of the node; None stands for an output that the node leaves out."""
    if len(inputs) > len(body.input):
        raise InvalidError(f"invalid: {label(node)}: expected at most {len(body.input)} inputs, got {len(inputs)}")
    scope = Scope()
    for index, name in enumerate(body.input):
        scope.values[name] = inputs[index] if index < len(inputs) else None
    versions = dict(opsets)
    versions.update({"" if o.domain == "ai.onnx" else o.domain: o.version for o in body.opset_import})
    if len(node.output) > len(body.output):
        raise InvalidError(
            f"invalid: {label(node)}: expected at most {len(body.output)} outputs, got {len(node.output)}"
        )
    # A body need not define an output that the node leaves out.
    formal = [inner if outer else "" for inner, outer in zip(body.output, node.output)]
    enter(state, node)
    for inner in needed(substitute(body, node), [name for name in formal if name], set(scope.values)):
        import_node(state, inner, scope, versions)
    state.depth -= 1
    return [_read(scope, name, f"{label(node)}: function output") if name else None for name in formal]


def enter(state: State, node: NodeProto) -> None:
    """Count a level of nesting; the caller lowers `state.depth` when it leaves. Raises InvalidError past MAX_DEPTH."""
    state.depth += 1
    if state.depth > MAX_DEPTH:
        raise InvalidError(f"invalid: {label(node)}: functions or subgraphs nested deeper than {MAX_DEPTH}")


def _shape(
    state: State, node: NodeProto, inputs: list[Known | None], scope: Scope, opsets: Mapping[str, int]
) -> list[Known]:
    """`Shape` and `Size`: known for every value, as all shapes are static."""
    known = inputs[0]
    if known is None:
        raise InvalidError(f"invalid: {label(node)}: input 0 is missing")
    shape = known.type.shape if isinstance(known, Value) else known.shape
    if node.op_type == "Size":
        return [np.asarray(np.prod(shape, dtype=np.int64))]
    context = NodeContext(node, opsets[""], inputs, state.builder)
    rank = len(shape)
    start, end = int(context.attr("start", 0)), int(context.attr("end", rank))
    start, end = (min(max(v + rank if v < 0 else v, 0), rank) for v in (start, end))
    return [np.asarray(shape[start:end], np.int64)]


def _constant(
    state: State, node: NodeProto, inputs: list[Known | None], scope: Scope, opsets: Mapping[str, int]
) -> list[Known]:
    if len(node.attribute) != 1:
        raise InvalidError(f"invalid: {label(node)}: expected exactly one attribute, got {len(node.attribute)}")
    attribute = node.attribute[0]
    if attribute.name == "value":
        return [state.store.array(attribute.t)]
    if attribute.name == "sparse_value":
        return [state.store.dense(attribute.sparse_tensor)]
    if attribute.name in ("value_string", "value_strings"):
        raise UnsupportedError(f"unsupported: {label(node)}: string tensors")
    dtype = np.float32 if attribute.name.startswith("value_float") else np.int64
    return [np.asarray(onnx.helper.get_attribute_value(attribute), dtype)]


def _identity(
    state: State, node: NodeProto, inputs: list[Known | None], scope: Scope, opsets: Mapping[str, int]
) -> list[Known] | None:
    return [inputs[0]] if inputs[0] is not None else None


def _optional(
    state: State, node: NodeProto, inputs: list[Known | None], scope: Scope, opsets: Mapping[str, int]
) -> list[Known] | None:
    """Optionals of tensors are the tensors themselves, left out or not."""
    held = inputs[0] if inputs else None
    if node.op_type == "OptionalHasElement":
        return [np.asarray(held is not None)]
    return None if held is None else [held]


Special = Callable[[State, NodeProto, list[Union[Known, None]], Scope, Mapping[str, int]], Union[Sequence[Known], None]]
"""Imports a node with the scope and operator-set versions around it; None leaves it to the ordinary importer."""

SPECIAL: dict[str, Special] = {"Shape": _shape, "Size": _shape, "Constant": _constant, "Identity": _identity}
SPECIAL.update({op: _optional for op in ("Optional", "OptionalGetElement", "OptionalHasElement")})
"""Ops that need more than a NodeContext, or whose result is always known. `control_flow` adds those with subgraphs."""
TAKE_COUNTS = frozenset({"Identity", "Scan"})
"""Of these, what looks after sizes that depend on data by itself."""
