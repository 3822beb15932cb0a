# SPDX-License-Identifier: Apache-2.0
"""What the metadata of a node of an FX graph says: storages, their bytes, views, and what an op costs."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy

from memc.ir.cost_model import Device

UNKNOWN_SIZE = 4096
"""What a size counts as that depends on data."""


def tensors(node: Node) -> list[torch.Tensor]:
    """The tensors that a node stands for, one or, of a tuple, several."""
    return [v for v in tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]


def whole(size: Any) -> int:
    """A size as a number; of a symbolic one, that of the call which is being traced."""
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)
    return UNKNOWN_SIZE if hint is None else int(hint)


def storage_key(tensor: torch.Tensor) -> int:
    """The same number for tensors over the same bytes, while the metadata lives."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)


def storage_bytes(tensor: torch.Tensor, alignment: int = 1) -> int:
    """Bytes of the storage that a tensor lies in, all of it, rounded up."""
    try:
        nbytes = whole(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):
        nbytes = tensor_bytes(tensor)
    return -(-nbytes // alignment) * alignment


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's own elements."""
    count = 1
    for size in tensor.shape:
        count *= whole(size)
    return int(count * tensor.dtype.itemsize)


def is_item(node: Node) -> bool:
    """Whether a node takes a part of a tuple."""
    return node.target is operator.getitem and isinstance(node.args[0], Node) and not is_tensor(node.args[0])


def is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def is_symbol(node: Node) -> bool:
    """Whether a node is a size or another number, not a tensor."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))


def is_view(node: Node) -> bool:
    """Whether all that an op makes lies in the storages of what it reads, which it does not write to."""
    found = tensors(node)
    if node.op != "call_function" or not found or writes(node) or is_item(node):
        return False
    read = {storage_key(t) for other in node.all_input_nodes for t in tensors(other)}
    return all(storage_key(t) in read for t in found)


def writes(node: Node) -> bool:
    """Whether an op writes to what it is given."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def draws(node: Node) -> bool:
    """Whether an op takes numbers from a random generator. Attention without dropout is marked so and does not."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    chances = [a.name for a in node.target._schema.arguments]
    if "dropout_p" not in chances:
        return True
    at = chances.index("dropout_p")
    share = node.args[at] if at < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return bool(share != 0.0)


def has_effects(node: Node) -> bool:
    """Whether an op does more than to make its results, so that it runs once, and in order with others that do."""
    if node.op != "call_function" or is_symbol(node) or is_item(node):
        return False
    if draws(node) or writes(node) or not tensors(node):
        return True
    if getattr(node.target, "namespace", "") in ("_c10d_functional", "c10d", "profiler"):
        return True
    return isinstance(node.target, torch._ops.HigherOrderOperator) or bool(node.is_impure(impure_random=False))


def must_stay(node: Node) -> bool:
    """Whether the user's own checkpointing says that a result is kept."""
    return node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE


def cost(node: Node, device: Device) -> int:
    """Picoseconds of one run of an op, by its operations and bytes."""
    read = {n: tensors(n) for n in node.all_input_nodes}
    moved = sum(tensor_bytes(t) for found in (*read.values(), tensors(node)) for t in found)
    return round((device.least_seconds(_operations(node), moved) + device.start) * 1e12)


def _operations(node: Node) -> int:
    """Floating-point operations of matrix products, convolutions and attention, as PyTorch counts them; 0 of others."""
    from torch.utils.flop_counter import flop_registry

    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is None:
        return 0
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    return whole(count(*args, **kwargs, out_val=node.meta.get("val")))


def leaves(argument: Any) -> Iterator[Node]:
    """The nodes in an argument."""
    return (leaf for leaf in tree_leaves(argument) if isinstance(leaf, Node))
