# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops, by a table made of runs of each, and views of tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from math import prod
from typing import Any

from ...eager import Dims, Storage
from ...layouts import contiguous, is_contiguous, like, viewed
from ...onnx_graph import Node, TensorShape
from .context import Context
from .reductions import Scratch, sum_scratch


@cache
def table() -> Mapping[str, Mapping[str, Any]]:
    """By op and operands; `scripts/torch_op_table.py` makes it."""
    text = (files("memc.estimation") / "data/pytorch_2_11_ops.json").read_text()
    found: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return found


def elementwise(context: Context, node: Node, name: str = "") -> None:
    """What the table says, and sums of gradients to the dims of operands that were broadcast."""
    op, machine = name or node.op, context.machine
    operands = [each for each in node.inputs if each]
    if op in ("Softmax", "Gelu", "GeluTanh", "Silu", "Pow2", "Pow3", "Clip"):
        operands = operands[:1]
    tensors = [each for each in operands if each not in context.graph.scalars]
    if not context.shape(node.outputs[0]).floating or not any(context.flows(each) for each in tensors):
        context.output(node, strides=_strides(context, node, tensors))
        return
    kinds = "".join("s" if each in context.graph.scalars else "t" if context.flows(each) else "c" for each in operands)
    entry = table()[f"{op}:{kinds}"]
    before = [machine.new(context.shape(node.outputs[0]).nbytes, "temporaries") for _ in entry["forward"][1:]]
    out = context.output(node, strides=_strides(context, node, tensors))
    saved = [machine.tensors[operands[int(at)]] for at in entry["saved"] if at not in ("out", "other")]
    saved += [out] if "out" in entry["saved"] else []
    saved += before if "other" in entry["saved"] else []
    flowing = {at: each for at, each in enumerate(operands) if context.flows(each)}
    backward = partial(_replay, context, entry, node.outputs[0], flowing)
    context.record(node, list(flowing.values()), saved, backward)
    for storage in before:
        machine.release(storage)


def _strides(context: Context, node: Node, tensors: Sequence[str]) -> Dims | None:
    """Of the result: as those of the first operand of its dims."""
    dims = context.dims(node.outputs[0])
    for each in tensors:
        if context.dims(each) == dims and each in context.machine.tensors:
            return like(dims, context.strides(each))
    return None


def _replay(
    context: Context, entry: Mapping[str, Any], out: str, flowing: Mapping[int, str], gradient: Storage
) -> list[Storage | None]:
    """The blocks of the backward pass, as the table has them; `flowing` are operands by their place."""
    machine, shape = context.machine, context.shape(out)
    owner = dict(zip(map(str, entry["results"]), (at for at in flowing if at not in entry["passed"])))
    made: dict[str, Storage] = {}
    for event in entry["backward"]:
        number = event[1:].rstrip("?")
        if event[0] == "-":
            machine.release(made.pop(number))
            continue
        nbytes = prod(shape.dims) if event.endswith("?") else shape.nbytes
        category = context.gradient_category(flowing[owner[number]]) if number in owner else "temporaries"
        made[number] = machine.new(nbytes, category)
        made[number].strides = gradient.strides
    found = {at: made[number] for number, at in owner.items()}
    found |= {at: machine.hold(gradient) for at in flowing if at in entry["passed"]}
    for place in reversed(list(flowing)):
        found[place] = summed(context, found[place], out, flowing[place])
    return [found[place] for place in flowing]


def summed(context: Context, gradient: Storage, out: str, name: str) -> Storage:
    """The gradient of an operand of `out`, from one of its dims and type: a sum where it was broadcast, a copy in another type."""
    return summed_from(context, gradient, context.shape(out), name)


def summed_from(context: Context, gradient: Storage, of: TensorShape, name: str) -> Storage:
    """The same, from the dims and type of the gradient."""
    machine, own, dims = context.machine, context.dims(name), of.dims
    if prod(own) == prod(dims):
        if of.itemsize == context.shape(name).itemsize:
            return gradient
        found = machine.new(context.shape(name).nbytes, context.gradient_category(name))
        machine.release(gradient)
        return found
    padded = (1,) * (len(dims) - len(own)) + own
    axes = [axis for axis, (size, whole) in enumerate(zip(padded, dims)) if size != whole]
    result = context.gradient(name)
    assert result is not None
    reduce_scratch(context, dims, axes)
    machine.release(gradient)
    return result


def reduce_scratch(context: Context, dims: Sequence[int], axes: Sequence[int]) -> None:
    """What a sum takes for itself."""
    bytes_of_sum(context, sum_scratch(dims, axes))


def bytes_of_sum(context: Context, found: Scratch | None) -> None:
    """The same, from what is known of it."""
    if found is not None:
        machine = context.machine
        sums, counters = machine.new(found.sums, "temporaries"), machine.new(found.counters, "temporaries")
        machine.release(counters)
        machine.release(sums)


def add(context: Context, node: Node) -> None:
    """The gradient is that of each operand, or is summed to its size; in place where the output writes over an operand."""
    if node.outputs[0] not in context.in_place:
        return elementwise(context, node)
    machine, out = context.machine, node.outputs[0]
    context.result(node)
    flowing = [name for name in node.inputs if context.flows(name)]
    context.record(
        node, flowing, [], lambda gradient: [summed(context, machine.hold(gradient), out, name) for name in flowing]
    )
    return None


def power(context: Context, node: Node) -> None:
    """With a number as the exponent."""
    elementwise(context, node, "Pow2")


def where(context: Context, node: Node) -> None:
    """The condition is kept; gradients are zero where the other was taken."""
    machine = context.machine
    condition, *operands = node.inputs
    context.output(node)
    flowing = [name for name in operands if context.flows(name)]
    whole = context.shape(node.outputs[0])

    def backward(_: Storage) -> list[Storage | None]:
        made = [machine.new(whole.nbytes, "temporaries") for _ in flowing]
        return [summed_from(context, each, whole, name) for each, name in zip(made, flowing)]

    kept = [machine.tensors[condition]] if condition in machine.tensors else []
    context.record(node, flowing, kept, backward)


def plain(context: Context, node: Node) -> None:
    """An op without a gradient."""
    context.output(node)


def constant(context: Context, node: Node) -> None:
    """A tensor stored in the model."""
    context.output(node, "weights")


def cast(context: Context, node: Node) -> None:
    """Nothing, to the same type."""
    x, out = node.inputs[0], node.outputs[0]
    if context.shape(x) == context.shape(out):
        return view(context, node)
    context.output(node)
    if context.shape(out).floating:
        context.record(node, [x], [], lambda _: [context.gradient(x)])
    return None


def copy(context: Context, node: Node) -> None:
    """The same elements in a block of their own."""
    x, machine = node.inputs[0], context.machine
    if x not in context.machine.tensors:  # A number of the host's.
        return plain(context, node)
    context.output(node)
    context.record(node, [x], [], lambda gradient: [machine.hold(gradient)])


def padded(context: Context, node: Node) -> None:
    """A tensor of its own, even where nothing is added; its gradient is one, too."""
    x = node.inputs[0]
    context.output(node)
    context.record(node, [x], [], lambda _: [context.gradient(x)])


def view(context: Context, node: Node) -> None:
    """Other dims of the same elements, in their order: a copy where strides do not allow a view."""
    x, out, machine = node.inputs[0], node.outputs[0], context.machine
    if x not in context.machine.tensors:  # A number of the host's.
        return plain(context, node)
    strides = viewed(context.dims(x), context.strides(x), context.dims(out))
    if strides is None:
        context.output(node)
        context.record(node, [x], [], lambda gradient: [machine.hold(gradient)])
        return
    machine.bind(out, machine.view(machine.tensors[x], strides))
    context.record(node, [x], [], lambda gradient: [reshaped(context, gradient, context.dims(out), context.dims(x))])


def reshaped(context: Context, gradient: Storage, dims: Dims, wanted: Dims) -> Storage:
    """A gradient in other dims: a copy where strides do not allow a view."""
    machine = context.machine
    strides = viewed(dims, gradient.strides or contiguous(dims), wanted)
    if strides is None:
        return machine.new(gradient.nbytes, "temporaries")
    return machine.view(gradient, None if is_contiguous(wanted, strides) else strides)


def transpose(context: Context, node: Node) -> None:
    """A view with axes in another order."""
    x, out, machine = node.inputs[0], node.outputs[0], context.machine
    if x not in context.machine.tensors:  # A number of the host's.
        return plain(context, node)
    rank = len(context.dims(x))
    order = tuple(node.attributes.get("perm") or reversed(range(rank)))
    strides = context.strides(x)
    machine.bind(out, machine.view(machine.tensors[x], tuple(strides[axis] for axis in order)))

    def backward(gradient: Storage) -> list[Storage | None]:
        own = gradient.strides or contiguous(context.dims(out))
        return [machine.view(gradient, tuple(own[order.index(axis)] for axis in range(rank)))]

    context.record(node, [x], [], backward)


def expand(context: Context, node: Node) -> None:
    """A view that repeats axes of one element."""
    x, out, machine = node.inputs[0], node.outputs[0], context.machine
    if x not in context.machine.tensors:  # A number of the host's.
        return plain(context, node)
    dims, own = context.dims(out), context.dims(x)
    padded = (1,) * (len(dims) - len(own)) + own
    strides = (0,) * (len(dims) - len(own)) + context.strides(x)
    repeated = tuple(0 if size != whole else step for size, whole, step in zip(padded, dims, strides))
    machine.bind(out, machine.view(machine.tensors[x], repeated))
    context.record(node, [x], [], lambda gradient: [summed(context, machine.hold(gradient), out, x)])


def part(context: Context, node: Node) -> None:
    """A view of a part, as slices and selections are. Its gradient is put into zeros of the whole size."""
    x, machine = node.inputs[0], context.machine
    if x not in context.machine.tensors:  # A number of the host's.
        return plain(context, node)
    whole, strides = context.dims(x), context.strides(x)
    for out in node.outputs:
        dims = context.dims(out)
        kept = strides
        if len(dims) < len(whole):
            axis = node.attributes.get("axis", 0) % len(whole)
            kept = strides[:axis] + strides[axis + 1 :]
        machine.bind(out, machine.view(machine.tensors[x], kept, context.shape(out).nbytes))
    context.record(node, [x], [], lambda _: [context.gradient(x)])


def mean(context: Context, node: Node) -> None:
    """The gradient is spread over the whole."""
    x = node.inputs[0]
    context.output(node)
    if context.shape(x).floating:
        reduced = [
            at for at, size in enumerate(context.dims(x)) if size != (context.dims(node.outputs[0]) + (0,) * 9)[at]
        ]
        reduce_scratch(context, context.dims(x), reduced or [0])
    context.record(node, [x], [], lambda _: [context.gradient(x)])


TABLED = (
    *(
        "Abs",
        "Celu",
        "Cos",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "GeluTanh",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Log",
    ),
    *(
        "LogSoftmax",
        "Max",
        "Min",
        "Mish",
        "Mul",
        "Neg",
        "Reciprocal",
        "Rsqrt",
        "Sigmoid",
        "Silu",
        "Sin",
        "Softplus",
        "Softmax",
    ),
    *("Sqrt", "Sub", "Tanh"),
)

RULES: Mapping[str, Callable[[Context, Node], None]] = {
    **dict.fromkeys(TABLED, elementwise),
    **dict.fromkeys(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"), view),
    **dict.fromkeys(("Select", "Slice", "Split"), part),
    **dict.fromkeys(
        (
            "And",
            "ConstantOfShape",
            "CumSum",
            "Equal",
            "GatherElements",
            "GatherND",
            "Greater",
            "GreaterOrEqual",
            "IsNaN",
            "Less",
        )
        + ("LessOrEqual", "Not", "Or", "RandomUniformLike", "Range", "ScatterND", "Trilu"),
        plain,
    ),
    "Add": add,
    "Cast": cast,
    "Constant": constant,
    "Copy": copy,
    "Expand": expand,
    "Pad": padded,
    "Pow": power,
    "ReduceMean": mean,
    "Transpose": transpose,
    "Where": where,
}
