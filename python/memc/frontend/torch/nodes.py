# SPDX-License-Identifier: Apache-2.0
"""Walking the nodes of a program: converters, in-place overloads, and bodies of higher-order ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memc.ir.core import Value
from memc.ir.errors import InvalidError, MemcError, OpError
from memc.ir.ops.shared.casts import cast

from .context import Converter, Known, NodeContext, State, converter_of
from .graph import LITERAL, Graph, Meta, Node, Ref
from .handles import Handle, fresh

REFUSED = {
    "aten.nonzero": "its result's size depends on data",
    "aten.masked_select": "its result's size depends on data",
    "aten.item": "a number that depends on data decides something",
    "aten._local_scalar_dense": "a number that depends on data decides something",
    "aten.unique": "its result's size depends on data",
    "aten._unique2": "its result's size depends on data",
    "aten.bincount": "its result's size depends on data",
    "higher_order.cond": "control flow that depends on data",
    "higher_order.while_loop": "control flow that depends on data",
    "aten.view_as_complex": "complex numbers",
    "aten.view_as_real": "complex numbers",
    "aten.complex": "complex numbers",
    "aten.polar": "complex numbers",
    "aten.to_sparse": "sparse tensors",
}
"""Why overloads are refused that memc cannot have."""

NOTHING = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range_for_size.default",
        "aten.sym_constrain_range.default",
        "aten._assert_scalar.default",
        "aten._assert_async.msg",
        "aten._assert_async.default",
        "higher_order.print",
        "_exit_autocast",
        "_enter_autocast",
        "inductor.check_bounds",
    }
)
"""Targets that compute nothing."""

SHAPES = frozenset(
    f"aten.{name}"
    for name in ("squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "t.default", "transpose.int")
)
"""Overloads whose variants in place move nothing: the tensor is another view from then on."""

MAX_DEPTH = 20
"""Bodies of higher-order ops nested deeper than this are refused."""


def known_of(arg: Any, scope: Mapping[str, Known]) -> Any:
    """An argument with names replaced. Raises InvalidError for a name that is not defined."""
    if isinstance(arg, Ref):
        if arg.name not in scope:
            raise InvalidError(f"invalid: program: `{arg.name}` is not defined")
        return scope[arg.name]
    return [known_of(item, scope) for item in arg] if isinstance(arg, (list, tuple)) else arg


def import_nodes(state: State, graph: Graph, scope: dict[str, Known], depth: int = 0) -> None:
    """Import a graph's nodes into a scope. Every error names the node, its module and source line."""
    for node in graph.nodes:
        context = NodeContext(node, state, scope, graph.metas)
        outer, state.b.location = state.b.location, str(node.location) or node.name
        mark = len(state.b.ops)
        try:
            result = _import(context, depth)
        except OpError as error:
            raise OpError(f"invalid: {context.label()}: {error}") from error
        except MemcError:
            raise
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, AssertionError) as error:
            what = (str(error).strip() or "no message").splitlines()[0][:200]
            raise InvalidError(
                f"invalid: {context.label()}: cannot be imported: {type(error).__name__}: {what}"
            ) from error
        finally:
            state.b.location = outer
        _define(context, result, mark)


def _define(context: NodeContext, result: Any, mark: int) -> None:
    """Name a node's results."""
    node = context.node
    if node.packed or len(node.results) == 1 and not isinstance(result, (list, tuple)):
        found = [result]
    else:
        found = list(result) if isinstance(result, (list, tuple)) else [result]
    for name, known in zip(node.results, found):
        if name is None:
            continue
        handles = _handles(known)
        context.scope[name] = handles
        if isinstance(handles, Handle):
            value = handles.read(context.b)
            _check(context, name, value, context.metas.get(name))
            taken = context.node.target == "operator.getitem"
            made_now = value.op is not None and (taken or any(value.op is op for op in context.b.ops[mark:]))
            if made_now and value.name.isdigit():
                value.name = _free_name(context, name)


def _free_name(context: NodeContext, name: str) -> str:
    """The node's name, made unique where a body is imported more than once."""
    used = context.state.names
    count = used.get(name, 0)
    used[name] = count + 1
    return name if not count else f"{name}.{count}"


def _handles(known: Any) -> Any:
    if isinstance(known, Value):
        return fresh(known)
    return [_handles(item) for item in known] if isinstance(known, (list, tuple)) else known


def _check(context: NodeContext, name: str, value: Value, meta: Meta | None) -> None:
    """Raise unless a result is of the type that the program says, as far as that is fixed."""
    if meta is None or meta.dtype is None:
        return
    fixed = len(meta.shape) == value.type.rank and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(meta.shape, value.type.shape)
    )
    if meta.dtype is not value.type.dtype or not fixed:
        want = f"{meta.dtype.value}[{','.join('?' if not isinstance(d, int) else str(d) for d in meta.shape)}]"
        raise context.invalid(f"result `{name}`: the program says {want}, the import makes {value.type}")


def _import(context: NodeContext, depth: int) -> Any:
    node = context.node
    if node.target in NOTHING:
        return None
    if node.target == LITERAL:
        return context.b.constant(node.args["value"])
    if node.target == "operator.getitem":
        source, index = (context.resolved(arg) for arg in node.args.values())
        return source[index]
    if node.target in ("higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast"):
        return _inline(context, depth)
    converter = converter_of(node.target)
    if converter is not None:
        return _converted(context, converter)
    functional = _functional(node.target)
    converter = converter_of(functional) if functional else None
    if converter is not None and functional:
        return _converted(context, converter) if functional in SHAPES else _in_place(context, functional)
    short = node.target.rpartition(".")[0] or node.target
    why = REFUSED.get(short.removesuffix("_")) or REFUSED.get(node.target)
    raise context.unsupported(why or "memc has no converter of this overload")


def _converted(context: NodeContext, converter: Converter) -> Any:
    """What a converter makes of a node. Raises UnsupportedError for a tensor that it passed over."""
    result = converter(context)
    name = context.unread()
    if name is not None:
        raise context.unsupported(f"memc has no meaning for its argument `{name}`")
    return result


def _functional(target: str) -> str | None:
    """The overload without writing in place, such as `aten.add.Tensor` of `aten.add_.Tensor`."""
    parts = target.split(".")
    if len(parts) == 3 and parts[1].endswith("_") and not parts[1].endswith("__"):
        return f"{parts[0]}.{parts[1][:-1]}.{parts[2]}"
    return None


def _in_place(context: NodeContext, functional: str) -> Handle:
    """What an overload computes, written to its first argument."""
    converter = converter_of(functional)
    assert converter is not None
    name = next(iter(context.node.args))
    target = context.handle(name)
    node = Node(context.node.name, functional, context.node.args, context.node.results, context.node.location)
    result = _converted(NodeContext(node, context.state, context.scope, context.metas), converter)
    write(context, target, context.read(result))
    return target


def write(context: NodeContext, target: Handle, value: Value) -> None:
    """Write a value to a tensor, broadcast and cast to that one's type. Raises UnsupportedError where memc cannot."""
    b, type = context.b, target.read(context.b).type
    value = cast(b, value, type.dtype)
    if value.type.shape != type.shape:
        value = b.op("broadcast", [value], shape=type.shape)
    if not target.write(b, value):
        raise context.unsupported("it writes in place to a view that memc cannot write to, such as an expanded tensor")


def _inline(context: NodeContext, depth: int) -> Any:
    """The body of a region without gradients, or without autocast, in the place of the node."""
    if depth >= MAX_DEPTH:
        raise context.unsupported(f"regions nested deeper than {MAX_DEPTH}")
    args = list(context.node.args.values())
    position = next(n for n, arg in enumerate(args) if isinstance(arg, Graph))
    if context.node.target.endswith("autocast") and args[2] and args[0] != "cpu":
        raise context.unsupported("autocast inside of the program; export without it, and use the option precision")
    body: Graph = args[position]
    scope: dict[str, Known] = dict(
        zip((i.name for i in body.inputs), (context.resolved(arg) for arg in args[position + 1 :]))
    )
    import_nodes(context.state, body, scope, depth + 1)
    stops = context.trainable and context.node.target.endswith("grad_enabled") and args[0] is False
    results = [known_of(output.arg, scope) for output in body.outputs]
    if len(results) == 1 and isinstance(results[0], list):
        results = results[0]
    return [_stopped(context, known) if stops else known for known in results]


def _stopped(context: NodeContext, known: Any) -> Any:
    """A result through which no gradient flows."""
    from .ops.conversion import without_gradient

    return without_gradient(context, known) if isinstance(known, Handle) else known
