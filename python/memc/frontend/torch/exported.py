# SPDX-License-Identifier: Apache-2.0
"""Programs in memory: an `ExportedProgram`, or the graph of an `fx.GraphModule`, as a `Graph`.

PyTorch is not imported: whoever has such an object has it already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from memc.ir.core import Array
from memc.ir.errors import UnsupportedError
from memc.ir.types import DType

from .graph import LITERAL, Arg, Dim, Graph, Input, Location, Meta, Node, Output, Ref, Weight
from .sizes import parse_size
from .stack_traces import user_line, without_local

_DTYPES = {
    "torch.float64": DType.F64,
    "torch.float32": DType.F32,
    "torch.float16": DType.F16,
    "torch.bfloat16": DType.BF16,
    "torch.int64": DType.I64,
    "torch.int32": DType.I32,
    "torch.int16": DType.I16,
    "torch.int8": DType.I8,
    "torch.uint64": DType.U64,
    "torch.uint32": DType.U32,
    "torch.uint16": DType.U16,
    "torch.uint8": DType.U8,
    "torch.bool": DType.BOOL,
}


def is_exported(source: object) -> bool:
    """Whether an object is an `ExportedProgram`."""
    return type(source).__name__ == "ExportedProgram" and type(source).__module__.startswith("torch.export")


def dtype_of(dtype: object) -> DType | None:
    """memc's element type for PyTorch's; None for one that memc has not."""
    return _DTYPES.get(str(dtype))


def array_of(tensor: Any) -> Array:
    """A tensor's data as an array, which shares its bytes where it is contiguous and on the host."""
    torch = sys.modules["torch"]
    plain = tensor.detach().cpu().contiguous()
    if str(plain.dtype) == "torch.bfloat16":
        import ml_dtypes

        return np.asarray(plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(plain.numpy())


def literal(tensor: Any) -> Array:
    """The data of a tensor in a graph, also while a tracer stands between and wants tensors without data."""
    if type(tensor).__name__ == "FakeTensor":
        raise UnsupportedError("unsupported: a tensor in the graph that has no data")
    with sys.modules["torch.utils._python_dispatch"]._disable_current_modes():
        return array_of(tensor)


def _dim(size: Any) -> Dim:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if getattr(expression, "is_Integer", False):
        return int(expression)
    sympy = sys.modules["sympy"]
    return parse_size(sympy.srepr(expression), "a size")


def _meta(value: Any) -> Meta | None:
    """What the metadata of a node says of a tensor; None for what is none."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return None
    if getattr(value, "is_sparse", False):
        return Meta(None, (), None, "sparse")
    strides = tuple(_dim(n) for n in value.stride())
    return Meta(
        dtype_of(value.dtype), tuple(_dim(n) for n in value.shape), strides, str(value.dtype).removeprefix("torch.")
    )


def target_of(target: Any) -> str:
    """The name of what a node calls."""
    if isinstance(target, str):
        return target
    if hasattr(target, "_schema") and hasattr(target, "overloadpacket"):
        return str(target)
    module = str(getattr(target, "__module__", "")).replace("_operator", "operator")
    name = str(getattr(target, "__name__", target))
    if hasattr(target, "_name") or type(target).__module__.startswith("torch._higher_order_ops"):
        return f"higher_order.{getattr(target, '_name', name)}"
    return f"{module}.{name}" if module in ("operator", "math", "torch") else f"{module}.{name}"


class Reader:
    """Reads one graph module, and those in it."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.metas: dict[str, Meta] = {}
        self.attributes: dict[str, Any] = {}

    def arg(self, arg: Any) -> Arg:
        """An argument as the neutral graph has it."""
        if arg is None or isinstance(arg, (bool, int, float, str)):
            return arg
        if type(arg).__name__ == "Node" and hasattr(arg, "op"):
            return self.attributes[arg.name] if arg.name in self.attributes else Ref(arg.name)
        if isinstance(arg, (list, tuple)):
            return [self.arg(item) for item in arg]
        text = str(arg)
        if text.startswith("torch.") and type(arg).__name__ == "dtype":
            return _DTYPES.get(text, text.removeprefix("torch."))
        if isinstance(arg, complex):
            raise UnsupportedError("unsupported: a complex number as an argument")
        if type(arg).__name__ in ("device", "layout", "memory_format"):
            return None
        if hasattr(arg, "node") and hasattr(arg.node, "expr"):
            return _dim(arg)
        raise UnsupportedError(f"unsupported: an argument of the kind {type(arg).__name__}")

    def named(self, node: Any) -> dict[str, Arg]:
        """Arguments by the names of the schema, else by position."""
        schema = getattr(node.target, "_schema", None)
        names = [a.name for a in schema.arguments] if schema is not None else []
        found = {names[n] if n < len(names) else str(n): self.arg(arg) for n, arg in enumerate(node.args)}
        return {**found, **{str(key): self.arg(arg) for key, arg in node.kwargs.items()}}

    def nodes(self) -> Iterator[Node]:
        """The calls, in order."""
        for node in self.module.graph.nodes:
            value = node.meta.get("val", node.meta.get("example_value"))
            meta = _meta(value)
            if meta is not None:
                self.metas[node.name] = meta
            if node.op == "get_attr":
                held = self.attribute(node)
                if isinstance(held, Graph):
                    self.attributes[node.name] = held
                else:
                    yield Node(node.name, LITERAL, {"value": literal(held)}, [node.name])
            elif node.op == "call_function":
                packed = isinstance(value, (list, tuple)) or (value is None and "getitem" in str(list(node.users)))
                location = Location(
                    _module_of(node.meta.get("nn_module_stack")), user_line(node.meta.get("stack_trace") or "")
                )
                yield Node(node.name, target_of(node.target), self.named(node), [node.name], location, packed)
            elif node.op not in ("placeholder", "output"):
                raise UnsupportedError(f"unsupported: a {node.op} of {node.target}: export the module first")

    def attribute(self, node: Any) -> Any:
        """What a module holds: a graph of its own, or a tensor."""
        held = self.module
        for part in str(node.target).split("."):
            held = getattr(held, part)
        if not hasattr(held, "graph"):
            return held
        inner = Reader(held)
        nodes = list(inner.nodes())
        inputs = [Input(n.name, "input") for n in held.graph.nodes if n.op == "placeholder"]
        return Graph(inputs, nodes, [Output(arg) for arg in inner.outputs()], inner.metas)

    def outputs(self) -> Sequence[Arg]:
        """What the graph returns."""
        (output,) = (n for n in self.module.graph.nodes if n.op == "output")
        found = output.args[0]
        return [self.arg(item) for item in (found if isinstance(found, (list, tuple)) else [found])]


def _module_of(stack: Mapping[str, Any] | None) -> str:
    """The path of the innermost module."""
    if not stack:
        return ""
    last = list(stack.values())[-1]
    path = last[0] if isinstance(last, (list, tuple)) else str(last)
    return without_local(str(path))


def read_exported(program: Any) -> Graph:
    """The program of an `ExportedProgram`. Raises UnsupportedError."""
    reader = Reader(program.graph_module)
    nodes = list(reader.nodes())
    signature = program.graph_signature
    outputs = [_output(spec) for spec in signature.output_specs]
    graph = Graph([_input(spec) for spec in signature.input_specs], nodes, outputs, reader.metas, _weights(program))
    for symbol, bounds in program.range_constraints.items():
        graph.ranges[str(symbol)] = (_bound(bounds.lower), _bound(bounds.upper))
    graph.hints = _hints(program.graph_module)
    graph.result_names = _result_names(program)
    return graph


def _bound(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return number if number < 2**62 else None


def _weights(program: Any) -> dict[str, Weight]:
    """State dict and constants; tensors of the same bytes have the same key."""
    found: dict[str, Weight] = {}
    for name, tensor in {**program.constants, **program.state_dict}.items():
        if not hasattr(tensor, "data_ptr"):
            continue
        found[name] = weight_of(tensor)
    return found


def weight_of(tensor: Any) -> Weight:
    """A tensor in memory."""
    key = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype))
    own = key if tensor.numel() else object()
    return Weight(lambda: array_of(tensor), own, bool(tensor.requires_grad))


_INPUTS = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant", "USER_INPUT": "input"}
_OUTPUTS = {
    "USER_OUTPUT": "output",
    "LOSS_OUTPUT": "output",
    "BUFFER_MUTATION": "buffer",
    "PARAMETER_MUTATION": "parameter",
    "USER_INPUT_MUTATION": "input",
}


def _input(spec: Any) -> Input:
    kind, arg = spec.kind.name, spec.arg
    if kind not in _INPUTS:
        raise UnsupportedError(f"unsupported: the program takes a {kind.lower().replace('_', ' ')}")
    if type(arg).__name__ == "ConstantArgument":
        return Input(arg.name, "value", value=arg.value)
    return Input(arg.name, _INPUTS[kind], spec.target or "")  # type: ignore[arg-type]


def _output(spec: Any) -> Output:
    kind, arg = spec.kind.name, spec.arg
    if kind not in _OUTPUTS:
        raise UnsupportedError(f"unsupported: the program returns a {kind.lower().replace('_', ' ')}")
    known = arg.value if type(arg).__name__ == "ConstantArgument" else Ref(arg.name)
    return Output(known, _OUTPUTS[kind], spec.target or "")  # type: ignore[arg-type]


def _hints(module: Any) -> dict[str, int]:
    """The values that symbols had at the export."""
    found: dict[str, int] = {}
    for node in module.graph.nodes:
        value = node.meta.get("val")
        for size in getattr(value, "shape", ()) if node.op == "placeholder" else ():
            if not isinstance(size, int) and getattr(size.node.expr, "is_Symbol", False) and size.node.hint is not None:
                found[str(size.node.expr)] = int(size.node.hint)
    return found


def _result_names(program: Any) -> list[str]:
    """What the module's results are called where it returns a dict."""
    spec = program.call_spec.out_spec
    if spec is None or spec.type is not dict or any(child.num_leaves != 1 for child in spec.children()):
        return []
    return [str(name) for name in spec.context]


def symbol_name(size: Any) -> str:
    """The symbol that a size that varies is; empty for an expression of symbols."""
    expression = size.node.expr
    return str(expression) if getattr(expression, "is_Symbol", False) else ""
