# SPDX-License-Identifier: Apache-2.0
"""Linear layers, products of matrices, attention, normalization of layers, dropout and embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from ...eager import Dims, Storage
from ...layouts import contiguous, in_order, is_contiguous, viewed
from ...onnx_graph import Node, TensorShape
from .context import Context
from .tensors import reduce_scratch, summed_from


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _in_rows(context: Context, name: str) -> Storage:
    """The tensor's rows one after another, with a reference of its own: itself, or a copy."""
    machine, storage = context.machine, context.machine.tensors[name]
    if is_contiguous(context.dims(name), context.strides(name)):
        return machine.hold(storage)
    return machine.new(context.shape(name).nbytes, "activations")


def linear(context: Context, node: Node) -> None:
    """A product with a stored matrix, and its bias: one op, unless the operand has more than two axes and its rows do not lie one after
    another, where the bias is added in place. The gradient of the bias is a sum over rows."""
    x, weight, *biases = (name for name in node.inputs if name)
    machine, out = context.machine, node.outputs[0]
    deep = len(context.dims(x)) > 2
    rows = _in_rows(context, x) if deep else machine.hold(machine.tensors[x])
    fused = rows.block == machine.tensors[x].block and bool(biases)
    context.output(node)
    context.cublas("main", fused)
    order = (x, weight, *biases) if fused else (*biases, weight, x)
    flowing = [name for name in (*biases, x, weight) if context.flows(name)]

    def backward(gradient: Storage) -> list[Storage | None]:
        given = context.copy_of_rows(out, gradient) if deep else None
        found: dict[str, Storage | None] = {}
        for name in order:
            if name not in flowing:
                continue
            found[name] = made = context.gradient(name)
            if name in biases:
                reduce_scratch(context, (prod(context.dims(out)[:-1]), context.dims(out)[-1]), [0])
            else:
                context.cublas("backward")
            if made is not None and (name == weight and not fused or name == x and deep):
                found[name] = machine.view(made, None)
                machine.release(made)
        context.give_up(given)
        return [found[name] for name in flowing]

    saved = ([rows] if context.flows(weight) else []) + ([machine.tensors[weight]] if context.flows(x) else [])
    context.record(node, flowing, saved, backward)
    machine.release(rows)


def gemm(context: Context, node: Node) -> None:
    """As linear layers of two axes are exported."""
    linear(context, node)


def matmul(context: Context, node: Node) -> None:
    """Batches of products: operands are copied where they are no stack of matrices in memory."""
    machine, out = context.machine, node.outputs[0]
    batch = context.dims(out)[:-2]
    operands = [_stack(context, name, batch) for name in node.inputs]
    context.output(node)
    context.cublas("main")
    flowing = [name for name in node.inputs if context.flows(name)]

    def backward(_: Storage) -> list[Storage | None]:
        found: list[Storage | None] = []
        for name in flowing:
            dims = (*batch, *context.dims(name)[-2:])
            made = machine.new(prod(dims) * context.shape(name).itemsize, context.gradient_category(name))
            context.cublas("backward")
            found.append(summed_from(context, made, TensorShape(dims, context.shape(name).itemsize), name))
        return found

    saved = [operands[1 - at] for at, name in enumerate(node.inputs) if context.flows(name)]
    context.record(node, flowing, saved, backward)
    for storage in operands:
        machine.release(storage)


def _stack(context: Context, name: str, batch: Dims) -> Storage:
    """The operand as a stack of matrices, with a reference of its own."""
    machine, dims = context.machine, context.dims(name)
    own = (1,) * (len(batch) + 2 - len(dims)) + dims
    strides = (0,) * (len(batch) + 2 - len(dims)) + context.strides(name)
    repeated = tuple(0 if size != whole else step for size, whole, step in zip(own, batch, strides))
    whole = (*batch, *own[-2:])
    stacked = viewed(whole, (*repeated, *strides[-2:]), (prod(batch), *own[-2:])) if len(batch) > 1 else ()
    if stacked is None:
        return machine.new(prod(whole) * context.shape(name).itemsize, "activations")
    return machine.hold(machine.tensors[name])


def attention(context: Context, node: Node) -> None:
    """scaled_dot_product_attention: in f16 and bf16 cuDNN's kernel, which PyTorch prefers on compute capability 9.0, else the
    memory-efficient one."""
    if any(context.flows(name) for name in node.inputs[3:]):
        return _plain_attention(context, node)
    if context.shape(node.inputs[0]).itemsize == 2:
        return _half_attention(context, node)
    return _f32_attention(context, node)


def _plain_attention(context: Context, node: Node) -> None:
    """Op by op, where the mask has a gradient: scaled query and key, probabilities, and what dropout makes of them are kept."""
    query, key, value, mask = node.inputs
    machine, out = context.machine, node.outputs[0]
    itemsize = context.shape(query).itemsize
    rows, columns = context.dims(query)[-2], context.dims(value)[-2]
    elements = prod(context.dims(query)[:-2]) * rows * columns
    kept = [machine.new(context.shape(name).nbytes, "activations") for name in (query, key)]
    scores = machine.new(elements * itemsize, "activations")
    total = machine.new(elements * itemsize, "activations")
    machine.release(scores)
    kept.append(machine.new(elements * itemsize, "activations"))
    machine.release(total)
    if node.attributes.get("dropout"):
        kept += [machine.new(elements, "activations"), machine.new(elements * itemsize, "activations")]
    kept.append(_in_rows(context, value))
    context.output(node)
    context.cublas("main")
    flowing = [name for name in node.inputs if context.flows(name)]

    def backward(_: Storage) -> list[Storage | None]:
        made = [machine.new(elements * itemsize, "temporaries") for _ in range(2)]
        context.cublas("backward")
        found: dict[str, Storage | None] = {}
        for name in (query, key, value):
            if name in flowing:
                found[name] = context.gradient(name)
        machine.release(made[0])
        scored = TensorShape((*context.dims(out)[:-2], rows, columns), itemsize)
        found[mask] = summed_from(context, made[1], scored, mask)
        return [found[name] for name in flowing]

    context.record(node, flowing, kept, backward)
    for storage in kept:
        machine.release(storage)


CUDNN_ATTENTION = 256
"""Bytes that cuDNN's attention takes for itself, beside the sums of its backward pass."""


def _half_attention(context: Context, node: Node) -> None:
    """Keeps a number for each row; the backward pass sums the gradient of queries up in f32. Results are laid out as what they
    are like."""
    query, key, value, *masks = node.inputs
    machine = context.machine
    batch, heads, rows, depth = context.dims(query)
    value_depth = context.dims(value)[3]
    bias = machine.new(prod(context.dims(masks[0])) * 2, "activations") if masks else None
    flowing = [name for name in (query, key, value) if context.flows(name)]
    seeds = [machine.new(8, "activations") for _ in range(2)]
    result = context.output(node, strides=_laid_out(context, query) if value_depth == depth else None)
    kept = machine.new(batch * heads * rows * 4, "activations") if flowing else None
    machine.scratch(CUDNN_ATTENTION)

    layouts = {name: _laid_out(context, name) for name in (query, key, value)}

    def backward(_: Storage) -> list[Storage | None]:
        found: dict[str, Storage] = {}
        for name in (query, key, value):
            found[name] = machine.new(context.shape(name).nbytes, "temporaries")
            found[name].strides = layouts[name]
        machine.scratch(batch * heads * rows * (depth + 1) * 4 + CUDNN_ATTENTION)
        for name in (query, key, value):
            if name not in flowing:
                machine.release(found.pop(name))
        return [found[name] for name in flowing]

    tensors = [machine.tensors[name] for name in (key, query, value)]
    extra = [each for each in (bias, kept, *seeds) if each is not None]
    saved = [*([bias] if bias else []), *tensors, *([kept] if kept else []), result, *reversed(seeds)]
    context.record(node, flowing, saved, backward)
    for storage in extra:
        machine.release(storage)


def _laid_out(context: Context, name: str) -> Dims:
    return in_order(context.dims(name), context.strides(name))


def _f32_attention(context: Context, node: Node) -> None:
    """In f32: the memory-efficient kernel, which keeps a number for each row, and in the backward pass sums
    up the gradient of queries beside the results."""
    query, key, value, *masks = node.inputs
    machine, out = context.machine, node.outputs[0]
    batch, heads, rows, depth = context.dims(query)
    columns = context.dims(value)[2]
    bias = _bias(context, masks[0], rows, columns) if masks else None
    value_depth = context.dims(value)[3]
    result = context.output(node, strides=(rows * heads * value_depth, value_depth, heads * value_depth, 1))
    flowing = [name for name in (query, key, value) if context.flows(name)]
    kept = machine.new(batch * heads * _rounded(rows, 32) * 4 if flowing else 0, "activations")

    def backward(gradient: Storage) -> list[Storage | None]:
        found: dict[str, Storage] = {}
        own = gradient.strides or contiguous(context.dims(out))
        turned = (batch, rows, heads, value_depth), tuple(own[axis] for axis in (0, 2, 1, 3))
        copied = None if is_contiguous(*turned) else machine.new(gradient.nbytes, "temporaries")
        for name in (query, key, value):
            found[name] = machine.new(context.shape(name).nbytes, "temporaries")
            of = context.dims(name)
            found[name].strides = (of[2] * of[1] * of[3], of[3], of[1] * of[3], 1)
        product = machine.new(context.shape(out).nbytes, "temporaries")
        sums = [machine.new(batch * heads * rows * 4, "temporaries") for _ in range(2)]
        machine.release(sums[0])
        machine.release(product)
        block, counters = (64, 16) if depth <= 64 else (128, 32)
        padded = _rounded(rows, block)
        of_head = padded * _rounded(depth, 64 if depth <= 64 else 128) * 4 + padded // block * counters
        space = machine.new(batch * heads * of_head, "workspaces")
        machine.release(sums[1])
        machine.release(space)
        context.give_up(copied)
        for name in (query, key, value):
            if name not in flowing:
                machine.release(found.pop(name))
        return [found[name] for name in flowing]

    tensors = [machine.tensors[name] for name in (key, query, value)]
    context.record(node, flowing, [*([bias] if bias else []), *tensors, kept, result], backward)
    machine.release(kept)
    if bias is not None:
        machine.release(bias)


def _bias(context: Context, mask: str, rows: int, columns: int) -> Storage:
    """The mask in floats, its rows a multiple of 8 long."""
    machine, dims = context.machine, context.dims(mask)
    if context.shape(mask).floating and columns % 8 == 0:
        return machine.hold(machine.tensors[mask])
    bias = machine.new(prod(dims) * 4, "activations")
    if columns % 8:
        padded = machine.new(prod(dims[:-1]) * _rounded(columns, 8) * 4, "activations")
        machine.release(bias)
        bias = padded
    return bias


def layer_norm(context: Context, node: Node) -> None:
    """Keeps the mean and deviation of each row. Both passes work on a copy where rows do not lie one after another."""
    x, *parameters = (name for name in node.inputs if name)
    machine, dims, kept = context.machine, context.dims(x), context.machine.tensors[x]
    copied = context.copy_of_rows(x, kept)
    context.output(node)
    axis = node.attributes.get("axis", -1) % len(dims)
    statistics = [machine.new(prod(dims[:axis]) * 4, "activations") for _ in range(2)]
    context.give_up(copied)
    flowing = [name for name in (x, *parameters) if context.flows(name)]

    def backward(gradient: Storage) -> list[Storage | None]:
        copied = context.copy_of_rows(x, kept)
        found = [context.gradient(name) for name in flowing]
        context.give_up(context.copy_of_rows(node.outputs[0], gradient), copied)
        return found

    context.record(node, flowing, [kept, *(machine.tensors[name] for name in parameters), *statistics], backward)
    for storage in statistics:
        machine.release(storage)


def dropout(context: Context, node: Node) -> None:
    """Keeps a mask of one byte for each element."""
    x = node.inputs[0]
    machine = context.machine
    if not context.training:
        return context.alias(node, x)
    mask = machine.new(prod(context.dims(x)), "activations")
    context.output(node)
    context.record(replace_outputs(node), [x], [mask], lambda _: [context.gradient(x)])
    machine.release(mask)
    return None


def replace_outputs(node: Node) -> Node:
    """The node with its first output alone, for those that nobody reads."""
    return Node(node.op, node.name, node.inputs, node.outputs[:1], node.attributes, node.call, node.scopes)


SORTED_FROM = 3072
"""Rows of an embedding up to which gradients are added without sorting."""


def embedding(context: Context, node: Node) -> None:
    """The gradient is a whole table, and above some number of rows, sorted indices."""
    weight, indices = node.inputs
    machine = context.machine
    count = prod(context.dims(indices))
    repeated = (
        not is_contiguous(context.dims(indices), context.strides(indices)) if indices in machine.tensors else False
    )
    listed = machine.new(count * 8, "temporaries") if repeated else None
    context.output(node)
    context.give_up(listed)

    def backward(gradient: Storage) -> list[Storage | None]:
        rows = context.copy_of_rows(node.outputs[0], gradient)
        copied = machine.new(count * 8, "temporaries") if repeated else None
        if count > SORTED_FROM:
            found = _sorted_gradient(context, weight, count)
        else:
            found = context.gradient(weight)
        context.give_up(copied, rows)
        return [found]

    context.record(node, [weight], [machine.tensors[indices]], backward)


def _sorted_gradient(context: Context, weight: str, count: int) -> Storage | None:
    machine = context.machine
    lists = [machine.new(count * 8, "temporaries") for _ in range(4)]
    found = context.gradient(weight)
    for storage in lists:
        machine.release(storage)
    return found


RULES: Mapping[str, Callable[[Context, Node], None]] = {
    "Attention": attention,
    "Dropout": dropout,
    "Embedding": embedding,
    "Gemm": gemm,
    "LayerNormalization": layer_norm,
    "Linear": linear,
    "MatMul": matmul,
}
